"""Groups are placed among the partitions that the state topic had at first; tests/unit/stores has more of it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from coordinator.service.brokers.cluster import EARLIEST
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


def test_coordinators_that_start_at_once_with_different_settings_agree(kafka):
    name = state_topic(kafka).name
    with ThreadPoolExecutor(4) as several:
        found = list(several.map(lambda number: prepared(state_topic(kafka, name, number)).partitions, (2, 3, 4, 5)))
    assert len(set(found)) == 1


def test_pruning_keeps_the_placement_record(kafka):
    topic = prepared(state_topic(kafka, partitions=3))
    group = next(f"g-{n}" for n in range(100) if not state_partition_of(f"g-{n}", 3))
    with (
        closing(KafkaStore(topic, 0, LivingOwner(owner("host")), updates_per_snapshot=500)) as store,
        closing(Pruning(topic, lambda: [store], interval_ms=NEVER_MS)) as pruning,
    ):
        taken(store, group)
        append(store, {group: [b"a"]})
        kafka.add_partitions(topic.name, 4)
        for _ in range(3):
            snapshot(store, group, [b"s"])
            needed = store._open[group].log.needed_offset

            def pruned(needed=needed):
                pruning.prune()
                return topic.offset(0, EARLIEST) == needed

            wait_until(pruned, what="what lies before the snapshot is deleted")
            assert prepared(state_topic(kafka, topic.name, 50)).partitions == 3
