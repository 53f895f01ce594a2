"""Kafka's own tools read our state topic, and it says of each share partition what the group's description does; the
same history on a native share group leaves the same behind."""

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcquireRecords,
    DescribeGroup,
    MarkInProgress,
    NextPlan,
    PartitionAcks,
    PartitionProgress,
    ProgressBatch,
    StartPlan,
)
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from coordinator.state_log.placement import state_partition_of
from tests.support.kafka_log import messages_of
from tests.support.state_formatter import SNAPSHOT, UPDATE, advanced, printed, states
from tests.support.state_records import merged
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

GAP, ACCEPT, RELEASE, REJECT = range(4)
STATE_PARTITIONS = 50
NATIVE_STATE_TOPIC, NATIVE_STATE_PARTITIONS = "__share_group_state", 4


@pytest.fixture
def client(kafka, runtime):
    """Of a coordinator on demand of this test's own, with the Kafka store; a snapshot after each 5 appends."""
    configs = {"share.coordinator.snapshot.update.records.per.snapshot": "5"}
    client = CoordinatorClient.connect(kafka.bootstrap, configs=configs)
    yield client
    client.close()


@pytest.fixture
def join(client, unique):
    """Members of one group: `join(topic, "c1", query=False)`."""
    group_id, sessions = unique("group"), []

    def new(topic, member, **options):
        sessions.append(
            MemberSession(client, group_id, member, topics=(topic,), starting_offsets="earliest", **options)
        )
        return sessions[-1]

    yield new
    for session in sessions:
        session.close(leave=True)


def acknowledge(session, topic_id, batches, partition=0):
    """`batches`: (first, last, delivery count, type)."""
    acks = tuple(AckBatch(first=f, last=last, delivery_count=n, types=(kind,)) for f, last, n, kind in batches)
    partitions = (PartitionAcks(topic_id=topic_id, partition=partition, batches=acks),)
    assert session.call(lambda who: Acknowledge(**who, partitions=partitions)).errors == {}


def acquired(session, most):
    """By (partition, offset) the delivery count of what the member acquired."""
    found = session.call(lambda who: AcquireRecords(**who, max_records=most)).partitions
    return {(p.partition, at): r.delivery_count for p in found for r in p.ranges for at in range(r.first, r.last + 1)}


def without_locks(partition, runs):
    """The states of a described partition's records, as they would be if every lock were lost."""
    naive = {}
    for run in (run for run in runs if (run.topic_id, run.partition) == (partition.topic_id, partition.partition)):
        state, count = RecordState[run.state], run.delivery_count
        if state == RecordState.ACQUIRED:
            state, count = RecordState.AVAILABLE, count - 1
        elif state == RecordState.IN_PROGRESS:
            state = RecordState.AVAILABLE
        if (state, count) != (RecordState.AVAILABLE, 0):
            naive |= dict.fromkeys(range(run.first, run.last + 1), (state, count))
    return merged({at: said for at, said in naive.items() if at >= partition.start_offset})


def ours(kafka, group_id):
    """The lines that Kafka's formatter prints of the group, from its state partition, and the states that follow from
    them."""
    lines = printed(kafka, STATE_TOPIC, state_partition_of(group_id, STATE_PARTITIONS))
    mine = [line for line in lines if line["key"]["data"]["groupId"] == group_id]
    return mine, states(mine, group_id)


@pytest.mark.slow
def test_kafkas_formatter_prints_the_state_that_the_group_has(kafka, topic, client, join):
    name = topic(partitions=2)
    kafka.produce(name, [b"x"] * 40, partition=0)
    kafka.produce(name, [b"x"] * 10, partition=1)
    topic_id = kafka.topic_id(name)
    consumer = join(name, "c1", query=False, configs={"share.delivery.count.limit": "2"})
    query = join(name, "q1")

    first = query.call(lambda who: NextPlan(**who, max_records=14)).plan
    query.call(lambda who: StartPlan(**who, plan_id=first.plan_id))
    held = [
        (p.partition, r.first, r.last)
        for p in query.call(lambda who: NextPlan(**who, start=first.plan_id, max_records=9)).plan.partitions
        for r in p.ranges
    ]
    taken = acquired(consumer, 12)
    mine = sorted(at for partition, at in taken if partition == 0)
    for kind, at in zip((RELEASE, ACCEPT, ACCEPT, REJECT, GAP, RELEASE, RELEASE), mine, strict=False):
        acknowledge(consumer, topic_id, [(at, at, 1, kind)])
    assert len(mine) > 7
    signal = ProgressBatch(first=mine[-1], last=mine[-1], delivery_count=1, hint="half")
    signals = (PartitionProgress(topic_id=topic_id, partition=0, batches=(signal,)),)
    assert consumer.call(lambda who: MarkInProgress(**who, partitions=signals)).errors == {}
    # An acquisition begins with one partition, the next with the other: one of the two has a released record.
    again = acquired(consumer, 1) | acquired(consumer, 1)
    (partition, at), *_ = (key for key, count in again.items() if count == 2)
    acknowledge(consumer, topic_id, [(at, at, 2, RELEASE)], partition)  # at the limit

    described = client.call(DescribeGroup(group_id=consumer.group_id))
    everything = ListInFlight(group_id=consumer.group_id, states=tuple(RecordState.__members__))
    runs = client.call(everything).runs
    lines, found = ours(kafka, consumer.group_id)
    said = {run.state for run in runs}
    assert said == {"AVAILABLE", "ACQUIRED", "IN_PROGRESS", "ACKNOWLEDGED", "ARCHIVED"}, "all that there is"
    assert held
    assert {(p.topic_id, p.partition): (p.start_offset, without_locks(p, runs)) for p in described.partitions} == {
        where: (state.start_offset, state.state_batches) for where, state in found.items()
    }
    assert {line["key"]["type"] for line in lines} == {SNAPSHOT, UPDATE}
    assert max(state.snapshot_epoch for state in found.values()) > 1
    state_partition = state_partition_of(consumer.group_id, STATE_PARTITIONS)
    assert len(messages_of(kafka.bootstrap, STATE_TOPIC, partition=state_partition)) > len(lines), "ours are skipped"


