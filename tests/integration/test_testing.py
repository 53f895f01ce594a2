"""sharegroup.testing without Spark: what it tells of a ShareConsumer's records, and that nothing of it is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing

import psutil
import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import Acknowledge, AcquireRecords
from coordinator.protocol.option_errors import MissingOption
from sharegroup import AcknowledgeType, ShareConsumer
from sharegroup.testing import SOON, Record, broker, dead_letters, outcomes, produce, wait_until_done
from sharegroup.testing.errors import NotDone, NoTestBroker, RecordsNotKept
from tests.support.imports import ROOT, python_path
from tests.support.leftovers import OwnFolders
from tests.support.readme import run_test_files
from tests.support.running_service import acks
from tests.support.signals import hearing
from tests.support.waiting import wait_until

PAGE = "docs/do/test-your-query.md"
WITHOUT_SPARK = {
    "conftest.py": "Set up",
    "test_consumer.py": "A ShareConsumer",
    "test_service.py": "A service that fails",
}


@pytest.fixture(scope="module")
def address():
    with broker() as found:
        yield found


def consumer(address, group, **more):
    config = {
        "bootstrap.servers": address,
        "group.id": group,
        "share.auto.offset.reset": "earliest",
        "share.acknowledgement.mode": "explicit",
        **SOON,
        **more,
    }
    return closing(ShareConsumer(config))


def decide(member, topic, outcome_of, deliveries):
    """Acknowledge this number of deliveries of the topic's records; ``outcome_of`` gets the value."""
    member.subscribe([topic])
    seen = 0
    while seen < deliveries:
        for message in member.poll(1.0):
            seen += 1
            member.acknowledge(message, outcome_of(message.value()), **REASONS.get(message.value(), {}))
        assert not any(member.commit_sync().values())


REASONS = {b"bad": {"reason": "it is bad"}}


def outcome_of(value):
    named = {b"bad": AcknowledgeType.REJECT, b"busy": AcknowledgeType.RELEASE}
    return named.get(value, AcknowledgeType.ACCEPT)


def test_each_record_has_its_outcome_and_the_lost_ones_a_dead_letter(address, unique):
    topic, dead, group = unique("orders"), unique("dlq"), unique("group")
    given = [Record("good", partition=0), Record("bad", b"k", (("h", "v"),), 0), Record("busy", partition=1)]
    produce({topic: given, dead: []})
    with consumer(address, group, **{"errors.deadletterqueue.topic.name": dead}) as member:
        decide(member, topic, outcome_of, deliveries=2 + 5)
        wait_until_done(group, timeout_s=120)
    limit = "Offset delivery count exceeded the threshold."
    assert outcomes(group) == [
        (topic, 0, 0, None, b"good", "accepted", 1, ""),
        (topic, 0, 1, b"k", b"bad", "rejected", 1, "it is bad"),
        (topic, 1, 0, None, b"busy", "given up", 5, limit),
    ]
    bad, busy = dead_letters(group)
    assert (bad.key, bad.value, bad.record_headers, bad.message) == (b"k", b"bad", (("h", b"v"),), "it is bad")
    assert (bad.origin_topic, bad.origin_partition, bad.origin_offset) == (topic, 0, 1)
    assert (busy.value, busy.message, busy.delivery_count) == (b"busy", limit, 5)
    assert dead_letters(topic=dead) == [bad, busy]
    with pytest.raises(GroupIdNotFound):
        dead_letters(unique("group"), topic=dead)
    with pytest.raises(ValueError, match=f"topic {topic} has 3 records, but no dead letter"):
        dead_letters(topic=topic)
    with pytest.raises(TypeError, match="needs a group, as"):
        dead_letters()


def test_a_waiting_request_gets_a_released_record_when_it_is_due(address, unique):
    """The request is over before the coordinator would look again, and nobody changes the group meanwhile."""
    topic, configs = unique("orders"), {**SOON, "share.auto.offset.reset": "earliest"}
    produce({topic: [Record("a", partition=0)]})
    with closing(CoordinatorClient.connect(address, {"bootstrap.servers": address})) as client:
        session = MemberSession(client, unique("group"), "m", query=False, topics=(topic,), configs=configs)
        (part,) = session.call(lambda who: AcquireRecords(**who, max_records=1, wait_ms=5_000)).partitions
        release = acks(part.topic_id, 0, 0, AcknowledgeType.RELEASE)
        session.call(lambda who: Acknowledge(**who, partitions=release))
        (again,) = session.call(lambda who: AcquireRecords(**who, max_records=1, wait_ms=900)).partitions
        session.close(leave=True)
    assert [tuple(each) for each in again.ranges] == [(0, 0, 2)]


def test_records_that_are_left_are_named_with_state_and_last_event(address, unique):
    topic, group = unique("orders"), unique("group")
    produce({topic: [Record("good", partition=0), Record("busy", partition=0), Record("good", partition=1)]})
    waits = {"share.release.backoff.ms": 600_000, "share.release.backoff.max.ms": 600_000}
    with consumer(address, group, **waits) as member:
        decide(member, topic, outcome_of, deliveries=3)
        produce({topic: [Record("held", partition=2)]})
        while not member.poll(1.0):
            pass
        produce({topic: [Record("new", partition=1)] * 2})
        with pytest.raises(NotDone) as raised:
            wait_until_done(group, timeout_s=0)
        said = str(raised.value)
        assert "4 records are left; members with a session: 1" in said
        assert re.search(
            rf"{topic}-0 offset 1: AVAILABLE.*, not before [\d:]+ .*releases 1\), last event: released", said
        )
        assert re.search(
            rf"{topic}-2 offset 0: ACQUIRED by \S+ since [\d:]+ \(delivery 1\), last event: acquired", said
        )
        assert f"{topic}-1 offsets 1 to 2: never delivered" in said
        assert [each.value for each in outcomes(group)] == [b"good", b"good"]


