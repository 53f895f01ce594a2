"""Commands on share partitions: initialization (KIP-932, "Initialization of share partitions"), log starts that move,
deleted topics, gaps, and records that waited for too long."""

from __future__ import annotations

from coordinator.core.changes import Changes, archived, moved
from coordinator.core.commands import (
    ArchiveDeletedTopics,
    ArchiveExpired,
    ArchiveGaps,
    Decision,
    DeletedTopicsArchived,
    InitializePartitions,
    MoveLogStarts,
)
from coordinator.core.commands.acquisition import held_back
from coordinator.core.failed_deliveries import data_lost, end_unknown, left_out_entry
from coordinator.core.left_out import LeftOutRange, bounded
from coordinator.core.log_records import LogStartMoved, PartitionInitialized, Record, TopicDeleted, TopicRegistered
from coordinator.core.record_state import Event, RecordState
from coordinator.core.runs import FRESH, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import Done
from coordinator.protocol.values import Disposition, SharePartitionKey


def initialize_partitions(group: ShareGroup, command: InitializePartitions, now_ms: int) -> Decision[Done]:
    """Register the topics, and append the start offsets of share partitions that have none."""
    records: list[Record] = [
        TopicRegistered(topic=t.topic, topic_id=t.topic_id)
        for t in command.topics
        if group.topics.get(t.topic) != t.topic_id or t.topic_id in group.gone
    ]
    starts = {SharePartitionKey(start.topic_id, start.partition): start.start_offset for start in command.starts}
    records += [_initialized(group, key, start) for key, start in starts.items() if key not in group.partitions]
    return Decision(tuple(records), Done())


def _initialized(group: ShareGroup, key: SharePartitionKey, start_offset: int) -> PartitionInitialized:
    """The log record of a start. If the group had forgotten the topic, the share partition begins no earlier than where
    it ended, so that no record is delivered a second time."""
    end_offset, highest_count = group.forgotten_end(key)
    start_offset = max(start_offset, end_offset)
    return PartitionInitialized(**key._asdict(), start_offset=start_offset, highest_count=highest_count)


def move_log_starts(group: ShareGroup, command: MoveLogStarts, now_ms: int) -> Decision[Done]:
    """Move the start offsets to the log starts. AVAILABLE records below are archived; records that a member holds stay
    the member's until it is done with them (docs/trust/facts.md, K27). The start of a query's plan reports the losses
    of that plan. The query that acquires next reports records that no plan held; a group without queries reports none,
    as in Kafka."""
    records: list[Record] = []
    lost: list[tuple[SharePartitionKey, Segment]] = []
    for topic_id, index, log_start in ((s.topic_id, s.partition, s.start_offset) for s in command.starts):
        partition = group.partitions.get(SharePartitionKey(topic_id, index))
        if partition is None or log_start <= max(partition.start_offset, partition.log_start):
            continue
        changes, of_partition = _lost_below(partition, log_start)
        lost += of_partition
        records += changes.records()
        records.append(_moved_to(partition, log_start, changes))
    return Decision((*records, *data_lost(group, lost)), Done())


def archive_deleted_topics(
    group: ShareGroup, command: ArchiveDeletedTopics, now_ms: int
) -> Decision[DeletedTopicsArchived]:
    """Treat the logs of the topics as if they began where they ended. Records that are AVAILABLE or were never acquired
    are archived, counted and reported. Their holders decide about ACQUIRED records; those that a holder gives back are
    lost. A topic that was archived before is left as it is."""
    ends = {SharePartitionKey(end.topic_id, end.partition): end.start_offset for end in command.ends}
    gone = [i for i in command.topic_ids if i in group.topic_names and i not in group.gone]
    records: list[Record] = [TopicDeleted(topic_id=topic_id, deleted_ms=now_ms) for topic_id in gone]
    lost: list[tuple[SharePartitionKey, Segment]] = []
    unknown: list[LeftOutRange] = []
    for key, partition in group.partitions.items():
        if key.topic_id not in gone:
            continue
        log_end = max(partition.end_offset, ends.get(key, 0))
        changes, of_partition = _lost_below(partition, log_end)
        lost += of_partition
        unknown += [] if key in ends else [end_unknown(group, partition)]
        records += changes.records()
        records.append(_moved_to(partition, log_end, changes))
    records += data_lost(group, lost, unknown)
    named = (left_out_entry(group, key, first, last, "data_loss") for key, (first, last, _) in lost)
    return Decision(tuple(records), DeletedTopicsArchived(lost=bounded((*named, *unknown))))


