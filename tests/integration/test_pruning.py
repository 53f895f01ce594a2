"""Pruning deletes what no group of a state partition needs, whoever serves it, and never more."""

import uuid

import pytest
from confluent_kafka import Producer

from coordinator.core.commands import CreateGroup
from coordinator.core.log_records import GroupCreated, MemberJoined, PartitionInitialized, TopicRegistered
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import encode_records
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import GroupTakenOver
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.open_state import _only_load
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.pruning import FAR_BACK, Pruning
from coordinator.state_log.group_log import GroupLog
from coordinator.state_log.owner_record import encode_owner
from coordinator.state_log.record_keys import GroupOwnerKey, GroupRecordKey, encode_key
from coordinator.state_log.retention import JUST_TAKEN
from coordinator.state_log.value_version import versioned
from tests.support.state_records import TOPIC_ID
from tests.support.state_topics import in_mid_write, owner, taken
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

NOW_MS = 1_000_000
NEVER_MS = 24 * 3_600_000


@pytest.fixture
def prune(log_topic):
    """A function that prunes a store's partition once: ``prune(store)``."""
    made = {}

    def prune_once(*stores, waits=True, wake=None):
        if stores not in made:
            made[stores] = Pruning(log_topic, lambda: list(stores), interval_ms=NEVER_MS, wake=wake)
        # A commit is answered before its marker is written: until then nothing behind it counts.
        if waits:
            wait_until(lambda: end(log_topic, read_committed=True) == end(log_topic), what="all is committed")
        made[stores].prune()
        return log_start(log_topic)

    yield prune_once
    for pruning in made.values():
        pruning.close()


def log_start(log_topic):
    return log_topic.cluster.offsets([(log_topic.name, 0)], EARLIEST)[log_topic.name, 0]


def end(log_topic, **level):
    return log_topic.cluster.offsets([(log_topic.name, 0)], LATEST, **level)[log_topic.name, 0]


def needed(store, group_id):
    return store._open[group_id].log.needed_offset


def as_loaded(records):
    """The records that a load returns: a snapshot begins anew."""
    found = []
    for _, data in records:
        found = [] if data is None else [*found, data]
    return found


def test_records_below_every_groups_snapshot_are_pruned_and_all_groups_load(open_at, prune, log_topic):
    store = open_at()
    groups = ("billing", "shipping")
    for group_id in groups:
        taken(store, group_id)
    append(store, {group_id: [b"a", b"b"] for group_id in groups})
    assert prune(store) == min(needed(store, group_id) for group_id in groups), (
        "the owner records come again with these"
    )
    snapshot(store, "billing", [b"s"])
    append(store, {"billing": [b"c"]})
    assert prune(store) <= needed(store, "shipping"), "the other group still needs its records"
    snapshot(store, "shipping", [b"t"])
    append(store, {"shipping": [b"d"]})
    assert prune(store) == needed(store, "billing")
    after = open_at()
    assert as_loaded(after.peek("billing")) == [b"s", b"c"]
    assert as_loaded(after.peek("shipping")) == [b"t", b"d"]
    taken(after), taken(after, "shipping")
    append(after, {"billing": [b"e"], "shipping": [b"f"]})
    assert as_loaded(open_at().peek("billing")) == [b"s", b"c", b"e"]


def test_records_that_another_processs_group_needs_are_kept(open_at, prune, log_topic):
    mine, theirs = open_at("one"), open_at("two")
    taken(theirs, "shipping")
    append(theirs, {"shipping": [b"x"]})
    taken(mine)
    append(mine, {"billing": [b"a"]})
    snapshot(mine, "billing", [b"s"])
    assert prune(mine) <= needed(theirs, "shipping")
    assert as_loaded(open_at().peek("shipping")) == [b"x"]
    snapshot(theirs, "shipping", [b"y"])
    assert prune(mine) == needed(mine, "billing"), "what the other process has written since counts"
    assert as_loaded(open_at().peek("shipping")) == [b"y"]


def test_uncommitted_records_count_as_needed(open_at, prune, log_topic):
    store = open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    writer = GroupWriter(log_topic, 0, "shipping")
    writer.fence()
    in_mid_write(writer, encode_key(GroupRecordKey("shipping", 0)), versioned(b"x"))
    snapshot(store, "billing", [b"s"])
    prune(store, waits=False)
    writer._producer.commit_transaction(30)
    assert as_loaded(open_at().peek("shipping")) == [b"x"]
    assert prune(store) < needed(store, "billing"), "the other group's record lies before it"
    writer.close()


