"""Shows how far a group has come, in the form that an import takes (:class:`GroupPosition`).

Rule: no delivery count is lower than that of the last delivery, also of records that a member holds."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.admin_messages import GroupPosition, PartitionPosition, PositionRun, ReadPosition


def read_position(group: ShareGroup, command: ReadPosition, now_ms: int) -> GroupPosition:
    """The position in all topics that exist."""
    current = [partition for key, partition in sorted(group.partitions.items()) if group.is_current(key.topic_id)]
    return GroupPosition(
        partitions=tuple(
            PartitionPosition(
                topic=group.topic_names[each.key.topic_id],
                topic_id=each.key.topic_id,
                partition=each.key.partition,
                start=each.start_offset,
                runs=tuple(_runs(each)),
            )
            for each in current
        ),
        configs=dict(group.configs),
        members=len(group.sessions),
        unheard=len(group.unheard),
        wait_ms=max(0, group.deadlines_extended_until_ms - now_ms + 1) if group.unheard else 0,
        archiving=group.waiting_for_dead_letters,
        of_plans=sum(sum(each.runs.carried.values()) for each in current),
    )


def _runs(partition: SharePartition) -> Iterator[PositionRun]:
    for first, last, run in partition.runs.between(partition.start_offset, partition.end_offset):
        if run.state in TERMINAL or run.state == RecordState.ARCHIVING:
            is_accepted = run.state == RecordState.ACKNOWLEDGED
            done = RecordState.ACKNOWLEDGED if is_accepted else RecordState.ARCHIVED
            yield PositionRun(first, last, done.name, run.delivery_count)
        else:
            tries = (run.failures, run.releases, run.query_failures)
            yield PositionRun(first, last, RecordState.AVAILABLE.name, run.delivery_count, *tries, run.quarantined)
