"""`sharegroup groups`, `in-flight` and `top`: their tables, and the mistakes that need no broker."""

from __future__ import annotations

import contextlib
import io
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import click
import msgspec
import pytest
from rich.console import Console

from coordinator.client.endpoints import Endpoints
from coordinator.config.group_keys import PAUSED, RATE
from coordinator.config.secret_files import TOKEN_VARIABLE
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import (
    AlteredOffsets,
    GroupListing,
    GroupsListed,
    InFlightPage,
    PlansListed,
    RunInFlight,
)
from coordinator.protocol.errors import CoordinatorUnreachable, GroupIdNotFound, MembersNotKnown
from coordinator.protocol.messages import (
    AwaitedRecord,
    GroupDescription,
    MemberDescription,
    PartitionDescription,
    RecordCounts,
)
from sharegroup import Admin, group_actions, in_flight, kafka_tables, top
from sharegroup import group_action_options as group_options
from sharegroup.__main__ import run as run_command
from sharegroup.group_line import line_of
from sharegroup.groups import groups
from tests.support.command_line import mistake
from tests.support.doctor_cases import CASES
from tests.support.known_groups import KnownGroups

AT = ["--bootstrap-server", "127.0.0.1:9"]


def shown(table):
    """The lines of a table on a screen of 80 columns."""
    console = Console(width=80, file=io.StringIO())
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def partition(index=0, start=0, end=10, **fields):
    base = {"topic": "orders", "topic_id": "T", "partition": index, "start_offset": start, "end_offset": end, "lag": 5}
    return PartitionDescription(**{**base, "acquired": 2, "archived_total": 1, **fields})


def group(*partitions, members=(), state="STABLE", group_id="billing"):
    who = {"members": members, "members_total": len(members)}
    return GroupDescription(group_id=group_id, state=state, incarnation="i", partitions=partitions, **who)


def run(**fields):
    where = {"topic": "orders", "topic_id": "T", "partition": 0, "first": 10, "last": 19, "state": "ACQUIRED"}
    return RunInFlight(**{**where, "delivery_count": 2, "member_id": "m1", **fields})


def test_a_table_has_kafkas_widths_and_a_dash_for_unknown_values():
    assert kafka_tables.offsets("billing", [partition(1), partition(0, lag=None)], verbose=False) == [
        "",
        "GROUP           TOPIC           PARTITION  START-OFFSET  LAG",
        "billing         orders          0          0             -",
        "billing         orders          1          0             5",
    ]
    counted = partition(1, accepted=7, archived={"rejected": 2, "none": 1}, removed=3, deleted=6, skipped=4)
    records = RecordCounts(reached=90, accepted=70, archived={"rejected": 5}, removed=9, deleted=8, still_there=6)
    described = GroupDescription("billing", "STABLE", "i", partitions=(counted,), records=records)
    assert kafka_tables.records(described)[1:] == [
        "GROUP           TOPIC           PARTITION  ACCEPTED   ARCHIVED   NO-RECORD  REMOVED    TOPIC-DELETED  SKIPPED"
        "    REPEATED",
        "billing         orders          1          7          2          1          3          6              4      "
        "    0",
        "billing         (all)           -          70         5          0          9          8              0      "
        "    0",
    ]
    assert kafka_tables.listing([GroupListing(group_id="a" * 20, state="EMPTY")])[1] == "a" * 20 + " Empty"
    altered = AlteredOffsets(topic="orders", topic_id="T", partition=3, before=1, after=7)
    assert kafka_tables.new_offsets("billing", [altered])[2] == "billing         orders          3          7"
    assert kafka_tables.statuses(["orders"])[2] == "orders          Successful"


def test_only_members_with_a_session_are_listed():
    active, away = (
        MemberDescription(
            member_id=name, member_epoch=3, active=name == "m1", client_id="etl", client_host="host-1", client_pid=4711
        )
        for name in ("m1", "m2")
    )
    lines = kafka_tables.members("billing", [active, away], verbose=True)
    assert [line.split() for line in lines[2:]] == [["billing", "m1", "host-1", "(4711)", "etl", "0", "3", "-"]]
    assert lines[1].split()[-2:] == ["MEMBER-EPOCH", "ASSIGNMENT"]


def test_runs_in_flight_fit_a_screen_and_a_stale_run_is_marked():
    now_ms = 1_000_000
    runs = [
        run(since_ms=now_ms - 185_000, client_host="host-1", last_signal_ms=now_ms - 60_000),
        run(first=30, last=30, state="AVAILABLE", stage="failed alone", failures=5, not_before_ms=now_ms + 4_000),
        run(first=31, last=31, state="ARCHIVING", reason="[no] customer", topic="t" * 90),
    ]
    page = InFlightPage(now_ms=now_ms, staleness_threshold_ms=60_000)
    lines = shown(in_flight.table("billing", runs, page, all_stale=True))
    assert max(map(len, lines)) <= 80
    told = " ".join(" ".join(lines).split())
    assert "STALE" in told
    assert "ARCHIVING" in told
    assert "3 min" in told
    assert "m1" in told
    assert shown(in_flight.table("billing", [], page)) == ["Nothing of billing is in flight as asked."]