def _lost_below(partition: SharePartition, log_start: int) -> tuple[Changes, list[tuple[SharePartitionKey, Segment]]]:
    """The changes that archive the records below the log start which no member holds, and these records."""
    changes = Changes()
    lost: list[tuple[SharePartitionKey, Segment]] = []
    for segment in partition.runs.between(partition.start_offset, log_start - 1):
        if segment.run.state == RecordState.AVAILABLE:
            lost.append((partition.key, segment))
            changes.put(partition.key, segment.first, segment.last, moved(segment.run, Event.LOG_START))
    if partition.end_offset < log_start:
        lost.append((partition.key, Segment(partition.end_offset, log_start - 1, FRESH)))
    return changes, lost


def _moved_to(partition: SharePartition, log_start: int, changes: Changes) -> LogStartMoved:
    """The log record of the log start. ``changes``: those that archive what lies below it."""
    archived = sum(last - first + 1 for record in changes.records() for first, last, _ in record.runs)
    return LogStartMoved(**partition.key._asdict(), log_start=log_start, archived=archived)


def archive_gaps(group: ShareGroup, command: ArchiveGaps, now_ms: int) -> Decision[Done]:
    """Archive the offsets of the gaps that are AVAILABLE. Their holders decide about those that are acquired."""
    changes = Changes()
    for gap in command.gaps:
        partition = group.partitions.get(gap.key)
        for segment in partition.runs.between(gap.first, gap.last) if partition is not None else ():
            if segment.run.state == RecordState.AVAILABLE:
                assert partition is not None
                changes.put(partition.key, segment.first, segment.last, moved(segment.run, Event.MISSING))
    return Decision(tuple(changes.records()), Done())


def archive_expired(group: ShareGroup, command: ArchiveExpired, now_ms: int) -> Decision[Done]:
    """Archive the AVAILABLE records that are older than the group's ttl, also those that were never acquired, as far as
    the log was read over them; offsets without a record are archived as such. While too many records wait for their
    dead letters, nothing is archived, and nothing is acquired either."""
    keys = {SharePartitionKey(each.topic_id, each.partition): each for each in command.expired}
    found = [(group.partitions[key], of) for key, of in keys.items() if key in group.partitions]
    if group.config.share_record_ttl_ms != command.ttl_ms or held_back(partition for partition, _ in found):
        return Decision((), Done())
    changes = Changes()
    for partition, of in found:
        for first, last, run in partition.runs.between(partition.start_offset, of.end - 1):
            if first <= last and run.state == RecordState.AVAILABLE:
                expired = archived(run, Event.EXPIRE, group.config, Disposition.TTL)
                changes.put(partition.key, first, last, expired)
        at, end = partition.end_offset, min(of.end, of.read_end)
        if at < of.read_from or partition.key.topic_id in group.gone:
            continue  # the share partition was reset to offsets that were not read, or its records are counted already
        gaps = sorted((gap.first, gap.last) for gap in command.gaps if gap.key == partition.key)
        for first, last in (*gaps, (end, end)):
            if at < min(first, end):
                expired = archived(FRESH, Event.EXPIRE, group.config, Disposition.TTL)
                changes.put(partition.key, at, min(first, end) - 1, expired)
            if max(at, first) <= min(last, end - 1):
                changes.put(partition.key, max(at, first), min(last, end - 1), moved(FRESH, Event.MISSING))
            at = max(at, last + 1)
    return Decision(tuple(changes.records()), Done())
