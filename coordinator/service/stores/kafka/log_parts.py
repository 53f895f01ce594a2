"""Reads a group's records from its partition of the state topic, the newest part first, without taking the group.

Rule: it reads what is committed at present, and waits for no transaction."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.core.looks.history import Logged
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.placement import state_partition_of
from coordinator.state_log.record_keys import GROUP_RECORD, GROUP_SNAPSHOT_PART, key_head
from coordinator.state_log.value_version import group_content_of

FIRST_PART, GROWTH = 4_000, 4
"""The first part has FIRST_PART offsets; each further one has GROWTH times as many."""


def log_parts(topic: StateTopic, group_id: str) -> Iterator[list[Logged]]:
    """The group's records, the newest part of the log first, each part in the order of the log.

    Raises:
        GroupStateTooNew, GroupStateTooOld: another version of sharegroup wrote a record.
        StoreRefused: the brokers do not answer."""
    partition = state_partition_of(group_id, topic.partitions)
    end = topic.offset(partition, LATEST, read_committed=True)
    earliest, size = topic.offset(partition, EARLIEST), FIRST_PART
    heads = (key_head(GROUP_RECORD, group_id), key_head(GROUP_SNAPSHOT_PART, group_id))
    while end > earliest:
        start = max(earliest, end - size)
        part: list[Logged] = []
        with LogReader(topic, partition, start=start) as reader:
            for message in reader.read_to(end):
                key, value, offset = message.key(), message.value(), message.offset()
                if key is not None and value is not None and offset < end and key.startswith(heads):
                    kind, at_ms = message.timestamp()
                    part.append((at_ms if kind else None, group_content_of(value, group_id)))
        yield part
        end, size = start, size * GROWTH
