"""Looks and actions of `sharegroup groups`: without a coordinator, as JSON, several deletions, offsets from a file."""

from __future__ import annotations

import contextlib
import json

import pytest

from coordinator.config.group_keys import IN_FLIGHT as IN_FLIGHT_KEY
from coordinator.config.group_keys import PAUSED
from coordinator.protocol.admin_messages import Altered, AlteredOffsets, Effect, RunInFlight
from coordinator.protocol.admin_messages import OffsetChanges as Reset
from coordinator.protocol.errors import GroupIdNotFound, GroupNotEmpty
from coordinator.protocol.messages import PartitionDescription
from sharegroup import groups, in_flight
from sharegroup.__main__ import run
from tests.support.command_line import mistake
from tests.support.known_groups import KnownGroups

AT = ["--bootstrap-server", "127.0.0.1:9"]
GROUPS = ["groups", *AT]
TOPIC = "state topic share-group-state"
SAID = f"No coordinator answers: read from {TOPIC}.\n"
IN_FLIGHT = [*GROUPS, "--describe", "--all-groups", "--in-flight"]
STATE = [*GROUPS, "--describe", "--all-groups", "--state"]
HELD = "6 record(s) that members hold are delivered again."
LATE = "7 record(s) that members hold are delivered again."
ROW = AlteredOffsets(topic="orders", topic_id="T", partition=0, before=6, after=0)


class Known(KnownGroups):
    """``asked`` has each action, and what was told on standard error before it."""

    def __init__(self, told, group_ids, runs, read_from):
        where = {"topic": "orders", "topic_id": "T", "partition": 0, "state": "AVAILABLE"}
        held = [RunInFlight(**where, first=n, last=n) for n in range(runs)]
        coordinator = "" if read_from else "host:7  (12)"
        states = dict.fromkeys(group_ids, "UNKNOWN")
        super().__init__(states, runs=held, read_from=read_from, coordinator=coordinator)
        self.told, self.asked = told, []

    def reset_offsets(self, group_id, target, *, execute, **_):
        self.asked.append((group_id, execute, self.told()))
        return Reset(executed=execute, partitions=(ROW,), notes=(HELD, LATE) if execute else (HELD,))

    delete_offsets = reset_offsets

    def delete_group(self, group_id, *, execute, **_):
        self.asked.append((group_id, execute, self.told()))
        if group_id not in self.states:
            raise GroupIdNotFound(group_id=group_id)
        if group_id == "busy":
            raise GroupNotEmpty(group_id=group_id, members=1, force="")
        effects = (Effect(what=f"share group {group_id}", before="1 share partitions", after="deleted"),)
        return Altered(executed=execute, effects=effects, notes=(HELD,))


@pytest.fixture
def known(monkeypatch, capsys):
    """Makes the Admin of these groups that the commands get."""

    def make(*group_ids, runs=1, read_from=""):
        admin = Known(lambda: capsys.readouterr().err, group_ids, runs, read_from)
        for module in (groups, in_flight):
            monkeypatch.setattr(module, "opened", lambda *_, **__: contextlib.nullcontext(admin))
        return admin

    return make


@pytest.mark.parametrize("command", [IN_FLIGHT, STATE, ["in-flight", *AT, "--group", "a"]])
def test_reading_the_state_topic_is_reported_once(known, capsys, command):
    known("a", "b", read_from=TOPIC)
    assert run(command) == 0
    told = capsys.readouterr()
    assert told.err == SAID
    assert "a" in told.out


@pytest.mark.parametrize("command", [IN_FLIGHT, ["in-flight", *AT, "--group", "a"]])
def test_what_holds_back_deliveries_is_told_beside_what_is_in_flight(known, capsys, command):
    partition = PartitionDescription(
        topic="orders", topic_id="T", partition=0, start_offset=0, end_offset=0, lag=7, acquired=0, archived_total=0
    )
    configs = {PAUSED: "orders", IN_FLIGHT_KEY: "5"}
    known("a").fields.update(partitions=(partition,), configs=configs, limited_by=IN_FLIGHT_KEY)
    assert run(command) == 0
    told = capsys.readouterr().err
    assert "Nothing is acquired from orders: share.paused.topics has them.\n" in told
    assert "share.max.in.flight.records=5 is used up now.\n" in told


@pytest.mark.parametrize("command", [IN_FLIGHT, STATE])
def test_reading_a_state_topic_without_groups_is_reported(known, capsys, command):
    known(read_from=TOPIC)
    assert run([*command, "--json"]) == 0
    told = capsys.readouterr()
    assert (json.loads(told.out), told.err) == ([], SAID)