@pytest.mark.parametrize(
    ("fields", "stale"),
    [
        ({"state": "IN_PROGRESS", "last_signal_ms": 40_000}, False),
        ({"state": "IN_PROGRESS", "last_signal_ms": 39_999}, True),
        ({"state": "ACQUIRED"}, False),
        ({"state": "AVAILABLE", "last_signal_ms": 0}, False),
    ],
)
def test_a_record_in_progress_without_signals_is_stale_without_a_filter(fields, stale):
    page = InFlightPage(now_ms=100_000, staleness_threshold_ms=60_000)
    text = " ".join(shown(in_flight.table("billing", [run(since_ms=0, **fields)], page)))
    assert ("STALE" in text) is stale


def test_a_line_of_top_has_rates_since_the_look_before():
    before = line_of(group(partition()), [], 0)
    assert (before.lag, before.in_flight, before.oldest_ms, before.done_rate) == (5, 2, None, None)
    later = group(partition(start=8, end=30), partition(1, end=4, lag=0))
    line = line_of(later, [run(since_ms=400), run(since_ms=700)], 1_000, before=before, elapsed_s=2.0)
    assert (line.acquired_rate, line.done_rate, line.oldest_ms, line.lag) == (12.0, 4.0, 600, 5)
    reset = line_of(group(partition(start=0, end=0)), [], 0, before=line, elapsed_s=2.0)
    assert (reset.acquired_rate, reset.done_rate) == (None, None)
    assert line_of(group(partition(lag=None)), [], 0).lag is None


def test_the_screen_of_top_fits_80_columns_with_numbers_of_any_size():
    large = partition(start=10**12, end=2 * 10**12, lag=10**12, acquired=10**9, archived_total=10**9, archiving=10**6)
    lines = [line_of(group(large, group_id=name), [run(since_ms=0)], 10**10) for name in ("a" * 60, "b")]
    lines.append(replace(lines[1], members=9_999, waiting=9_999))
    assert max(map(len, shown(top.screen(lines, "state topic share-group-state")))) <= 80


def test_a_line_of_top_shows_how_many_members_wait():
    members = [
        MemberDescription(member_id=name, member_epoch=1, active=True, waits=name == "m2") for name in ("m1", "m2")
    ]
    (_, _, line) = shown(top.screen([line_of(group(partition(), members=members), [], 0)]))
    assert line.split()[:5] == ["billing", "Stable", "2", "(1", "wait)"]


@pytest.mark.parametrize(
    ("fields", "state", "says"),
    [
        ({"configs": {PAUSED: "*"}}, "Stable (paused)", "Nothing is acquired from clicks, orders: share.paused.topics"),
        ({"configs": {PAUSED: "orders"}}, "Stable (1 paused)", "Nothing is acquired from orders: share.paused.topics"),
        (
            {"configs": {RATE: "9"}, "limited_by": RATE},
            "Stable (rate)",
            "share.max.records.per.second=9 is used up now.",
        ),
        ({"configs": {PAUSED: "other"}}, "Stable ", ""),
    ],
)
def test_a_group_shows_what_holds_back_deliveries(fields, state, says, monkeypatch, capsys):
    described = msgspec.structs.replace(group(partition(), partition(topic="clicks")), **fields)
    (_, _, line) = shown(top.screen([line_of(described, [], 0)]))
    assert f"billing  {state}" in line
    known = SimpleNamespace(describe_groups=lambda _: {"billing": described})
    monkeypatch.setattr("sharegroup.groups.opened", lambda *_, **__: contextlib.nullcontext(known))
    assert run_command(["groups", *AT, "--describe", "--group", "billing"]) == 0
    assert says in capsys.readouterr().err


