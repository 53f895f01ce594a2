"""Cutting a plan into tasks. Pure.

A plan names offset ranges; a task may read pieces of several partitions, and a large range may be cut. Rules: every
offset is in exactly one task, with its delivery count; tasks follow the order of topics, partitions and offsets, so
that a partition falls to the same task from batch to batch as long as the amounts stay alike, where a consumer may
stand at the right offset already; and a task costs about 70 ms before its first row, so a small batch is one task.

A "record" here is an offset: nobody has read the log yet, so gaps count too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from operator import itemgetter
from typing import NamedTuple

from coordinator.protocol.values import AcquiredRange

SMALL_BATCH_RECORDS = 20_000
"""Below this a batch is one task, unless minPartitions or maxRecordsPerPartition ask for more."""

_UNEVEN = 0.15
"""How far a cut may move, as a part of an even share, so that it falls between two partitions."""


class PartitionRanges(NamedTuple):
    """What to read of one partition: ranges in offset order, none overlapping another."""

    topic: str
    partition: int
    ranges: tuple[AcquiredRange, ...]
    topic_id: str = ""
    """The plan's, if it is known: a consumer that prefetched from a deleted topic of this name is not gone on with."""

    @property
    def records(self) -> int:
        """How many offsets these are."""
        return sum(last - first + 1 for first, last, _ in self.ranges)


Task = tuple[PartitionRanges, ...]


def plan_tasks(
    partitions: Iterable[PartitionRanges],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    parallelism: int = 1,
) -> list[Task]:
    """The tasks of a batch, in the order of what they read; none for an empty plan.

    ``max_records_per_partition`` is never exceeded; ``min_partitions`` is reached unless there are fewer records.
    """
    ordered = _in_order(partitions)
    total = sum(each.records for each in ordered)
    if not total:
        return []
    most = max_records_per_partition or total
    wanted = max(parallelism if total >= SMALL_BATCH_RECORDS else 1, min_partitions or 1, -(-total // most))
    sizes = _sizes([each.records for each in ordered], min(wanted, total), most)
    return _cut(ordered, sizes)


def _in_order(partitions: Iterable[PartitionRanges]) -> list[PartitionRanges]:
    return sorted(
        each._replace(ranges=tuple(AcquiredRange(*acquired) for acquired in each.ranges))
        for each in partitions
        if each.ranges
    )


def _sizes(counts: list[int], tasks: int, most: int) -> list[int]:
    """How many records each task gets: even shares, moved to a partition's edge where one is close."""
    edges = list(accumulate(counts))
    total, start = edges[-1], 0
    sizes = []
    for left in range(tasks, 1, -1):
        share = (total - start) / left
        lowest = max(start + 1, total - most * (left - 1))
        highest = min(start + most, total - (left - 1))
        even = min(max(round(start + share), lowest), highest)
        end = _nearest(edges, even, share * _UNEVEN)
        end = end if lowest <= end <= highest else even
        sizes.append(end - start)
        start = end
    return [*sizes, total - start]


def _nearest(edges: list[int], offset: int, distance: float) -> int:
    """The edge nearest to ``offset`` if it is within ``distance``, else ``offset``."""
    at = bisect_left(edges, offset)
    near = min(edges[max(at - 1, 0) : at + 1], key=lambda edge: abs(edge - offset), default=offset)
    return near if abs(near - offset) <= distance else offset


def _cut(partitions: list[PartitionRanges], sizes: list[int]) -> list[Task]:
    """The tasks of these sizes, each partition's ranges together."""
    tasks = []
    for _, of_task in groupby(_pieces(partitions, sizes), key=itemgetter(0)):
        by_partition = groupby(of_task, key=itemgetter(1))
        tasks.append(tuple(part._replace(ranges=tuple(each[2] for each in pieces)) for part, pieces in by_partition))
    return tasks


def _pieces(
    partitions: list[PartitionRanges], sizes: list[int]
) -> Iterator[tuple[int, PartitionRanges, AcquiredRange]]:
    """The ranges, cut where a task is full: (task, whose they are, range)."""
    task, room = 0, sizes[0]
    for part in partitions:
        for first, last, delivery_count in part.ranges:
            while first <= last:
                if not room:
                    task += 1
                    room = sizes[task]
                end = min(last, first + room - 1)
                yield task, part, AcquiredRange(first, end, delivery_count)
                room -= end - first + 1
                first = end + 1