@pytest.mark.parametrize("was_deleted", [False, True])
def test_a_group_taken_long_before_its_first_record_is_loaded_and_owned(open_at, prune, was_deleted):
    store, other = open_at("one"), open_at("two")
    taken(store)
    if was_deleted:
        append(store, {"billing": [b"a"]})
        snapshot(store, "billing", [])
        taken(store)
    taken(other, "busy")
    append(other, {"busy": [b"%d" % number for number in range(JUST_TAKEN)]})
    snapshot(other, "busy", [b"s"])
    assert prune(other) == needed(other, "busy"), "billing's own records are gone"
    append(store, {"billing": [b"b"]})
    append(store, {"billing": [b"c"]})
    assert prune(other) == needed(other, "busy")
    with pytest.raises(GroupTakenOver, match="the coordinator on one"):
        taken(other, claim=False)
    assert as_loaded(open_at().peek("billing")) == [b"b", b"c"]


def test_a_group_whose_old_snapshot_blocks_pruning_gets_a_new_snapshot(open_at, prune, log_topic):
    store, other = open_at("one"), open_at("two")
    runtime = CoordinatorRuntime(store)
    group_id, foreign = f"quiet-{uuid.uuid4().hex[:8]}", "foreign"

    def step(transaction):
        answer = runtime.submit(group_id, transaction, Access.CLAIM)
        runtime.step(1_000_000)
        return answer.result(0)

    step(one(CreateGroup(incarnation="i", topic_ids=True)))
    taken(other, foreign)
    append(other, {foreign: [b"x"]})
    before = needed(store, group_id)
    taken(other, "busy")
    append(other, {"busy": [b"%d" % number for number in range(FAR_BACK)]})
    snapshot(other, "busy", [b"s"])
    prune(store)
    assert store.holding_back == {group_id, foreign}
    runtime.step(1_000_001)
    assert store.holding_back == {foreign}, "it is served elsewhere, and is not this process's to write"
    assert needed(store, group_id) > before + FAR_BACK
    assert prune(store) <= needed(other, foreign)
    snapshot(other, foreign, [b"y"])
    assert prune(store) == needed(other, "busy")
    assert runtime.groups[group_id].exists
    assert as_loaded(open_at("one").peek(group_id))


def test_a_standalone_coordinator_loads_an_abandoned_group_for_pruning(open_at, prune):
    before, store = open_at(), open_at()
    taken(before, "abandoned")
    append(before, {"abandoned": encode_records([GroupCreated(incarnation="i", topic_ids=True)])})
    taken(store, "busy")
    append(store, {"busy": [b"%d" % number for number in range(FAR_BACK)]})
    snapshot(store, "busy", [b"s"])
    runtime = CoordinatorRuntime(store)

    def load(group_id):
        answer = runtime.submit(group_id, only_load)
        runtime.step(1_000_000)
        return answer.result(0)

    def only_load(group):
        assert group.exists
        yield from ()

    prune(store, wake=load)
    assert needed(store, "abandoned") > needed(store, "busy"), "a new snapshot, written when it was woken"
    assert prune(store) == needed(store, "busy")


def dormant(kafka, log_topic, count):
    """Groups whose coordinator left after a snapshot: each one's mark, owner and records, as one writes them."""
    made = ShareGroup("")
    replay(made, GroupCreated(incarnation="i", topic_ids=True))
    replay(made, TopicRegistered(topic="orders", topic_id=TOPIC_ID))
    replay(made, PartitionInitialized(topic_id=TOPIC_ID, partition=0, start_offset=0))
    for member in ("m1", "m2"):
        replay(made, MemberJoined(member_id=member, member_epoch=1, process_id="p"))
    records = encode_records(snapshot_of(made))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(count):
        log = GroupLog(f"dormant-{number}", updates_per_snapshot=500)
        entries = [log.snapshot_mark(0), (encode_key(GroupOwnerKey(log.group_id)), encode_owner(owner()))]
        for key, value in [*entries, *log.keyed(records, 0)]:
            producer.produce(log_topic.name, partition=0, key=key, value=value)
    producer.flush()


class Coordinator:
    """A standalone coordinator's part of one partition, step by step. ``most_served``: how many groups it had loaded at
    once."""

    def __init__(self, store):
        self.store, self.runtime, self.loads, self.most_served = store, CoordinatorRuntime(store), 0, 0

    def wake(self, group_id):
        answer = self.runtime.submit(group_id, _only_load, Access.UPKEEP)
        self.runtime.step(NOW_MS)
        answer.result(0)
        self.loads += 1
        self.most_served = max(self.most_served, len(self.store.served))


def test_a_partition_of_dormant_groups_comes_to_rest(kafka, open_at, prune, log_topic):
    """They need more than FAR_BACK records, and none of these could be deleted: nothing is loaded or written."""
    dormant(kafka, log_topic, 150)
    store = open_at()
    coordinator = Coordinator(store)
    before = end(log_topic)
    assert before > FAR_BACK
    for _ in range(2):
        prune(store, wake=coordinator.wake)
        coordinator.runtime.step(NOW_MS)
    assert (end(log_topic), coordinator.loads) == (before, 0)
