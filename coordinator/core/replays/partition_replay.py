"""Replay of the records of topics and share partitions: how they begin, how their runs change, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from coordinator.core.log_records import (
    LocksRenewed,
    LogStartMoved,
    OffsetsAltered,
    PartitionDeleted,
    PartitionInitialized,
    PartitionsForgotten,
    RunsChanged,
    StartsAlteredBy,
    TopicDeleted,
    TopicForgotten,
    TopicRegistered,
)
from coordinator.core.record_counts import RecordTotals
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey

ENDS_KEPT = 10_000
"""A group keeps the ends of the last share partitions of forgotten topics, up to this many, for a redrive of their dead
letters. That is a month of hourly topics with 12 partitions each, and some 100 kB."""


def _topic_registered(group: ShareGroup, record: TopicRegistered) -> None:
    group.assignment_is_old = True
    before = group.topics.get(record.topic, record.topic_id)
    if before != record.topic_id:
        group.old_topics.add(before)
    group.old_topics.discard(record.topic_id)
    group.topics[record.topic] = record.topic_id
    group.topic_names[record.topic_id] = record.topic
    group.gone.pop(record.topic_id, None)


def _topic_deleted(group: ShareGroup, record: TopicDeleted) -> None:
    group.assignment_is_old = True
    group.gone[record.topic_id] = record.deleted_ms


def _partition_initialized(group: ShareGroup, record: PartitionInitialized) -> None:
    key = SharePartitionKey(record.topic_id, record.partition)
    partition = SharePartition(key, record.start_offset)
    partition.log_start = record.log_start
    if record.end_offset is not None:
        partition.end_offset = record.end_offset
        before = RecordTotals(archived=list(record.archived))
        before.reached = partition.end_offset - record.start_offset + sum(before.archived)
        partition.restore_counts(before if record.totals is None else record.totals)
    partition.highest_count, partition.altered_after = record.highest_count, record.altered_after
    group.last_altered_after = max(group.last_altered_after, record.altered_after)
    group.partitions[key] = partition
    group.assignment_is_old = True
    _drop_end(group, key)
    if (deleted := group.deleted_partitions.pop(key, None)) is not None:
        partition.highest_count, partition.altered_after = deleted.highest_count, deleted.altered_after
        partition.redeliver(deleted.end_offset)


def _offsets_altered(group: ShareGroup, record: OffsetsAltered) -> None:
    """Begin the share partitions anew. The log has no runs for that, since very many runs and ranges may be dropped."""
    group.assignment_is_old = True
    group.last_altered_after = max(group.last_altered_after, record.altered_after)
    for index, start_offset in record.starts:
        key = SharePartitionKey(record.topic_id, index)
        before = group.partitions.pop(key)
        if start_offset is None:
            _drop(group, before)
            group.deleted_partitions[key] = PartitionDeleted(
                topic_id=key.topic_id,
                partition=index,
                end_offset=before.end_offset,
                highest_count=before.highest_count,
                altered_after=record.altered_after,
            )
        else:
            group.partitions[key] = before.altered(start_offset, record.altered_after)
        for plan_id in before.runs.carried:
            _drop_holder(group, plan_id, key)
        for plan in group.plans.values():
            plan.staged.pop(key, None)


def _starts_altered_by(group: ShareGroup, record: StartsAlteredBy) -> None:
    group.altered_by |= {SharePartitionKey(record.topic_id, index): record.by for index in record.partitions}


def _partition_deleted(group: ShareGroup, record: PartitionDeleted) -> None:
    group.deleted_partitions[SharePartitionKey(record.topic_id, record.partition)] = record
    group.last_altered_after = max(group.last_altered_after, record.altered_after)


def _partitions_forgotten(group: ShareGroup, record: PartitionsForgotten) -> None:
    group.assignment_is_old = True
    ends: dict[int, tuple[int, int]] = {}
    for index in record.partitions:
        partition = group.partitions.pop(SharePartitionKey(record.topic_id, index))
        _drop(group, partition)
        group.altered_by.pop(partition.key, None)
        ends[index] = partition.end_offset, partition.highest_count
    _keep_ends(group, record.topic_id, ends)
    if record.whole_topic or not any(key.topic_id == record.topic_id for key in group.partitions):
        _forget_topic(group, record.topic_id)


def _forget_topic(group: ShareGroup, topic_id: str) -> None:
    group.old_topics.discard(topic_id)
    group.gone.pop(topic_id, None)
    for key in [key for key in group.deleted_partitions if key.topic_id == topic_id]:
        del group.deleted_partitions[key]
        group.altered_by.pop(key, None)
    name = group.topic_names.pop(topic_id)
    if group.topics.get(name) == topic_id:
        del group.topics[name]


def _topic_forgotten(group: ShareGroup, record: TopicForgotten) -> None:
    group.forgotten_topics[record.topic_id] = record
    group.ends_kept += len(record.ends)


def _keep_ends(group: ShareGroup, topic_id: str, ends: Mapping[int, tuple[int, int]]) -> None:
    """Keep the ends of forgotten share partitions of the topic, and drop those of the topics that were forgotten first.
    The log does not repeat the ends: the share partitions have them when the record is replayed."""
    before = group.forgotten_topics.pop(topic_id, None)
    if before is not None:
        group.ends_kept -= len(before.ends)
        ends = {index: (end, highest_count) for index, end, highest_count in before.ends} | dict(ends)
    if ends:
        known = tuple((index, *end) for index, end in sorted(ends.items()))
        _topic_forgotten(group, TopicForgotten(topic_id=topic_id, topic=group.topic_names[topic_id], ends=known))
    while group.ends_kept > ENDS_KEPT and len(group.forgotten_topics) > 1:
        oldest = next(iter(group.forgotten_topics))
        group.ends_kept -= len(group.forgotten_topics.pop(oldest).ends)


def _drop_end(group: ShareGroup, key: SharePartitionKey) -> None:
    """Drop the end of a share partition that the group has again."""
    before = group.forgotten_topics.get(key.topic_id)
    if before is None:
        return
    left = tuple(end for end in before.ends if end[0] != key.partition)
    group.ends_kept -= len(before.ends) - len(left)
    if left:
        group.forgotten_topics[key.topic_id] = msgspec.structs.replace(before, ends=left)
    else:
        del group.forgotten_topics[key.topic_id]


def _drop(group: ShareGroup, partition: SharePartition) -> None:
    """Add the counts of a share partition that the group drops to the group's; what was still there counts as skipped.
    The log does not repeat the counts, which would make a large record for many share partitions."""
    skipped = RecordTotals(skipped=partition.still_there)
    group.dropped = group.dropped.plus(partition.totals()).plus(skipped)


def _runs_changed(group: ShareGroup, record: RunsChanged | LocksRenewed) -> None:
    partition = group.partitions[SharePartitionKey(record.topic_id, record.partition)]
    runs = group.locks.kept(record.runs)
    has_topic = bool(group.config.errors_deadletterqueue_topic_name)
    partition.apply(runs, dead_letters=has_topic, is_deleted=record.topic_id in group.gone)
    group.watch_locks(runs)
    _drop_plans_nobody_carries(group, partition)


def _log_start_moved(group: ShareGroup, record: LogStartMoved) -> None:
    partition = group.partitions[SharePartitionKey(record.topic_id, record.partition)]
    partition.move_log_start(record.log_start, record.archived, is_deleted=record.topic_id in group.gone)
    _drop_plans_nobody_carries(group, partition)


def _drop_plans_nobody_carries(group: ShareGroup, partition: SharePartition) -> None:
    for plan_id in partition.runs.changed_plan_ids:
        if plan_id in partition.runs.carried:
            group.holders.setdefault(plan_id, set()).add(partition.key)
        else:
            _drop_holder(group, plan_id, partition.key)
    partition.runs.changed_plan_ids.clear()


def _drop_holder(group: ShareGroup, plan_id: int, key: SharePartitionKey) -> None:
    holders = group.holders.get(plan_id, set())
    holders.discard(key)
    if not holders:
        group.holders.pop(plan_id, None)
        group.plans.pop(plan_id, None)


REPLAY_PARTITIONS: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    TopicRegistered: _topic_registered,
    TopicDeleted: _topic_deleted,
    PartitionInitialized: _partition_initialized,
    OffsetsAltered: _offsets_altered,
    StartsAlteredBy: _starts_altered_by,
    PartitionDeleted: _partition_deleted,
    PartitionsForgotten: _partitions_forgotten,
    TopicForgotten: _topic_forgotten,
    RunsChanged: _runs_changed,
    LocksRenewed: _runs_changed,
    LogStartMoved: _log_start_moved,
}