# --- beside a native share group

EARLY, LATE = range(30), range(30, 40)


def outcome(offset, count):
    """The outcome of each delivery: records are done at once, or after several tries, given up, never done, or left at
    the end."""
    if offset == 17:
        return RELEASE  # until the delivery limit
    if offset in LATE:
        return (ACCEPT, RELEASE, RELEASE, REJECT)[offset % 4]
    if offset % 5 == 3 and count < 3:
        return RELEASE
    return (ACCEPT, ACCEPT if count > 1 else RELEASE, REJECT, ACCEPT, ACCEPT)[offset % 5]


def in_turns(offsets):
    """The later half is answered before the earlier one, and in it every second record first."""
    offsets = sorted(offsets)
    early, late = offsets[: len(offsets) // 2], offsets[len(offsets) // 2 :]
    return [turn for turn in (late[1::2], late[::2], early) if turn]


class NativeGroup:
    """A share group of the broker's own."""

    def __init__(self, kafka, group_id, topic):
        kafka.configure_group(group_id, share_auto_offset_reset="earliest")
        config = {"bootstrap.servers": kafka.bootstrap, "group.id": group_id, "log_level": 0}
        self.consumer = ShareConsumer({**config, "share.acknowledgement.mode": "explicit"})
        self.consumer.subscribe([topic])
        self.topic = topic

    def fetch(self):
        """By offset the delivery count of what was acquired."""
        messages = wait_until(lambda: list(self.consumer.poll(1.0)), what="records are delivered")
        return {message.offset(): message.delivery_count() for message in messages}

    def acknowledge(self, answers):
        """`answers`: by offset (delivery count, type)."""
        types = {ACCEPT: AcknowledgeType.ACCEPT, RELEASE: AcknowledgeType.RELEASE, REJECT: AcknowledgeType.REJECT}
        for offset, (_, kind) in answers.items():
            self.consumer.acknowledge_offset(self.topic, 0, offset, types[kind])
        assert not any(self.consumer.commit_sync(30.0).values())


@pytest.mark.slow
def test_a_native_share_group_with_the_same_history_ends_alike(kafka, topic, join, unique):
    name, group_id = topic(), unique("native")
    kafka.produce(name, [b"x"] * len(EARLY))
    topic_id = kafka.topic_id(name)
    native, session = NativeGroup(kafka, group_id, name), join(name, "c1", query=False)
    delivered = {}
    try:
        while delivered.get(17) != 5 or LATE[-1] not in delivered:
            if delivered.get(17) == 4:
                kafka.produce(name, [b"x"] * len(LATE))
            theirs = native.fetch()
            assert {at: count for (_, at), count in acquired(session, 500).items()} == theirs
            for turn in in_turns(theirs):
                answers = {at: (theirs[at], outcome(at, theirs[at])) for at in turn}
                native.acknowledge(answers)
                acknowledge(session, topic_id, [(at, at, *said) for at, said in sorted(answers.items())])
            delivered |= theirs
    finally:
        native.consumer.close()
    where = (topic_id, 0)
    native_partition = state_partition_of(f"{group_id}:{topic_id}:0", NATIVE_STATE_PARTITIONS)
    left = states(printed(kafka, NATIVE_STATE_TOPIC, native_partition), group_id)[where]
    ours_left = ours(kafka, session.group_id)[1][where]
    found = advanced(ours_left.start_offset, ours_left.state_batches)
    assert found == advanced(left.start_offset, left.state_batches)
    assert found.batches, "something is left to compare"


@pytest.mark.slow
def test_kafkas_formatter_reads_an_ordered_group_whose_first_record_waits(kafka, topic, client, join):
    name = topic()
    kafka.produce(name, [b"x"] * 20)
    topic_id = kafka.topic_id(name)
    consumer = join(
        name, "c1", query=False, configs={"share.order": "partition", "share.release.backoff.ms": "3600000"}
    )
    assert sorted(acquired(consumer, 10)) == [(0, at) for at in range(10)]
    acknowledge(consumer, topic_id, [(0, 2, 1, ACCEPT), (3, 3, 1, RELEASE), (4, 4, 1, ACCEPT)])
    assert acquired(consumer, 10) == {}, "the first record waits"
    described = client.call(DescribeGroup(group_id=consumer.group_id))
    (partition,) = described.partitions
    assert partition.waits_for is not None and partition.waits_for.offset == 3
    assert described.records.unaccounted == 0
    everything = ListInFlight(group_id=consumer.group_id, states=tuple(RecordState.__members__))
    _, found = ours(kafka, consumer.group_id)
    left = found[topic_id, 0]
    runs = client.call(everything).runs
    assert (left.start_offset, left.state_batches) == (3, without_locks(partition, runs))