def test_configs_list_says_what_the_coordinator_makes_of_a_groups_configs(monkeypatch, capsys):
    limit, lock = "share.delivery.count.limit", "share.record.lock.duration.ms"
    described = msgspec.structs.replace(group(), configs={lock: "90000"}, in_force={limit: "7", lock: "60000"})
    known = SimpleNamespace(describe_groups=lambda _: {"billing": described})
    monkeypatch.setattr("sharegroup.configs.opened", lambda *_, **__: contextlib.nullcontext(known))
    assert run_command(["configs", "list", *AT, "--group", "billing"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{limit}=7  (the coordinator's default)",
        f"{lock}=90000  (the coordinator's bounds make it 60000)",
    ]
    assert run_command(["configs", "list", *AT, "--group", "billing", "--all"]) == 0
    assert "share.session.timeout.ms=45000  (default)" in capsys.readouterr().out


def test_a_description_of_an_ordered_group_says_what_waits(monkeypatch, capsys):
    awaited = AwaitedRecord(offset=7, tries=2, since_ms=0, until_ms=60_000)
    waiting = MemberDescription(member_id="m2", member_epoch=1, active=True, client_id="etl", waits=True)
    in_work = partition(1, waits_for=AwaitedRecord(offset=9, member_id="m1"))
    described = group(partition(waits_for=awaited), in_work, members=[waiting])
    known = SimpleNamespace(describe_groups=lambda _: {"billing": described})
    monkeypatch.setattr("sharegroup.groups.opened", lambda *_, **__: contextlib.nullcontext(known))
    assert run_command(["groups", *AT, "--describe", "--group", "billing"]) == 0
    assert capsys.readouterr().err.split("\n\n") == [
        "\n1 partition(s) wait: orders-0 for offset 7, released at 1970-01-01 00:00:00.000 UTC, 2 of 5 tries used "
        "up, delivered again from 1970-01-01 00:01:00.000 UTC on. sharegroup doctor says more.",
        "1 member(s) wait for partitions that others hold: etl (m2).\n",
    ]


def test_a_description_says_what_is_left_in_the_words_of_the_doctor(monkeypatch, capsys):
    rule, found_in, _ = CASES["query-slowed: nothing but records that came back is left"]
    page = InFlightPage(runs=found_in.runs, now_ms=found_in.now_ms)
    known = SimpleNamespace(describe_groups=lambda _: {"billing": found_in.description}, in_flight=lambda _: page)
    monkeypatch.setattr("sharegroup.groups.opened", lambda *_, **__: contextlib.nullcontext(known))
    assert run_command(["groups", *AT, "--describe", "--group", "billing"]) == 0
    (finding,) = rule(found_in)
    assert capsys.readouterr().err == f"\n{finding.what} sharegroup doctor says more.\n"


def test_a_run_behind_a_waiting_record_is_marked():
    text = " ".join(shown(in_flight.table("billing", [run(state="AVAILABLE", behind=7)], InFlightPage())))
    assert "waits for 7" in " ".join(text.split())


@pytest.fixture
def groups_known(monkeypatch):
    """The groups that the coordinators know, by state, for a `top` that has no broker."""
    admin = KnownGroups({"billing": "STABLE"}, partitions=(), members_total=0)
    monkeypatch.setattr(top, "opened", lambda *_: contextlib.nullcontext(admin))
    return admin.states


def test_top_of_a_missing_group_prints_one_line(groups_known, capsys):
    for more in (["--once"], ["--json"], []):
        said = mistake(["top", *AT, "--interval", "0.2", "--group", "billing", "--group", "biling", *more], capsys)
        assert said.startswith("sharegroup: GroupIdNotFound: Share group biling does not exist")


def test_a_group_that_is_deleted_stays_on_the_screen_as_dead(groups_known, monkeypatch, capsys):
    monkeypatch.setattr(top.time, "sleep", lambda _: groups_known.clear())
    assert run_command(["top", *AT, "--once", "--group", "billing"]) == 0
    assert re.search(r"^billing +Dead +0 ", capsys.readouterr().out, re.MULTILINE)


def test_a_group_deleted_during_a_look_has_nothing_in_flight(groups_known, capsys):
    known = top.opened().enter_result

    def in_flight_of(group_id, **_):
        raise GroupIdNotFound(group_id=group_id)

    known.in_flight = in_flight_of
    assert run_command(["top", *AT, "--once", "--interval", "0.2"]) == 0
    assert re.search(r"^billing +Stable .* -$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("part", [[], ["--state"], ["--in-flight"]])
def test_a_group_deleted_since_the_list_is_not_described(part, groups_known, monkeypatch, capsys):
    known, listed = top.opened().enter_result, ("billing", "gone")
    one_run = InFlightPage(runs=(run(),))

    def in_flight_of(group_id, **_):
        if group_id not in groups_known:
            raise GroupIdNotFound(group_id=group_id)
        return one_run

    known.list_groups = lambda **_: GroupsListed(groups=tuple(GroupListing(group_id=g, state="STABLE") for g in listed))
    known.in_flight, known.all_in_flight = in_flight_of, lambda group_id, **_: one_run.runs
    monkeypatch.setattr("sharegroup.groups.opened", lambda *_, **__: contextlib.nullcontext(known))
    assert run_command(["groups", *AT, "--describe", "--all-groups", "--json", *part]) == 0
    assert [each["group_id"] for each in json.loads(capsys.readouterr().out)] == ["billing"]
    assert "GroupIdNotFound: " in mistake(["groups", *AT, "--describe", "--group", "gone", *part], capsys)


def test_a_failed_look_keeps_the_lines_of_top_and_shows_the_error(groups_known):
    known = top.opened().enter_result
    looks = top.Looks(known)
    looks.look()

    def unreachable(**_):
        raise CoordinatorUnreachable(endpoints="host:9394", reason="connection refused")

    known.list_groups = unreachable
    said = "\n".join(shown(top.next_screen(looks)))
    assert re.search(r"^billing +Stable ", said, re.MULTILINE)
    assert "CoordinatorUnreachable: " in said
    del known.list_groups
    assert "Unreachable" not in "\n".join(shown(top.next_screen(looks)))


def test_json_of_top_has_the_states_that_json_of_groups_has(groups_known, capsys):
    groups_known["billing"] = "EMPTY"
    assert run_command(["top", *AT, "--interval", "0.2", "--json"]) == 0
    assert [each["state"] for each in json.loads(capsys.readouterr().out)] == ["EMPTY"]


def test_states_of_records_may_be_in_any_case():
    assert in_flight.record_states("acquired, IN_progress") == ("ACQUIRED", "IN_PROGRESS")
    assert in_flight.record_states(None) == ()


def test_the_states_that_the_command_takes_are_those_of_records():
    assert set(in_flight.RECORD_STATES) == set(RecordState.__members__)


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0"), (1.25, "1.2"), (9_999, "9999"), (12_000, "12k"), (3_400_000, "3.4M"), (10**13, "10T")],
)
def test_a_number_of_top_is_short(number, text):
    assert top.short(number) == text


def test_the_timeout_is_that_of_the_brokers_and_of_the_coordinator(monkeypatch, capsys):
    said = mistake(["groups", "--bootstrap-server", "127.0.0.1:1", "--list", "--timeout", "321"], capsys)
    assert "BrokerNotReachable: " in said
    assert "321 ms" in said

    class Answering:
        """A connection that keeps how long each call may wait."""

        def call(self, request, timeout_s, request_id):
            asked.append(timeout_s)
            return PlansListed()

        def close(self):
            """Does nothing: there is no connection."""

    asked = []
    monkeypatch.setenv(TOKEN_VARIABLE, "t" * 40)
    monkeypatch.setattr(Endpoints, "connect", lambda self, group_id="": Answering())
    with Admin({"share.coordinator.endpoint": "127.0.0.1:1"}, timeout_ms=321) as admin:
        admin.plans("billing")
    assert asked == [0.321]


class Refusing:
    """An action that is refused as many times as ``waits_ms`` says, each time for so long, and then done."""

    def __init__(self, *waits_ms):
        self.waits_ms = [*waits_ms]

    def __call__(self):
        if not self.waits_ms:
            return "done"
        raise MembersNotKnown(group_id="billing", members=1, wait_ms=self.waits_ms.pop(0), force="")


def test_an_action_waits_for_members_where_that_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(group_actions, "LOOK_MS", 10)
    with pytest.raises(MembersNotKnown):
        group_actions.asked({"wait": False}, Refusing(20_000))
    assert capsys.readouterr().err == ""
    assert group_actions.asked({"wait": True}, Refusing(20_000, 19_990)) == "done"
    told = "Waiting for members of billing that may be there: 20 s, twice as long at most (--wait).\n"
    assert capsys.readouterr().err == told


def test_an_action_that_is_refused_for_ever_is_not_waited_for_longer():
    refusing = Refusing(*[1] * 1_000)
    with pytest.raises(MembersNotKnown):
        group_actions.asked({"wait": True}, refusing)
    assert refusing.waits_ms


def test_every_option_of_groups_goes_with_an_action():
    taken = {name for names in group_options.TAKES.values() for name in names}
    others = {*group_options.EVERYWHERE, *(f"do_{action}" for action in group_options.ACTIONS)}
    assert {option.name for option in groups.params} == taken | others


@pytest.mark.parametrize(
    ("texts", "topics"),
    [
        (["orders", "orders:0"], {"orders": ()}),
        (["orders:0", "orders"], {"orders": ()}),
        (["orders:0", "orders:2,0", "payments"], {"orders": (0, 2), "payments": ()}),
    ],
)
def test_a_topic_that_is_named_twice_keeps_all_its_partitions(texts, topics):
    assert group_actions.topics_of(texts) == topics


@pytest.mark.parametrize("text", ["orders:", "orders:0,", ":0", "orders:-1"])
def test_a_topic_with_half_a_partition_is_refused(text):
    with pytest.raises(click.UsageError, match="Invalid topic arg"):
        group_actions.topics_of([text])
