"""Parts of an acquisition that queries and ShareConsumers share: room, records that came back, and log records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coordinator.core.changes import Changes, MemoizedTransition, acquired
from coordinator.core.members import PlanRanges
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey

MAX_RANGES = 10_000
"""Ranges that one acquisition has at most, so that its reply and its log records stay small."""

Held = dict[SharePartitionKey, list[Segment]]
"""Segments by share partition, ascending, as the acquiring member holds them."""


def room(group: ShareGroup, partition: SharePartition, taken: int) -> int:
    """How many more records the partition's lock limit lets be acquired, after ``taken`` ones of this command."""
    return group.config.share_partition_max_record_locks - partition.acquired_count - taken


def returned(partition: SharePartition, end: int, now_ms: int) -> Iterator[Segment]:
    """The records that came back and may be acquired now, in offset order, within ``[start offset, end)``."""
    for first, last, run in partition.runs.available(now_ms):
        first, last = max(first, partition.start_offset), min(last, end - 1)
        if first <= last:
            yield Segment(first, last, run)


def held_by(
    plan_id: int, taken: Mapping[SharePartitionKey, list[Segment]], now_ms: int, deadline_ms: int | None = None
) -> Held:
    """The segments in the hands of plan ``plan_id``, each partition's in offset order. ``deadline_ms``: as in
    :class:`~coordinator.core.runs.Run`."""
    acquired_run = MemoizedTransition(lambda run: acquired(run, plan_id, now_ms, deadline_ms))
    return {
        key: [Segment(first, last, acquired_run(run)) for first, last, run in sorted(segments, key=_first)]
        for key, segments in taken.items()
    }


def ranges_of(held: Held) -> PlanRanges:
    """The ranges of a plan that holds these segments."""
    return tuple(
        (key.topic_id, key.partition, tuple((s.first, s.last) for s in segments)) for key, segments in held.items()
    )


def run_records(held: Held) -> list[RunsChanged]:
    """The log records that give the segments to their plan."""
    changes = Changes()
    for key, segments in held.items():
        for first, last, run in segments:
            changes.put(key, first, last, run)
    return changes.records()


def _first(segment: Segment) -> int:
    return segment.first
