"""`sharegroup groups` beside kafka-share-groups.sh's own class: a native group and one of ours with the same history
have the same columns, and the same values where the engine says so."""

from __future__ import annotations

import json
import re

import pytest
from confluent_kafka import ShareConsumer as NativeConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from coordinator.protocol.secret_files import TOKEN_VARIABLE
from share_source import AcknowledgeType, ShareConsumer
from sharegroup import Admin
from sharegroup.__main__ import run
from tests.support.command_line import LEAST, mistake
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.standalone import write_secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP, LIMIT = "billing", 12
"""The id of both groups, so that the widths of the columns are the same; the records of the history."""


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


@pytest.fixture(scope="module")
def lived():
    """A broker of its own, with a native group and one of ours of the same name and history; both have a member."""
    with KafkaBroker(heap="512m") as kafka:
        orders = kafka.create_topic("orders", partitions=2)
        for partition in range(2):
            kafka.produce(orders, [f"v{number}" for number in range(LIMIT // 2)], partition=partition)
        earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=[earliest])
        for altered in kafka.admin.incremental_alter_configs([resource]).values():
            altered.result()
        common = {
            "bootstrap.servers": kafka.bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit",
            "client.id": "etl",
        }  # fmt: skip
        native = NativeConsumer(common)
        ours = ShareConsumer({**common, "share.auto.offset.reset": "earliest"})
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


def heading(text):
    return next(line for line in text.splitlines() if line.startswith("GROUP")).split("  ")


def test_offsets_and_lag_are_those_of_the_native_group(lived, told):
    expected, ours = theirs(lived[0], "--describe", "--group", GROUP), told("--describe", "--group", GROUP)
    # The brokers tell the start offset as it was before their newest write; the lag is that of now.
    start = re.compile(r"^(billing +orders +\d +)\d( +\d)$", re.MULTILINE)
    assert start.sub(r"\1N\2", ours) == start.sub(r"\1N\2", expected)
    assert re.findall(r"^billing +orders +(\d) +(\d) +(\d)$", ours, re.MULTILINE) == [("0", "6", "0"), ("1", "3", "1")]
    verbose = told("--describe", "--group", GROUP, "--offsets", "--verbose")
    assert heading(verbose) == heading(theirs(lived[0], "--describe", "--group", GROUP, "--offsets", "--verbose"))


def test_lists_are_those_of_the_native_group(lived, told):
    assert told("--list") == theirs(lived[0], "--list") == f"{GROUP}\n"
    assert told("--list", "--state") == theirs(lived[0], "--list", "--state")
    assert told("--list", "--state", "Empty") == theirs(lived[0], "--list", "--state", "Empty")
    (listed,) = json.loads(told("--list", "--json"))
    assert (listed["group_id"], listed["state"]) == (GROUP, "STABLE")


@pytest.mark.parametrize("more", [["--members"], ["--members", "--verbose"], ["--state"], ["--state", "--verbose"]])
def test_members_and_state_have_the_columns_of_the_native_group(more, lived, told):
    expected, ours = (each("--describe", "--group", GROUP, *more) for each in (lambda *a: theirs(lived[0], *a), told))
    assert [part.strip() for part in heading(ours) if part] == [part.strip() for part in heading(expected) if part]
    assert ours.count("\n") == expected.count("\n")
    state = re.compile(r"Stable +(?:\S+ +\S+ +)?1$", re.MULTILINE)
    assert bool(state.search(ours)) == bool(state.search(expected)) == ("--state" in more)


def test_runs_in_flight_are_shown_with_what_holds_them(lived, told, capsys):
    assert "AVAILABLE" in told("--describe", "--group", GROUP, "--in-flight")
    assert "Nothing of billing is in flight as asked" in told(
        "--describe", "--all-groups", "--in-flight", "--state", "acquired"
    )
    (found,) = json.loads(told("--describe", "--group", GROUP, "--in-flight", "--json"))
    assert [
        (r["partition"], r["first"], r["state"], r["releases"]) for r in found["runs"] if r["state"] == "AVAILABLE"
    ] == [(1, 3, "AVAILABLE", 1)]


@pytest.mark.parametrize("command", [each for each in LEAST if "none" in LEAST[each]], ids=" ".join)
def test_a_wrong_group_is_one_line(command, lived, capsys):
    said = mistake([*command, "--bootstrap-server", lived[0].bootstrap, *LEAST[command]], capsys)
    assert said.startswith("sharegroup: GroupIdNotFound: Share group none")


@pytest.mark.parametrize("command", [each for each in LEAST if each[0] != "dlq"], ids=" ".join)
def test_a_token_that_is_missing_or_wrong_is_one_line(command, lived, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with Admin({"bootstrap.servers": lived[0].bootstrap}) as admin:
        served = f"share.coordinator.endpoint={admin.coordinator_of(GROUP).split()[0]}"
    at = ["--bootstrap-server", lived[0].bootstrap, "--command-property", served]
    assert "TokenMissing: " in mistake([*command, *at, *LEAST[command]], capsys)
    token = write_secret(tmp_path / "token", "x" * 40)
    at += ["--command-property", f"share.coordinator.token.file={token}"]
    said = mistake([*command, *at, *LEAST[command]], capsys)
    assert "NotAuthorized: " in said


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
        consumer.poll(0.5)
    assert run(["doctor", *at, "--json"]) == 1
    found = {each["rule"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(found) == {"group-in-two-stores", "start-offset-below-log-start", "start-offset-held-back"}
    assert (
        "The log of orders-0 begins at 8 and the group's start offset is 6"
        in found["start-offset-below-log-start"]["what"]
    )
    assert "in the stores kafka and sqlite:" in found["group-in-two-stores"]["what"]


def test_with_no_coordinator_the_state_topic_is_read_and_that_is_said(lived, capsys):
    lived[2].close()  # its next heartbeat would start another coordinator
    kill_coordinators()
    assert run(["groups", "--bootstrap-server", lived[0].bootstrap, "--describe", "--group", GROUP]) == 0
    read = capsys.readouterr()
    assert re.search(r"^billing +orders +1 +3 +", read.out, re.MULTILINE), read.out
    assert read.err.startswith("No coordinator runs: read from ")
