"""`sharegroup groups --describe` and `in-flight` where no coordinator runs, as JSON, and with more runs than shown."""

from __future__ import annotations

import contextlib
import json

import pytest

from coordinator.protocol.admin_messages import GroupListing, GroupsListed, InFlightPage, RunInFlight
from coordinator.protocol.messages import GroupDescription
from sharegroup import groups, in_flight
from sharegroup.__main__ import run

AT = ["--bootstrap-server", "127.0.0.1:9"]
TOPIC = "state topic share-group-state"
SAID = f"No coordinator runs on this host: read from {TOPIC}.\n"
IN_FLIGHT = ["groups", *AT, "--describe", "--all-groups", "--in-flight"]
STATE = ["groups", *AT, "--describe", "--all-groups", "--state"]


class Known:
    """An Admin of these groups, each with ``runs`` runs in flight. ``read_from``: the place that is read instead of a
    coordinator, if none runs."""

    def __init__(self, group_ids, runs, read_from):
        self.group_ids, self.read_from = group_ids, read_from
        self.runs = [
            RunInFlight(topic="orders", topic_id="T", partition=0, first=n, last=n, state="AVAILABLE")
            for n in range(runs)
        ]

    def list_groups(self, states=(), *, only_ids=False):
        listed = tuple(GroupListing(group_id=name, state="UNKNOWN") for name in self.group_ids)
        return GroupsListed(groups=listed, read_from=self.read_from)

    def describe_groups(self, group_ids):
        coordinator = "" if self.read_from else "host:7  (12)"
        made = {"state": "UNKNOWN", "incarnation": "i", "read_from": self.read_from, "coordinator": coordinator}
        return {name: GroupDescription(group_id=name, **made) for name in group_ids}

    def in_flight(self, group_id, *, limit):
        return InFlightPage(now_ms=1, read_from=self.read_from)

    def all_in_flight(self, group_id, **_):
        return iter(self.runs)


@pytest.fixture
def known(monkeypatch):
    """Makes the Admin of these groups that the commands get."""

    def make(*group_ids, runs=1, read_from=TOPIC):
        admin = Known(group_ids, runs, read_from)
        for module in (groups, in_flight):
            monkeypatch.setattr(module, "opened", lambda *_, **__: contextlib.nullcontext(admin))

    return make


@pytest.mark.parametrize("command", [IN_FLIGHT, STATE, ["in-flight", *AT, "--group", "a"]])
def test_reading_the_state_topic_is_reported_once(known, capsys, command):
    known("a", "b")
    assert run(command) == 0
    told = capsys.readouterr()
    assert told.err == SAID
    assert "a" in told.out


@pytest.mark.parametrize("command", [IN_FLIGHT, STATE])
def test_reading_a_state_topic_without_groups_is_reported(known, capsys, command):
    known()
    assert run([*command, "--json"]) == 0
    told = capsys.readouterr()
    assert (json.loads(told.out), told.err) == ([], SAID)


def test_the_state_of_a_group_without_coordinator_has_a_dash(known, capsys):
    known("a")
    assert run(STATE) == 0
    assert capsys.readouterr().out.splitlines()[2].split() == ["a", "-", "Unknown", "0"]


@pytest.mark.parametrize(("read_from", "coordinator"), [(TOPIC, ""), ("", "host:7  (12)")])
def test_json_of_states_names_the_coordinator(known, capsys, read_from, coordinator):
    known("a", read_from=read_from)
    assert run([*STATE, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["coordinator"], found["state"], found["read_from"]) == (coordinator, "UNKNOWN", read_from)


def test_json_of_runs_in_flight_is_one_document_for_all_groups(known, capsys):
    known("a", "b")
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
