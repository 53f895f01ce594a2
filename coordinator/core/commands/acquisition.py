"""Parts of an acquisition that queries and ShareConsumers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TypeVar

from coordinator.core.changes import MemoizedTransition, acquired
from coordinator.core.log_records import RunsChanged
from coordinator.core.members import AcquiredPlan, Member, PlanRanges
from coordinator.core.order import Held, earlier_plans_ended
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.values import AcquiredRange, SharePartitionKey

MAX_RANGES = 10_000
"""One acquisition has up to this many ranges, so that its reply and its log records stay small."""
MOST_ARCHIVING = 100_000
"""A member acquires nothing while this many records of its partitions wait for their dead letters. Each takes some 800
bytes of memory, and of each snapshot, for as long as the dead letter topic is unavailable."""
_ARCHIVING = int(RecordState.ARCHIVING)
"""As a plain number this index makes the sum over 1,000 partitions take 0.04 ms instead of 0.26 ms."""

Of = TypeVar("Of")


def is_turn_of_one_alone(member: Member) -> bool:
    """Whether the member's next acquisition prefers a record that is delivered alone: every second acquisition of the
    member does."""
    return member.acquisitions % 2 == 1


def rotated(entries: list[Of], member: Member, partitions: Iterable[SharePartition]) -> list[Of]:
    """The entries, beginning with another entry at each acquisition of the member. The member's own acquisitions are
    counted: if every second one of the group were this member's, it would always begin at the same few entries. Records
    that are delivered alone take every second acquisition. While ``partitions`` have such records, the beginning moves
    only at the other acquisitions."""
    if not entries:
        return entries
    turns = member.acquisitions // (2 if any(partition.runs.has_quarantined for partition in partitions) else 1)
    at = turns % len(entries)
    return entries[at:] + entries[:at] if at else entries


def room(group: ShareGroup, partition: SharePartition, taken: int) -> int:
    """How many more records may be acquired within the partition's lock limit, after ``taken`` of this command."""
    return group.config.share_partition_max_record_locks - partition.acquired_count - taken


def held_back(partitions: Iterable[SharePartition]) -> int:
    """How many records of these partitions wait for their dead letters, if that is MOST_ARCHIVING or more: acquire
    nothing then. Otherwise 0."""
    archiving = sum([partition.runs.counts[_ARCHIVING] for partition in partitions])
    return archiving if archiving >= MOST_ARCHIVING else 0


def held_by(
    plan_id: int, taken: Mapping[SharePartitionKey, list[Segment]], now_ms: int, deadline_ms: int | None = None
) -> Held:
    """The segments as plan ``plan_id`` holds them, those of each partition in offset order. ``deadline_ms``: the end of
    a ShareConsumer's lock."""
    acquired_run = MemoizedTransition(lambda run: acquired(run, plan_id, now_ms, deadline_ms))
    return {
        key: [Segment(first, last, acquired_run(run)) for first, last, run in sorted(segments, key=itemgetter(0))]
        for key, segments in taken.items()
    }


def ranges_of(held: Held) -> PlanRanges:
    """The ranges of a plan that holds these segments."""
    return tuple(
        (key.topic_id, key.partition, tuple((s.first, s.last) for s in segments)) for key, segments in held.items()
    )


def run_records(group: ShareGroup, held: Held) -> list[RunsChanged]:
    """The log records that give the segments to their plan, and that end earlier plans in an ordered group."""
    changed = earlier_plans_ended(group, held)
    return [RunsChanged(**key._asdict(), runs=tuple(segments)) for key, segments in changed.items()]


def plan_as_held(group: ShareGroup, plan: AcquiredPlan) -> tuple[PartitionPlan, ...]:
    """The ranges that carry the plan's id now, with their delivery counts."""
    return plan_of(group, ((partition.key, segments) for partition, segments in group.carrying(plan)))


def plan_of(
    group: ShareGroup, held: Iterable[tuple[SharePartitionKey, Iterable[Segment]]]
) -> tuple[PartitionPlan, ...]:
    """The segments as ranges for a reply; neighbours of equal delivery count are one range."""
    return tuple(
        PartitionPlan(
            topic=group.topic_names[key.topic_id],
            topic_id=key.topic_id,
            partition=key.partition,
            ranges=tuple(_merged(segments)),
        )
        for key, segments in held
    )


def _merged(segments: Iterable[Segment]) -> list[AcquiredRange]:
    ranges: list[AcquiredRange] = []
    for first, last, run in segments:
        if ranges and ranges[-1].last == first - 1 and ranges[-1].delivery_count == run.delivery_count:
            ranges[-1] = ranges[-1]._replace(last=last)
        else:
            ranges.append(AcquiredRange(first, last, run.delivery_count))
    return ranges
