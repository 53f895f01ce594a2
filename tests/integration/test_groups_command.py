"""`sharegroup groups` beside kafka-share-groups.sh's own class: a native group and one of ours with the same history
have the same columns, and the same values where the engine says so."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket

import pytest
from confluent_kafka import ShareConsumer as NativeConsumer

from coordinator.config.secret_files import TOKEN_VARIABLE
from sharegroup import AcknowledgeType, Admin, ShareConsumer
from sharegroup.__main__ import run
from tests.support.command_line import LEAST, mistake
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.standalone import write_secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP, LIMIT = "billing", 12
"""The id of both groups, so that the columns have the same widths; the number of records in the history."""


def history(consumer, topic):
    """Accept all records but one, which is released and comes again, and hold that one."""
    consumer.subscribe([topic])
    left = {(partition, offset) for partition in range(2) for offset in range(LIMIT // 2)}

    def done():
        for message in consumer.poll(1.0):
            at = (message.partition(), message.offset())
            if at == (1, 3):
                left.discard(at)
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                left.discard(at)
                consumer.acknowledge(message)
        return not left

    wait_until(done, what="the history is over")
    consumer.commit_sync()


def consumers(kafka, group_id):
    """A member of a native group and one of ours, both groups from the first record on."""
    kafka.configure_group(group_id, share_auto_offset_reset="earliest")
    common = {
        "bootstrap.servers": kafka.bootstrap, "group.id": group_id, "share.acknowledgement.mode": "explicit",
        "client.id": "etl", "max.poll.interval.ms": "3600000",
    }  # fmt: skip
    return NativeConsumer(common), ShareConsumer({**common, "share.auto.offset.reset": "earliest"})


@pytest.fixture(scope="module")
def lived():
    """A broker of its own, with a native group and one of ours of the same name and history; both have a member."""
    with KafkaBroker(heap="512m") as kafka:
        orders = kafka.create_topic("orders", partitions=2)
        for partition in range(2):
            kafka.produce(orders, [f"v{number}" for number in range(LIMIT // 2)], partition=partition)
        native, ours = consumers(kafka, GROUP)
        history(native, orders)
        history(ours, orders)
        yield kafka, native, ours
        native.close()
        ours.close()


def theirs(kafka, *arguments):
    return kafka.run_tool(GROUPS, "--bootstrap-server", kafka.bootstrap, *arguments)


@pytest.fixture
def told(lived, capsys):
    """The output of our command, with status 0."""

    def tell(*arguments):
        assert run(["groups", "--bootstrap-server", lived[0].bootstrap, *arguments]) == 0
        return capsys.readouterr().out

    return tell


def rows(text):
    """The rows of a table, each by its headings, in the order of the columns."""
    head, *lines = filter(None, text.splitlines())
    columns = [(found.group(), found.start()) for found in re.finditer(r"\S+(?: \S+)*", head)]
    ends = [start for _, start in columns[1:]] + [None]
    return [{name: line[start:end].strip() for (name, start), end in zip(columns, ends, strict=True)} for line in lines]


def values(row, *headings):
    return [row[heading] for heading in headings]


@pytest.mark.slow
def test_offsets_and_lag_are_those_of_the_native_group(lived, told):
    expected, ours = theirs(lived[0], "--describe", "--group", GROUP), told("--describe", "--group", GROUP)
    # The brokers tell the start offset as it was before their newest write; the lag is that of now.
    start = re.compile(r"^(billing +orders +\d +)\d( +\d)$", re.MULTILINE)
    assert start.sub(r"\1N\2", ours) == start.sub(r"\1N\2", expected)
    assert re.findall(r"^billing +orders +(\d) +(\d) +(\d)$", ours, re.MULTILINE) == [("0", "6", "0"), ("1", "3", "1")]
    more = ("--describe", "--group", GROUP, "--offsets", "--verbose")
    assert [[*row] for row in rows(told(*more))] == [[*row] for row in rows(theirs(lived[0], *more))]


def test_lists_are_those_of_the_native_group(lived, told):
    assert told("--list") == theirs(lived[0], "--list") == f"{GROUP}\n"
    assert told("--list", "--state") == theirs(lived[0], "--list", "--state")
    assert told("--list", "--state", "Empty") == theirs(lived[0], "--list", "--state", "Empty")
    (listed,) = json.loads(told("--list", "--json"))
    assert (listed["group_id"], listed["state"]) == (GROUP, "STABLE")


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--verbose"]])
def test_members_are_those_of_the_native_group(more, lived, told):
    """An id and an epoch are each engine's own. HOST: brokers tell the address that they see, a coordinator the name
    that the member's host has, and its process."""
    described = ("--describe", "--group", GROUP, "--members", *more)
    (native,), (ours,) = rows(theirs(lived[0], *described)), rows(told(*described))
    assert [*ours] == [*native]
    same = ("GROUP", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    assert values(ours, *same) == values(native, *same) == [GROUP, "etl", "2", "orders:0,1"]
    assert (native["HOST"], ours["HOST"]) == ("/127.0.0.1", f"{socket.gethostname()} ({os.getpid()})")
    for each in (native, ours):
        assert re.fullmatch(r"[\w+/-]{22,32}", each["CONSUMER-ID"])
        assert ("MEMBER-EPOCH" in each) is bool(more)
        assert int(each.get("MEMBER-EPOCH", 1)) > 0


@pytest.mark.parametrize("more", [pytest.param([], marks=pytest.mark.slow), ["--verbose"]])
def test_the_state_is_that_of_the_native_group(more, lived, told):
    """The coordinators and their epochs are each engine's own."""
    described = ("--describe", "--group", GROUP, "--state", *more)
    (native,), (ours,) = rows(theirs(lived[0], *described)), rows(told(*described))
    assert [*ours] == [*native]
    same = ("GROUP", "STATE", "#MEMBERS")
    assert values(ours, *same) == values(native, *same) == [GROUP, "Stable", "1"]
    for each in (native, ours):
        assert re.fullmatch(r"[\w.-]+:\d+  \(\d+\)", each["COORDINATOR (ID)"])
        assert ("GROUP-EPOCH" in each) is ("ASSIGNMENT-EPOCH" in each) is bool(more)
        assert all(int(each.get(name, 1)) > 0 for name in ("GROUP-EPOCH", "ASSIGNMENT-EPOCH"))


def test_runs_in_flight_are_listed_by_state_and_as_json(lived, told, capsys):
    assert "AVAILABLE" in told("--describe", "--group", GROUP, "--in-flight")
    assert "Nothing of billing is in flight as asked" in told(
        "--describe", "--all-groups", "--in-flight", "--state", "acquired"
    )
    (found,) = json.loads(told("--describe", "--group", GROUP, "--in-flight", "--json"))
    assert [
        (r["partition"], r["first"], r["state"], r["releases"]) for r in found["runs"] if r["state"] == "AVAILABLE"
    ] == [(1, 3, "AVAILABLE", 1)]


@pytest.mark.parametrize(
    "command", [each for each in LEAST if "none" in LEAST[each] and "import" not in each], ids=" ".join
)
def test_an_unknown_group_prints_one_line(command, lived, capsys):
    said = mistake([*command, "--bootstrap-server", lived[0].bootstrap, *LEAST[command]], capsys)
    assert said.startswith("sharegroup: GroupIdNotFound: Share group none")


@pytest.mark.parametrize("command", [each for each in LEAST if each[0] != "dlq"], ids=" ".join)
def test_a_missing_or_wrong_token_prints_one_line(command, lived, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with Admin({"bootstrap.servers": lived[0].bootstrap}) as admin:
        port = admin.coordinator_of(GROUP).split()[0].rpartition(":")[2]
    served = f"share.coordinator.endpoint=127.0.0.1:{port}"
    at = ["--bootstrap-server", lived[0].bootstrap, "--command-property", served]
    assert "TokenMissing: " in mistake([*command, *at, *LEAST[command]], capsys)
    token = write_secret(tmp_path / "token", "x" * 40)
    at += ["--command-property", f"share.coordinator.token.file={token}"]
    said = mistake([*command, *at, *LEAST[command]], capsys)
    assert "NotAuthorized: " in said


@pytest.mark.parametrize("command", [each for each in LEAST if "--topic" in LEAST[each]], ids=" ".join)
def test_an_unknown_topic_prints_one_line(command, lived, capsys):
    arguments = [{"orders": "none", "dlq": "none"}.get(each, each) for each in LEAST[command]]
    said = mistake([*command, "--bootstrap-server", lived[0].bootstrap, *arguments], capsys)
    assert said.startswith("sharegroup: UnknownTopic: ")


def test_the_doctor_and_the_live_screen_see_the_group(lived, capsys):
    kafka = lived[0]
    at = ["--bootstrap-server", kafka.bootstrap]
    assert run(["doctor", *at, "--group", GROUP]) == 0
    assert "note  The start offset of orders-1 stays at 3, and 2 later" in capsys.readouterr().out
    assert run(["top", *at, "--once", "--interval", "0.2"]) == 0
    assert re.search(r"^billing +Stable +1 +1 +0 +0 +0 +0 +0 +-", capsys.readouterr().out, re.MULTILINE)
    kafka.produce("orders", ["v"] * 4, partition=0)
    kafka.delete_records("orders", 8)
    other = {"bootstrap.servers": kafka.bootstrap, "group.id": GROUP, "share.state.store": "sqlite"}
    with ShareConsumer(other) as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.5).count() or consumer._membership.joined, what="the group is in both")
    assert run(["doctor", *at, "--json"]) == 1
    found = {each["rule"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(found) == {"group-in-two-stores", "start-offset-below-log-start", "start-offset-held-back"}
    assert (
        "The log of orders-0 begins at 8 and the group's start offset is 6"
        in found["start-offset-below-log-start"]["what"]
    )
    assert "in the stores kafka and sqlite:" in found["group-in-two-stores"]["what"]


@pytest.fixture(scope="module")
def left(lived):
    """The id of a native group and one of ours with the same history that all members have left."""
    kafka, group_id = lived[0], "audit"
    events = kafka.create_topic("events", partitions=2)
    for partition in range(2):
        kafka.produce(events, [f"v{number}" for number in range(LIMIT // 2)], partition=partition)
    for consumer in consumers(kafka, group_id):
        with contextlib.closing(consumer):
            history(consumer, events)
    return group_id


@pytest.mark.slow
def test_resets_are_those_of_the_native_group(left, lived, told):
    """Kafka's tool wants --dry-run or --execute; ours takes neither for a dry run, which is not compared."""
    started = ("--describe", "--group", left)
    reset = ("--reset-offsets", "--group", left, "--all-topics")
    for more, offsets in (
        (("--to-earliest", "--dry-run"), "63"),
        (("--to-latest", "--execute"), "66"),
        (("--to-datetime", "2020-01-01T00:00:00.000", "--execute"), "00"),
        (("--to-latest", "--dry-run"), "00"),
        (("--to-earliest", "--execute"), "00"),
    ):
        assert rows(told(*reset, *more)) == rows(theirs(lived[0], *reset, *more))
        assert "".join(row["START-OFFSET"] for row in rows(told(*started))) == offsets
    assert rows(told(*started)) == rows(theirs(lived[0], *started))


@pytest.mark.slow
def test_deletions_are_those_of_the_native_group(left, lived, told):
    """Kafka's tool has no dry run of a deletion, so that of ours is not compared."""
    of_topic = ("--delete-offsets", "--group", left, "--topic", "events")
    deleted = rows(told(*of_topic))
    assert deleted == rows(theirs(lived[0], *of_topic)) == [{"TOPIC": "events", "STATUS": "Successful"}]
    started = ("--describe", "--group", left)
    assert told(*started) == theirs(lived[0], *started)
    assert told("--delete", "--group", left) == theirs(lived[0], "--delete", "--group", left)
    assert left not in told("--list") + theirs(lived[0], "--list")


def test_without_a_coordinator_the_state_topic_is_read_and_named(lived, capsys):
    lived[2].close()  # its next heartbeat would start another coordinator
    kill_coordinators()
    assert run(["groups", "--bootstrap-server", lived[0].bootstrap, "--describe", "--group", GROUP]) == 0
    read = capsys.readouterr()
    assert re.search(r"^billing +orders +1 +3 +", read.out, re.MULTILINE), read.out
    assert read.err.startswith("No coordinator answers: read from ")
