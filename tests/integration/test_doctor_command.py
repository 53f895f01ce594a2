"""`sharegroup doctor` on a real broker: it names the cause of what is wrong with a group, and the way out.

Members of the client stand for queries: one that comes back to a batch which it began is a new process of its member.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import time

import pytest
from confluent_kafka import Producer

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan, StartPlan
from sharegroup import ShareConsumer
from sharegroup.__main__ import run
from tests.support.coordinator_process import kill_coordinators
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

LIMIT, HOUR_MS = 2, 3_600_000


class World:
    """A coordinator on demand, and members of groups, each on a topic of the group's name."""

    def __init__(self, kafka, closing):
        self.kafka, self._closing = kafka, closing
        self.client = closing.enter_context(contextlib.closing(CoordinatorClient.connect(kafka.bootstrap)))

    def query(self, group, **configs):
        """A process of the query m1; one before it is fenced."""
        session = MemberSession(self.client, group, "m1", topics=(group,), starting_offsets="earliest", configs=configs)
        self._closing.callback(session.close)
        return session

    def consumer(self, group, **configs):
        """A ShareConsumer that has the first record of its topic, and the record."""
        conf = {"bootstrap.servers": self.kafka.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        consumer = ShareConsumer({**conf, "share.auto.offset.reset": "earliest", "max.poll.records": "1", **configs})
        self._closing.callback(consumer.close)
        consumer.subscribe([group])
        return consumer, wait_until(lambda: consumer.poll(1.0), what="there is a record")[0]


@pytest.fixture(scope="module")
def world(kafka, runtime_dir):
    with contextlib.ExitStack() as closing:
        yield World(kafka, closing)
    kill_coordinators()


@pytest.fixture
def examined(world, capsys):
    """The findings of the doctor about a group, by rule, and the status that the command ends with."""

    def examine(group, *more):
        status = run(["doctor", "--bootstrap-server", world.kafka.bootstrap, "--group", group, "--json", *more])
        found = json.loads(capsys.readouterr().out)
        return {each["rule"]: each for each in found if each["group_id"] == group}, status

    return examine


def failing(world, group, records):
    """A query whose only record has failed until it failed alone; then more records arrive. The query, and its plan."""
    world.kafka.create_topic(group, partitions=1)
    world.kafka.produce(group, ["poison"])
    query = world.query(group, **{"share.delivery.count.limit": str(LIMIT)})
    plan = query.call(lambda who: NextPlan(**who, wait_ms=20_000)).plan.plan_id
    query.call(lambda who: StartPlan(**who, plan_id=plan))
    for _ in range(LIMIT):
        query = world.query(group)
        query.call(lambda who: StartPlan(**who, plan_id=plan))
    if records:
        world.kafka.produce(group, ["good"] * records)
    return query, plan


def complete_the_good_records(world, group, query, plan):
    """The query completes the batch of good records. The record that failed alone comes again before them where the
    coordinator does not know of them yet, and fails again."""
    while True:
        found = query.call(lambda who, start=plan: NextPlan(**who, start=start, wait_ms=20_000)).plan
        plan = found.plan_id
        query.call(lambda who, plan=plan: StartPlan(**who, plan_id=plan))
        if found.partitions[0].ranges[0].first:
            break
        query = world.query(group)
        query.call(lambda who, plan=plan: StartPlan(**who, plan_id=plan))
    query.call(lambda who: NextPlan(**who, start=plan))


def test_a_record_that_fails_always_is_named_with_its_stage(world, examined):
    query, plan = failing(world, "poison", records=5)
    complete_the_good_records(world, "poison", query, plan)
    found, status = examined("poison")
    assert "poison-0 offset 0 failed" in found["record-is-poison"]["what"]
    assert "query-has-no-evidence" not in found, "another batch has completed"
    assert status == 0


def test_a_member_that_holds_locks_and_does_nothing_is_named(world, examined):
    world.kafka.create_topic("idle", partitions=1)
    world.kafka.produce("idle", ["v"])
    world.consumer("idle", **{"client.id": "etl"})

    def named():
        return examined("idle", "--held-longer-than-ms", "1")[0].get("member-holds-too-long")

    finding = wait_until(named, what="the record has been held for a while")
    assert "has held 1 record(s)" in finding["what"] and "The longest held are idle-0 offset 0." in finding["what"]
    assert "--release-member --bootstrap-server" in finding["command"]


@pytest.mark.parametrize(
    ("name", "ahead", "told"),
    [
        pytest.param("fast", lambda now: now + 3 * HOUR_MS, " UTC, 3 h ahead of the clock", id="a clock that is fast"),
        pytest.param("micro", lambda now: now * 1000, " ms, microseconds taken for milliseconds", id="microseconds"),
    ],
)
def test_a_record_of_the_future_that_holds_up_others_is_named(world, examined, capsys, name, ahead, told):
    world.kafka.create_topic(name, partitions=1, message_timestamp_after_max_ms=2**62)
    old_ms = int(time.time() * 1000) - 2 * HOUR_MS
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap})
    for at_ms in (old_ms, ahead(int(time.time() * 1000)) + 9_000, old_ms):
        producer.produce(name, b"v", partition=0, timestamp=at_ms)
    assert producer.flush() == 0
    consumer, record = world.consumer(name, **{"share.delivery.delay.ms": str(HOUR_MS)})
    consumer.acknowledge(record)
    consumer.commit_sync()
    finding = examined(name)[0]["timestamp-ahead"]
    assert finding["what"].startswith(f"{name}-0 offset 1 has the timestamp ") and told in finding["what"]
    assert not consumer.poll(0.5)
    assert run(shlex.split(finding["command"])[1:]) == 0, capsys.readouterr()
    capsys.readouterr()
    assert len(wait_until(lambda: consumer.poll(1.0), what="the way out leads to the record")) == 1
    assert "timestamp-ahead" not in examined(name)[0]


def accept_one_of_eight(world, name):
    """A topic of eight records, and its group, whose only member accepted the first and left."""
    world.kafka.create_topic(name, partitions=1)
    world.kafka.produce(name, ["v"] * 8)
    consumer, record = world.consumer(name)
    consumer.acknowledge(record)
    consumer.close()


def test_a_group_without_consumers_is_named_with_or_without_a_coordinator(world, examined):
    accept_one_of_eight(world, "forsaken")
    found, status = examined("forsaken")
    waiting = "7 record(s) of forsaken-0 wait"
    assert found["nobody-consumes"]["what"] == f"The group has no member with a session, and {waiting}."
    assert status == 1
    told = wait_until(lambda: without_coordinators(examined), what="no coordinator runs at a look")
    assert told["what"].startswith(f"No coordinator of the group runs here; {waiting}")
    assert told["severity"] == "warning"
    assert "Start a query or a ShareConsumer" in told["do"]


def without_coordinators(examined):
    """The finding of a look in which no coordinator runs: members of other groups may start one again at any time."""
    kill_coordinators()
    finding = examined("forsaken")[0]["nobody-consumes"]
    return finding if "No coordinator" in finding["what"] else None
