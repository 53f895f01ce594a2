"""The actions of `sharegroup groups`: what is told before a forced one, several deletions, and offsets from a file."""

from __future__ import annotations

import contextlib
import json

import pytest

from coordinator.protocol.admin_messages import Altered, AlteredOffsets, Effect, GroupListing, GroupsListed
from coordinator.protocol.admin_messages import OffsetChanges as Reset
from coordinator.protocol.errors import GroupIdNotFound, GroupNotEmpty
from sharegroup import groups
from sharegroup.__main__ import run
from tests.support.command_line import mistake

AT = ["groups", "--bootstrap-server", "127.0.0.1:9"]
HELD = "6 record(s) that members hold are delivered again."
LATE = "7 record(s) that members hold are delivered again."
ROW = AlteredOffsets(topic="orders", topic_id="T", partition=0, before=6, after=0)


class Known:
    """An Admin of these groups. ``asked`` has each action, and what was told on standard error before it."""

    def __init__(self, told, *group_ids):
        self.told, self.group_ids, self.asked = told, [*group_ids], []

    def list_groups(self, states=(), *, only_ids=False):
        return GroupsListed(groups=tuple(GroupListing(group_id=name, state="EMPTY") for name in self.group_ids))

    def reset_offsets(self, group_id, target, *, execute, **_):
        self.asked.append((group_id, execute, self.told()))
        return Reset(executed=execute, partitions=(ROW,), notes=(HELD, LATE) if execute else (HELD,))

    delete_offsets = reset_offsets

    def delete_group(self, group_id, *, execute, **_):
        self.asked.append((group_id, execute, self.told()))
        if group_id not in self.group_ids:
            raise GroupIdNotFound(group_id=group_id)
        if group_id == "busy":
            raise GroupNotEmpty(group_id=group_id, members=1, force="")
        effects = (Effect(what=f"share group {group_id}", before="1 share partitions", after="deleted"),)
        return Altered(executed=execute, effects=effects, notes=(HELD,))


@pytest.fixture
def known(monkeypatch, capsys):
    """Makes the Admin of these groups that the command gets."""

    def make(*group_ids):
        admin = Known(lambda: capsys.readouterr().err, *group_ids)
        monkeypatch.setattr(groups, "opened", lambda *_, **__: contextlib.nullcontext(admin))
        return admin

    return make


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
    assert run([*AT, *action, "--force"]) == 0
    assert [(execute, told) for _, execute, told in admin.asked] == [(False, ""), (True, f"{HELD}\n")]
    assert capsys.readouterr().err == ("" if action[0] == "--delete" else f"{LATE}\n"), "nothing is told twice"


def test_an_action_without_force_is_asked_for_once(known):
    admin = known("a")
    assert run([*AT, "--delete", "--group", "a"]) == 0
    assert [execute for _, execute, _ in admin.asked] == [True]
    assert run([*AT, "--delete", "--group", "a", "--force", "--dry-run"]) == 0
    assert [execute for _, execute, _ in admin.asked] == [True, False]


def test_a_group_that_can_not_be_deleted_stops_no_other(known, capsys):
    admin = known("a", "busy", "c")
    named = [text for group_id in ("a", "busy", "none", "c", "a") for text in ("--group", group_id)]
    assert run([*AT, "--delete", *named]) == 1
    assert [group_id for group_id, _, _ in admin.asked] == ["a", "busy", "none", "c"]
    told = capsys.readouterr()
    assert told.out == "These share groups were deleted successfully: 'a', 'c'\n"
    failed = [line for line in told.err.splitlines() if line.startswith(("Deletion", "*"))]
    assert failed[0] == "Deletion of some share groups failed:"
    assert failed[1].startswith("* Group 'busy' could not be deleted due to: GroupNotEmpty: ")
    assert failed[2].startswith("* Group 'none' could not be deleted due to: GroupIdNotFound: ")


def test_json_of_deletions_lists_deleted_and_failed_groups(known, capsys):
    known("a", "busy")
    assert run([*AT, "--delete", "--all-groups", "--json"]) == 1
    deleted, failed = json.loads(capsys.readouterr().out)
    assert (deleted["group_id"], deleted["executed"]) == ("a", True)
    assert (failed["group_id"], failed["error"]) == ("busy", "GroupNotEmpty")


def test_a_single_failed_deletion_prints_one_line(known, capsys):
    known("busy")
    assert mistake([*AT, "--delete", "--group", "busy"], capsys).startswith("sharegroup: GroupNotEmpty: ")


def test_without_groups_a_deletion_prints_that_there_are_none(known, capsys):
    known()
    assert run([*AT, "--delete", "--all-groups"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "There are no share groups to delete.\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "it has no offsets"), ("orders,0\n", "line 1 is not"), ("\udcff", "it is no text in UTF-8")],
)
def test_a_file_without_offsets_is_a_mistake_in_the_command(known, tmp_path, capsys, text, reason):
    admin, path = known("a"), tmp_path / "offsets.csv"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    said = mistake([*AT, "--reset-offsets", "--group", "a", "--from-file", str(path)], capsys)
    assert said.startswith(f"sharegroup: --from-file {path}: {reason}")
    assert not admin.asked
