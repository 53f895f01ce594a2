"""How far one partition's ranges are read. Pure: it handles offsets and messages, but no client.

Rule: a cursor picks a record if and only if its offset is in a range. All offsets below ``position`` have been seen:
records, holes between ranges, and offsets without a record (compaction, transaction markers). The compiled reader has
the same rule in ``native/drain.c`` (``take_record``)."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import cached_property
from operator import methodcaller
from typing import Any, Protocol, TypeVar

from share_source.executor.offset_ranges import PartitionRanges


class HasOffset(Protocol):
    """The one method of a record that a cursor calls."""

    def offset(self) -> Any: ...


M = TypeVar("M", bound=HasOffset)
Key = tuple[str, int]
"""Topic and partition."""
Run = tuple[int, int]
"""(delivery count, number of records): consecutive records that have one delivery count."""

_offset = methodcaller("offset")


class RangeCursor:
    """Picks the records in one partition's ranges from the records of its log, which come in offset order."""

    def __init__(self, part: PartitionRanges) -> None:
        self.topic, self.partition, self._ranges, self.topic_id, self.digest = part
        self.key = (self.topic, self.partition)
        self.last = self._ranges[-1].last
        self.position = self._ranges[0].first
        self._index = 0

    @property
    def done(self) -> bool:
        return self.position > self.last

    @property
    def begun(self) -> bool:
        return self.position > self._ranges[0].first

    @property
    def wanted(self) -> int:
        """The next offset to read: ``position``, or the first offset after a hole."""
        return self.position if self.done else max(self.position, self._ranges[self._index].first)

    @property
    def fetch_position(self) -> tuple[int, str]:
        return self.wanted, self.topic_id

    @cached_property
    def packed(self) -> bytes:
        """All ranges as 64-bit numbers: first offset, last offset and delivery count of each."""
        return array("q", [number for held in self._ranges for number in held]).tobytes()

    def reached(self, end: int) -> None:
        """Record that everything below ``end`` has been seen."""
        if end > self.position:
            self.position = end
            while self._index < len(self._ranges) and self._ranges[self._index].last < end:
                self._index += 1

    def lose(self, end: int) -> list[tuple[int, int]]:
        """Skip everything below ``end``, which the log lost. Returns the lost parts of the ranges as (first, last)."""
        lost = [
            (max(first, self.position), min(last, end - 1))
            for first, last, _ in self._ranges[self._index :]
            if max(first, self.position) < end and last >= self.position
        ]
        self.reached(end)
        return lost

    def take(self, messages: list[M]) -> tuple[list[M], list[Run], list[M]]:
        """Sort the partition's next records, at least one, in offset order. Returns the records in the ranges, their
        runs, and the records after the last range. Records below ``position`` are dropped: they come again after a
        consumer was moved back."""
        if self.done:
            return [], [], messages
        if messages[0].offset() < self.position:
            messages = messages[bisect_left(messages, self.position, key=_offset) :]
            if not messages:
                return [], [], []
        low, high = messages[0].offset(), messages[-1].offset()
        first, last, delivery_count = self._ranges[self._index]
        if first <= low and high <= last:
            self.reached(high + 1)
            return messages, [(delivery_count, len(messages))], []
        return self._pick(messages, high)

    def _pick(self, messages: list[M], high: int) -> tuple[list[M], list[Run], list[M]]:
        picked: list[M] = []
        runs: list[Run] = []
        at = 0
        for first, last, delivery_count in self._ranges[self._index :]:
            if first > high:
                break
            start = bisect_left(messages, first, at, key=_offset)
            at = bisect_right(messages, last, start, key=_offset)
            if at > start:
                picked += messages[start:at]
                runs.append((delivery_count, at - start))
        beyond = messages[bisect_right(messages, self.last, at, key=_offset) :] if high > self.last else []
        self.reached(min(high, self.last) + 1)
        return picked, runs, beyond
