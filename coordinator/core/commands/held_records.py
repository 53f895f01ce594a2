"""Checks the records that a ShareConsumer's request names: the group must know them, and the member must hold them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from coordinator.core.changes import split_at
from coordinator.core.log_records import Record
from coordinator.core.record_state import HELD
from coordinator.core.runs import FRESH, Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import (
    InvalidRecordState,
    InvalidRequest,
    OlderDelivery,
    RecordNotHeld,
    ShareGroupError,
)
from coordinator.protocol.messages import PartitionAcks, PartitionProgress
from coordinator.protocol.values import SharePartitionKey

Batch = TypeVar("Batch")


def by_partition(
    group: ShareGroup,
    named: Iterable[PartitionAcks | PartitionProgress],
    apply: Callable[[SharePartition, tuple[Batch, ...]], Iterable[Record]],
) -> tuple[tuple[Record, ...], dict[str, ShareGroupError]]:
    """Apply the batches of each partition, all of them or none, even if the request names the partition twice. Returns
    the records to append, and the error of each refused partition, by "topic id:partition"."""
    batches: dict[SharePartitionKey, tuple[Any, ...]] = {}
    for each in named:
        key = SharePartitionKey(each.topic_id, each.partition)
        batches[key] = (*batches.get(key, ()), *each.batches)
    records: list[Record] = []
    errors: dict[str, ShareGroupError] = {}
    for key, of_partition in batches.items():
        name = f"{key.topic_id}:{key.partition}"
        try:
            if (partition := group.partitions.get(key)) is None:
                raise InvalidRequest(what=f"Partition {name} is not one of the group's.")
            records += apply(partition, of_partition)
        except ShareGroupError as error:
            errors[name] = error
    return tuple(records), errors


class NamedOffsets:
    """The offsets that a request has named so far. It may name each only once."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """Add a range of offsets.

        Raises:
            InvalidRecordState: one of the offsets was named before.
        """
        ranges = self._ranges
        if not ranges or ranges[-1][1] < first:
            ranges.append((first, last))
            return
        at = bisect_left(ranges, (first, last))
        if (ranges[at : at + 1] and ranges[at][0] <= last) or (at and ranges[at - 1][1] >= first):
            raise InvalidRecordState(what=f"{first}-{last} is named twice in one request")
        ranges.insert(at, (first, last))

    def others(self, segment: Segment) -> Iterator[tuple[int, int]]:
        """Yield the offsets of the segment that the request has not named, as ranges."""
        at = segment.first
        for first, last in self._ranges:
            if first > segment.last:
                break
            if at < first:
                yield at, first - 1
            at = max(at, last + 1)
        if at <= segment.last:
            yield at, segment.last


class RunLookup:
    """Finds the runs of the offsets that a request names. Most requests stay in one run, so the last run is kept."""

    def __init__(self, partition: SharePartition) -> None:
        self.partition = partition
        self._first, self._last = 0, -1
        self._run = FRESH

    def check(self, first: int, last: int) -> None:
        """Check that the partition has acquired these offsets, or has finished them before.

        Raises:
            InvalidRequest: the range is empty, or lies beyond what was acquired.
            InvalidRecordState: the partition has no runs there.
        """
        partition = self.partition
        if last < first:
            raise InvalidRequest(what=f"{first}-{last} is no range of offsets.")
        if last < partition.start_offset:
            return
        if first < partition.start_offset:
            lowest = partition.runs.first()
            if lowest is None or last < lowest.first:
                raise InvalidRecordState(what=f"{partition!r} holds nothing at {first}")
        elif not partition.runs:
            raise InvalidRecordState(what=f"{partition!r} holds nothing at {first}")
        if not (self._first <= last <= self._last or partition.runs.at(last) is not None):
            raise InvalidRequest(what=f"{first}-{last} lies beyond what {partition!r} has acquired.")

    def parts(self, first: int, last: int) -> Iterable[Segment]:
        """The runs of these offsets, cut at the start offset: the log has lost what lies below, and no request is
        refused for that."""
        if first < self.partition.start_offset:
            return [
                part
                for segment in self.partition.runs.between(first, last)
                for part in split_at(segment, self.partition.start_offset)
            ]
        if not self._first <= first <= self._last and (whole := self.partition.runs.at(first)) is not None:
            self._first, self._last, self._run = whole
        if self._first <= first and last <= self._last:
            return (Segment(first, last, self._run),)
        return self.partition.runs.between(first, last)


def holds(group: ShareGroup, member_id: str, run: Run) -> bool:
    """Whether the member holds the run."""
    plan = group.plan_of(run)
    return run.state in HELD and plan is not None and plan.member_id == member_id


def check_held(group: ShareGroup, member_id: str, delivery_count: int, segment: Segment) -> None:
    """Check that the member holds the segment, under this delivery count.

    Raises:
        RecordNotHeld: nobody holds it, or another member.
        OlderDelivery: the member holds it under another delivery count.
    """
    first, last, run = segment
    if not holds(group, member_id, run):
        raise RecordNotHeld(offsets=f"{first}-{last}", member_id=member_id)
    if run.delivery_count != delivery_count:
        raise OlderDelivery(offsets=f"{first}-{last}", delivered=run.delivery_count, named=delivery_count)