def test_the_state_of_a_group_without_coordinator_has_a_dash(known, capsys):
    known("a", read_from=TOPIC)
    assert run(STATE) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["a", "-", "Unknown", "0"]


@pytest.mark.parametrize(("read_from", "coordinator"), [(TOPIC, ""), ("", "host:7  (12)")])
def test_json_of_states_names_the_coordinator(known, capsys, read_from, coordinator):
    known("a", read_from=read_from)
    assert run([*STATE, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["coordinator"], found["state"], found["read_from"]) == (coordinator, "UNKNOWN", read_from)


def test_json_of_runs_in_flight_is_one_document_for_all_groups(known, capsys):
    known("a", "b", read_from=TOPIC)
    assert run([*IN_FLIGHT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["group_id"], len(each["runs"]), each["read_from"]) for each in found] == [
        ("a", 1, TOPIC),
        ("b", 1, TOPIC),
    ]


def test_a_cut_list_names_the_option_that_shows_more_runs(known, capsys):
    known("a", runs=in_flight.MOST_SHOWN + 1)
    assert run(IN_FLIGHT) == 0
    assert capsys.readouterr().out.endswith("… and more: sharegroup in-flight --group a --limit shows more\n")
    assert run(["in-flight", *AT, "--group", "a"]) == 0
    assert capsys.readouterr().out.endswith("… and more: --limit shows more\n")


@pytest.mark.parametrize(
    "action",
    [
        ["--reset-offsets", "--group", "a", "--all-topics", "--to-earliest", "--execute"],
        ["--delete-offsets", "--group", "a", "--topic", "orders"],
        ["--delete", "--group", "a"],
    ],
)
def test_the_effect_of_force_is_printed_before_the_action(known, capsys, action):
    admin = known("a")
    assert run([*GROUPS, *action, "--force"]) == 0
    assert [(execute, told) for _, execute, told in admin.asked] == [(False, ""), (True, f"{HELD}\n")]
    assert capsys.readouterr().err == ("" if action[0] == "--delete" else f"{LATE}\n"), "nothing is told twice"


def test_an_action_without_force_is_asked_for_once(known):
    admin = known("a")
    assert run([*GROUPS, "--delete", "--group", "a"]) == 0
    assert [execute for _, execute, _ in admin.asked] == [True]
    assert run([*GROUPS, "--delete", "--group", "a", "--force", "--dry-run"]) == 0
    assert [execute for _, execute, _ in admin.asked] == [True, False]


def test_a_group_that_can_not_be_deleted_stops_no_other(known, capsys):
    admin = known("a", "busy", "c")
    named = [text for group_id in ("a", "busy", "none", "c", "a") for text in ("--group", group_id)]
    assert run([*GROUPS, "--delete", *named]) == 1
    assert [group_id for group_id, _, _ in admin.asked] == ["a", "busy", "none", "c"]
    told = capsys.readouterr()
    assert told.out == "These share groups were deleted successfully: 'a', 'c'\n"
    failed = [line for line in told.err.splitlines() if line.startswith(("Deletion", "*"))]
    assert failed[0] == "Deletion of some share groups failed:"
    assert failed[1].startswith("* Group 'busy' could not be deleted due to: GroupNotEmpty: ")
    assert failed[2].startswith("* Group 'none' could not be deleted due to: GroupIdNotFound: ")


def test_json_of_deletions_lists_deleted_and_failed_groups(known, capsys):
    known("a", "busy")
    assert run([*GROUPS, "--delete", "--all-groups", "--json"]) == 1
    deleted, failed = json.loads(capsys.readouterr().out)
    assert (deleted["group_id"], deleted["executed"]) == ("a", True)
    assert (failed["group_id"], failed["error"]) == ("busy", "GroupNotEmpty")


def test_a_single_failed_deletion_prints_one_line(known, capsys):
    known("busy")
    assert mistake([*GROUPS, "--delete", "--group", "busy"], capsys).startswith("sharegroup: GroupNotEmpty: ")


def test_without_groups_a_deletion_prints_that_there_are_none(known, capsys):
    known()
    assert run([*GROUPS, "--delete", "--all-groups"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "There are no share groups to delete.\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "it has no offsets"), ("orders,0\n", "line 1 is not"), ("\udcff", "it is no text in UTF-8")],
)
def test_a_file_without_offsets_is_a_mistake_in_the_command(known, tmp_path, capsys, text, reason):
    admin, path = known("a"), tmp_path / "offsets.csv"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    said = mistake([*GROUPS, "--reset-offsets", "--group", "a", "--from-file", str(path)], capsys)
    assert said.startswith(f"sharegroup: --from-file {path}: {reason}")
    assert not admin.asked
