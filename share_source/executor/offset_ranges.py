"""Cuts a plan into tasks. Pure.

A plan has offset ranges; a task may read parts of several partitions, and a large range may be cut. Rules:

- Every offset is in exactly one task, with its delivery count.
- Tasks follow the order of topics, partitions and offsets. So a partition falls to the same task from batch to batch,
  as long as the amounts stay alike, and that task's worker may have a consumer at the right offset already.
- A task costs about 70 ms before its first row, so a small batch is one task.
- In an ordered group (share.order=partition) all ranges of a partition are in one task.

A "record" is an offset here: nobody has read the log yet, so gaps count too."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from coordinator.protocol.values import AcquiredRange

SMALL_BATCH_RECORDS = 20_000
"""A batch with fewer records is one task, unless minPartitions or maxRecordsPerPartition require more tasks."""

_UNEVEN = 0.15
"""A cut may move by this fraction of an even share, to fall between two partitions."""


class PartitionRanges(NamedTuple):
    """The ranges to read of one partition, ascending and disjoint."""

    topic: str
    partition: int
    ranges: tuple[AcquiredRange, ...]
    topic_id: str = ""
    """The topic's id in the plan; empty if not known. With it, a consumer that prefetched from a deleted topic of the
    same name is not used."""
    digest: int = 0
    """The digest in the rows' receipts (coordinator.protocol.receipts)."""

    @property
    def records(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.ranges)


Task = tuple[PartitionRanges, ...]


def plan_tasks(
    partitions: Iterable[PartitionRanges],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    parallelism: int = 1,
    ordered: bool = False,
) -> list[Task]:
    """Returns the tasks of a batch, in the order of their ranges; none for an empty plan.

    No task has more than ``max_records_per_partition`` records. There are at least ``min_partitions`` tasks, or one for
    each record if there are fewer records. If the group is ``ordered``, neither limit may be given."""
    parts = _in_order(partitions)
    total = sum(part.records for part in parts)
    if not total:
        return []
    most = max_records_per_partition or total
    wanted = max(parallelism if total >= SMALL_BATCH_RECORDS else 1, min_partitions or 1, -(-total // most))
    counts = [part.records for part in parts]
    return _cut(parts, _whole_sizes(counts, wanted) if ordered else _sizes(counts, min(wanted, total), most))


def _in_order(partitions: Iterable[PartitionRanges]) -> list[PartitionRanges]:
    return sorted(
        part._replace(ranges=tuple(AcquiredRange(*acquired) for acquired in part.ranges))
        for part in partitions
        if part.ranges
    )


def _sizes(counts: list[int], tasks: int, most: int) -> list[int]:
    """Returns the number of records of each task: even shares, moved to a partition's edge if one is close."""
    edges = list(accumulate(counts))
    total, start = edges[-1], 0
    sizes = []
    for remaining in range(tasks, 1, -1):
        share = (total - start) / remaining
        lowest = max(start + 1, total - most * (remaining - 1))
        highest = min(start + most, total - (remaining - 1))
        even = min(max(round(start + share), lowest), highest)
        end = _nearest(edges, even, share * _UNEVEN)
        end = end if lowest <= end <= highest else even
        sizes.append(end - start)
        start = end
    return [*sizes, total - start]


def _whole_sizes(counts: list[int], tasks: int) -> list[int]:
    """Returns the number of records of each task: up to ``tasks`` even shares, moved to partitions' edges."""
    edges = list(accumulate(counts))
    total = edges[-1]
    ends = {total, *(_nearest(edges, total * n // tasks, total) for n in range(1, tasks))}
    return [end - start for start, end in pairwise([0, *sorted(ends)])]


def _nearest(edges: list[int], offset: int, distance: float) -> int:
    """Returns the edge nearest to ``offset`` if it is within ``distance``, else ``offset``."""
    index = bisect_left(edges, offset)
    near = min(edges[max(index - 1, 0) : index + 1], key=lambda edge: abs(edge - offset), default=offset)
    return near if abs(near - offset) <= distance else offset


def _cut(partitions: list[PartitionRanges], sizes: list[int]) -> list[Task]:
    """Returns tasks of these sizes, in which the ranges of each partition are together."""
    tasks = []
    for _, of_task in groupby(_pieces(partitions, sizes), key=itemgetter(0)):
        by_partition = groupby(of_task, key=itemgetter(1))
        tasks.append(tuple(part._replace(ranges=tuple(piece[2] for piece in pieces)) for part, pieces in by_partition))
    return tasks


def _pieces(
    partitions: list[PartitionRanges], sizes: list[int]
) -> Iterator[tuple[int, PartitionRanges, AcquiredRange]]:
    """Yields the ranges, cut where a task is full, as (number of the task, partition, range)."""
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
