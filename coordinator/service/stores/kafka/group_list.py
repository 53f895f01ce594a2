"""The groups that have state in the state topic, read without taking any of them and without writing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.group_existence import GroupExistence
from coordinator.state_log.owner_record import Owner

PARALLEL_READS = 8


def groups_in(topic: StateTopic, partitions: list[int]) -> dict[str, Owner | None]:
    """Returns the groups that exist in these partitions of the state topic, each with its last owner. Raises
    BrokerNotReachable, BrokerRefused, StateTopicNotAuthorized or StoreRefused if the topic can't be read."""
    where = [(topic.name, partition) for partition in partitions]
    firsts = topic.cluster.offsets(where, EARLIEST)
    ends = topic.cluster.offsets(where, LATEST)
    written = [p for name, p in where if ends.get((name, p), 0) > firsts.get((name, p), 0)]
    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="share-list") as threads:
        found = list(threads.map(lambda partition: _groups_of(topic, partition), written))
    return {group_id: owner for groups in found for group_id, owner in groups.items()}


def _groups_of(topic: StateTopic, partition: int) -> dict[str, Owner | None]:
    existence = GroupExistence()
    with LogReader(topic, partition) as reader:
        for message in reader.read_to(reader.last_stable()):
            existence.add(message.key(), message.value())
    return existence.groups
