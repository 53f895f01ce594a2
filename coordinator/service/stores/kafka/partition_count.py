"""Among how many partitions of the state topic groups are placed. All coordinators must use the same number: with
another number a coordinator would read the wrong partition for a group, and create the group again.

Rule: the first coordinator that uses a topic writes the topic's number of partitions into partition 0. That number
holds for good, whatever is configured, and whatever partitions are added to the topic later."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, Producer

from coordinator.kafka.librdkafka import new_client
from coordinator.protocol.errors import BrokerNotReachable, StateTopicUnfit
from coordinator.protocol.format_versions import UnknownFormat
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic, is_denied
from coordinator.state_log.placement import PLACEMENT_KEY, decode_placement, encode_placement, state_partition_of
from coordinator.state_log.record_keys import group_of

_log = logging.getLogger(__name__)


def prepared(topic: StateTopic) -> StateTopic:
    """The topic with its id, and with the number of partitions that groups are placed among. The topic is created if it
    is missing, and the number is written if it is not there yet.

    Raises:
        StateTopicUnfit: the topic has fewer partitions than that; the number is lost, and the groups do not lie where
            the configured one places them; or another version of sharegroup wrote the number.
        StateTopicNotAuthorized, StateTopicMissing, BrokerNotReachable, BrokerRefused: as for :meth:`StateTopic.ensure`.
    """
    partitions = topic.ensure()
    info = topic.cluster.topics([topic.name]).get(topic.name)
    if info is None:
        raise topic.missing("was deleted")
    topic = replace(topic, topic_id=info.topic_id)
    found = recorded(topic)
    if found is None:
        record(topic, partitions if _is_empty(topic, partitions) else _number_by_groups(topic, partitions))
        found = recorded(topic)  # if two coordinators start at the same time, the first record decides
    if found is None or found > partitions:
        raise StateTopicUnfit(
            topic=topic.name,
            reason=f"it has {partitions} partitions, and its groups are placed among {found or 'more'}",
        )
    if found != partitions:
        _log.info("%s has %d partitions; groups are placed among %d of them, as before", topic.name, partitions, found)
    return replace(topic, partitions=found)


def record(topic: StateTopic, partitions: int) -> None:
    """Writes the number at the end of partition 0; the record is durable when this returns.

    Raises:
        StateTopicNotAuthorized: the principal may not write to the topic.
        BrokerNotReachable: the broker did not confirm the write."""
    failed: list[Any] = []
    timeout_ms = topic.broker_timeout_ms
    # Not idempotent: librdkafka takes half a second to get a producer id, and the record written twice says the same.
    producer = new_client(Producer, topic.client_config(acks="all", message_timeout_ms=timeout_ms, linger_ms=0))
    producer.produce(
        topic.name, encode_placement(partitions), PLACEMENT_KEY, 0, on_delivery=lambda error, _: failed.append(error)
    )
    producer.flush(topic.timeout_s)
    error = failed[0] if failed else KafkaError(KafkaError._TIMED_OUT)
    if error is None:
        return
    if is_denied(error):
        raise topic.denied("write to it")
    raise BrokerNotReachable(addresses=topic.bootstrap_servers, timeout_ms=timeout_ms, reason=error.name())


def recorded(topic: StateTopic) -> int | None:
    """The number of partitions in the topic's placement record; None: it has no such record."""
    while True:
        # The record is in no transaction, so no open transaction of another producer is waited for.
        with LogReader(topic, 0, committed=False) as reader:
            for message in reader.read_to(reader.end()):
                if (partitions := _placement_in(topic, message)) is not None:
                    return partitions
            if not reader.was_pruned:  # if it was pruned, pruning has written the record again behind this end
                return None


def _placement_in(topic: StateTopic, message: Any) -> int | None:
    try:
        return decode_placement(message.key(), message.value())
    except UnknownFormat as unknown:
        writer = "a newer" if unknown.is_newer else "an older"
        raise StateTopicUnfit(
            topic=topic.name,
            reason=f"{writer} version of sharegroup wrote it: its record of how groups are placed, at offset "
            f"{message.offset()} of partition 0, has {unknown.found}, and this version reads format version "
            f"{unknown.known}. Nothing was changed; run the version that wrote it",
        ) from None


def _is_empty(topic: StateTopic, partitions: int) -> bool:
    ends = topic.cluster.offsets([(topic.name, partition) for partition in range(partitions)], LATEST)
    unknown = [partition for partition in range(partitions) if (topic.name, partition) not in ends]
    return not any(ends.values()) and not any(topic.offset(partition, LATEST) for partition in unknown)


def _number_by_groups(topic: StateTopic, partitions: int) -> int:
    """The configured number, for a topic whose placement record is lost. Raises StateTopicUnfit if a group lies in
    another partition than the configured number places it in."""
    number = min(topic.partitions, partitions)
    for partition in range(partitions):
        for group_id in groups_of(topic, partition):
            placed = state_partition_of(group_id, number)
            if placed != partition:
                raise StateTopicUnfit(
                    topic=topic.name,
                    reason=f"share group {group_id} lies in its partition {partition}, and among {number} partitions "
                    f"it would be looked for in {placed}. Set share.coordinator.state.topic.num.partitions to the "
                    "number of partitions that the topic was made with",
                )
    return number


def groups_of(topic: StateTopic, partition: int) -> list[str]:
    """Groups that have records in the partition."""
    with LogReader(topic, partition) as reader:
        keys = [group_of(message.key()) for message in reader.read_to(reader.end())]
    return list(dict.fromkeys(group_id for group_id in keys if group_id is not None))
