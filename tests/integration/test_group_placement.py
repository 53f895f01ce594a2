"""Groups are placed among the partitions that the state topic had at first, whatever is configured or added later."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.protocol.errors import StateTopicUnfit
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.kafka.partition_count import prepared
from coordinator.service.stores.kafka.pruning import Pruning
from coordinator.state_log.placement import state_partition_of
from tests.support.state_topics import owner, state_topic, taken
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

NEVER_MS = 24 * 3_600_000
GROUP = next(f"billing-{n}" for n in range(100) if state_partition_of(f"billing-{n}", 3) not in (0, 1))
"""The group's state partition among 1, 2 or 4 differs from that among 3."""


@pytest.fixture
def store_of():
    """`store_of(topic, group_id)`: the store in which a coordinator looks for the group."""
    opened = []

    def new(topic, group_id=GROUP):
        partition = state_partition_of(group_id, topic.partitions)
        opened.append(KafkaStore(topic, partition, LivingOwner(owner("host")), updates_per_snapshot=500))
        return opened[-1]

    yield new
    for store in opened:
        store.close()


def begun(store, group_id=GROUP):
    taken(store, group_id)
    append(store, {group_id: [b"a"]})
    return store


@pytest.mark.slow
@pytest.mark.parametrize("configured", [1, 3, 4, 50])
def test_a_group_is_found_after_partitions_were_added_under_any_configuration(kafka, store_of, configured):
    topic = prepared(state_topic(kafka, partitions=3))
    begun(store_of(topic))
    kafka.add_partitions(topic.name, 4)
    later = prepared(state_topic(kafka, topic.name, configured))
    assert later.partitions == 3
    assert taken(store_of(later), GROUP) == [b"a"]


def test_a_state_topic_with_another_number_of_partitions_is_used_as_is(kafka):
    name = kafka.create_topic(f"{state_topic(kafka).name}-made", 2, retention_ms=-1, max_message_bytes=16 * 1024 * 1024)
    assert prepared(state_topic(kafka, name, 50)).partitions == 2
    assert prepared(state_topic(kafka, name, 1)).partitions == 2


def test_coordinators_that_start_at_once_with_different_settings_agree(kafka):
    name = state_topic(kafka).name
    with ThreadPoolExecutor(4) as several:
        found = list(several.map(lambda number: prepared(state_topic(kafka, name, number)).partitions, (2, 3, 4, 5)))
    assert len(set(found)) == 1


def forgotten(kafka, topic):
    """A state topic whose placement record was deleted by hand."""
    kafka.delete_records(topic.name, topic.offset(0, LATEST))
    return topic.name


def test_without_a_placement_record_a_group_in_another_partition_is_named(kafka, store_of):
    topic = prepared(state_topic(kafka, partitions=3))
    begun(store_of(topic))
    kafka.add_partitions(topic.name, 4)
    name = forgotten(kafka, topic)
    with pytest.raises(StateTopicUnfit, match=rf"share group {GROUP} lies in its partition .* among 4 partitions"):
        prepared(state_topic(kafka, name, 50))
    assert prepared(state_topic(kafka, name, 3)).partitions == 3
    assert taken(store_of(prepared(state_topic(kafka, name, 50))), GROUP) == [b"a"], "it is written down again"


def test_pruning_keeps_the_placement_record(kafka, store_of):
    topic = prepared(state_topic(kafka, partitions=3))
    zero = next(f"g-{n}" for n in range(100) if not state_partition_of(f"g-{n}", 3))
    store = begun(store_of(topic, zero), zero)
    kafka.add_partitions(topic.name, 4)
    pruning = Pruning(topic, lambda: [store], interval_ms=NEVER_MS)
    try:
        for _ in range(3):
            snapshot(store, zero, [b"s"])
            needed = store._open[zero].log.needed_offset

            def pruned(needed=needed):
                pruning.prune()
                return topic.offset(0, EARLIEST) == needed

            wait_until(pruned, what="what lies before the snapshot is deleted")
            assert prepared(state_topic(kafka, topic.name, 50)).partitions == 3
    finally:
        pruning.close()