def test_a_group_that_nobody_joined_is_named(address, unique):
    group = unique("group")
    with pytest.raises(NotDone, match=f"{group} is not done after 0 s: no query or ShareConsumer has joined it"):
        wait_until_done(group, timeout_s=0)
    for look in (outcomes, dead_letters):
        with pytest.raises(GroupIdNotFound, match=group):
            look(group)


def test_a_group_without_dead_letter_topic_is_named(address, unique):
    topic, group = unique("orders"), unique("group")
    produce({topic: ["bad"]})
    with consumer(address, group) as member:
        decide(member, topic, outcome_of, deliveries=1)
    assert [(each.outcome, each.reason) for each in outcomes(group)] == [("rejected", "")]
    with pytest.raises(MissingOption, match="or a group that has one"):
        dead_letters(group)


def test_records_before_the_groups_beginning_have_no_outcome(address, unique):
    topic, group = unique("orders"), unique("group")
    produce({topic: [Record("old", partition=0)]})
    with consumer(address, group, **{"share.auto.offset.reset": "latest"}) as member:
        member.subscribe([topic])
        assert member.poll(0) is not None
        wait_until_done(group, timeout_s=120)
        produce({topic: [Record("new", partition=0)]})
        decide(member, topic, outcome_of, deliveries=1)
    assert [(each.offset, each.value) for each in outcomes(group)] == [(1, b"new")]


def test_two_brokers_know_nothing_of_each_other(address):
    with broker({"orders": ["a"]}) as other:
        for each in (address, other):
            produce({"orders": ["b"]}, address=each)
            with consumer(each, "billing") as member:
                decide(member, "orders", outcome_of, deliveries=1 + (each == other))
            wait_until_done("billing", timeout_s=120, address=each)
        assert [each.value for each in outcomes("billing", address=address)] == [b"b"]
        assert [each.value for each in outcomes("billing", address=other)] == [b"a", b"b"]
        with pytest.raises(NoTestBroker, match=rf"several run \({address}, {other}\).* name one of them"):
            outcomes("billing")


def test_transactions_and_deletions_are_refused(address, unique):
    producer = Producer({"bootstrap.servers": address, "transactional.id": unique("t"), "log_level": 0})
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        producer.init_transactions(60)
    topic, admin = unique("orders"), AdminClient({"bootstrap.servers": address})
    produce({topic: ["a"]})
    for answers in (admin.delete_topics([topic]), admin.delete_records([TopicPartition(topic, 0, 1)])):
        with pytest.raises(KafkaException, match="UNSUPPORTED_FEATURE"):
            next(iter(answers.values())).result(60)


@pytest.mark.parametrize(
    ("records", "said"),
    [(["a" * 3_000_000], "too large"), ([Record("a" * 900_000, partition=0)] * 9, r"begin at offsets \[\d, 0, 0, 0\]")],
)
def test_records_that_the_broker_does_not_keep_are_an_error(address, unique, records, said):
    with pytest.raises(RecordsNotKept, match=said):
        produce({unique("orders"): records})


# --- nothing is left


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """This process, and those that it starts, have a runtime and a temporary folder of the test's own."""
    found = OwnFolders(tmp_path)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(found.temporary))
    return found


def test_nothing_is_left_after_a_failure(folders):
    before = psutil.Process().children()
    with ExitStack() as ends:
        with pytest.raises(ZeroDivisionError), broker({"orders": ["a"]}) as address:
            member = ends.enter_context(consumer(address, "billing"))  # and nobody closes it within the block
            member.subscribe(["orders"])
            (message,) = wait_until(lambda: member.poll(0.1), what="the member has joined, and its record comes")
            member.acknowledge(message)
            assert len(folders.processes()) == 2, "the coordinator, and the process that cleans up"
            raise ZeroDivisionError
        assert (folders.processes(), folders.files()) == ([], [])
        assert psutil.Process().children() == before
        with pytest.raises(OSError):
            socket.create_connection(("localhost", int(address.partition(":")[2])), 5)
        with pytest.raises(KafkaException, match="in memory, and has ended"):
            while True:
                member.poll(0.1)
    assert (folders.processes(), folders.files()) == ([], [])


PROGRAM = """
import select, sys
from sharegroup.demo.local_broker import local_broker
from sharegroup.testing import broker

with {block}:
    print("up", flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:  # a signal just before one long wait would not end it
        pass
"""
SERVING, STARTING = PROGRAM.format(block="broker({'a': ['b']})"), PROGRAM.format(block="local_broker()")


@pytest.mark.parametrize(
    ("program", "number"),
    [
        pytest.param(SERVING, signal.SIGKILL, id="killed"),
        pytest.param(SERVING, signal.SIGINT, id="interrupted"),
        pytest.param(STARTING, signal.SIGKILL, id="killed while the coordinator starts"),
    ],
)
def test_nothing_is_left_of_a_killed_program(folders, program, number):
    with hearing(signal.SIGINT):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
    with process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        process.wait(120)
    wait_until(lambda: not folders.are_left, what="no process and no file is left")


@pytest.mark.slow
def test_the_pages_programs_without_spark_pass_side_by_side(folders, tmp_path):
    env = {"PYTHONPATH": str(ROOT)}
    run_test_files(PAGE, WITHOUT_SPARK, tmp_path, env, "-n", "2", "--basetemp", str(tmp_path / "base"))
    assert not folders.are_left
