"""Among how many partitions of the state topic groups are placed: all coordinators must agree, or a group would be
looked for where it is not, and begun anew.

Rule: the first coordinator that uses a topic writes down how many partitions it has then, into partition 0; that number
holds for good, whatever is configured, and whatever is added to the topic later.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, Producer

from coordinator.protocol.errors import BrokerNotReachable, StateTopicUnfit
from coordinator.protocol.format_versions import UnknownFormat
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic, is_denied
from coordinator.state_log.placement import PLACEMENT_KEY, decode_placement, encode_placement, state_partition_of
from coordinator.state_log.record_keys import group_of

_log = logging.getLogger(__name__)


def prepared(topic: StateTopic) -> StateTopic:
    """The topic as it is to be used: made if it is missing, with its id, and with the number of partitions that groups
    are placed among, which is written down now if it is not yet. The errors of ``ensure``; StateTopicUnfit also if
    there are fewer partitions than that, or if nobody can say where its groups are."""
    found = topic.ensure()
    info = topic.cluster.topics([topic.name]).get(topic.name)
    if info is None:
        raise topic.missing("was deleted")
    topic = replace(topic, topic_id=info.topic_id)
    recorded = _recorded(topic)
    if recorded is None:
        record(topic, found if _is_empty(topic, found) else _by_its_groups(topic, found))
        recorded = _recorded(topic)  # of two that begin at once the first one decides
    if recorded is None or recorded > found:
        raise StateTopicUnfit(
            topic=topic.name,
            reason=f"it has {found} partitions, and its groups are placed among {recorded or 'more'}",
        )
    if recorded != found:
        _log.info("%s has %d partitions; groups are placed among %d of them, as ever", topic.name, found, recorded)
    return replace(topic, partitions=recorded)


def record(topic: StateTopic, partitions: int) -> None:
    """Write the number down at the end of partition 0; durable when this returns."""
    failed: list[Any] = []
    timeout_ms = topic.broker_timeout_ms
    producer = Producer(topic.client_config(enable_idempotence=True, message_timeout_ms=timeout_ms, linger_ms=0))
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


def _recorded(topic: StateTopic) -> int | None:
    while True:
        # Nothing of it is in a transaction: somebody else's that is open need not be waited for.
        with LogReader(topic, 0, committed=False) as reader:
            for messages in reader.read_to(reader.end()):
                for message in messages:
                    if (partitions := _placement_in(topic, message)) is not None:
                        return partitions
            if not reader.was_pruned:  # else it was written again behind the end, before what lay before was deleted
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


def _is_empty(topic: StateTopic, found: int) -> bool:
    """Nothing was ever written to it."""
    return not any(topic.offset(partition, LATEST) for partition in range(found))


def _by_its_groups(topic: StateTopic, found: int) -> int:
    """The record is gone: the number that is configured, if all groups lie where it places them."""
    number = min(topic.partitions, found)
    for partition in range(found):
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
        keys = [group_of(message.key()) for messages in reader.read_to(reader.end()) for message in messages]
    return list(dict.fromkeys(group_id for group_id in keys if group_id is not None))
