"""Finds gaps: acquired offsets at which the log has no record, after compaction, transaction markers and aborted
batches.

Plans include gaps, because a plan is acquired before its log is read, and accepting gaps is harmless. Only three
decisions must not count gaps as records, and the log is read for these alone (ADR 7). A completed batch without a
record does not prove that the processing works. A quarantined offset without a record is not tried alone. In explicit
mode, an undecided offset without a record is not released.

Rule: an offset is a gap only if the log was read over it. An offset that can't be read now is unknown, and is read
again later.

A gap is no loss. Records that Kafka removed before they were done are noticed in
:mod:`coordinator.service.questions.lost_logs`; ``Runtime._report`` (:mod:`coordinator.service.runtime.runtime`) logs
and counts them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import TypeVar

from coordinator.core.looks.view import LogRange
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused
from coordinator.protocol.values import OffsetRange, SharePartitionKey
from coordinator.service.brokers.cluster import KafkaCluster, Seen

MOST_RANGES = 100
"""One request reads up to this many ranges."""
KNOWN = 10_000
"""With more remembered ranges than this, unused ones are dropped. Up to this many failed partitions are remembered."""
KEPT_S = 600.0
"""A range that no request names is forgotten after this many seconds. A range in use is never forgotten for another
one: with more quarantined records than the memory holds, each request would read all of them again."""
AFTER_ERROR_S = 10.0
"""A log that could not be read is not read again for this many seconds."""

Key = TypeVar("Key")

_log = logging.getLogger(__name__)


class LogGaps:
    """Reads logs and remembers which ranges were read whole. Thread-safe: its memory only grows, or is emptied."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._known: dict[LogRange, float] = {}
        self._sweep_at = KNOWN
        self._failed: dict[SharePartitionKey, float] = {}
        self._not_before_s = 0.0

    def holds_any(self, ranges: Iterable[LogRange], *, read_committed: bool) -> bool:
        """Whether one of the first MOST_RANGES ranges holds a record. Do not cache False: a log may be unreadable."""
        first = list(islice(ranges, MOST_RANGES))
        return any(seen.offsets for _, seen in self._looked_at(first, read_committed=read_committed, most=1))

    def surely_holds_any(self, ranges: Iterable[LogRange], *, read_committed: bool) -> bool:
        """Whether one of the first MOST_RANGES ranges holds a record. Raises BrokerNotReachable or BrokerRefused if a
        log can't be read."""
        looks = (self._look(log_range, 1, read_committed=read_committed) for log_range in islice(ranges, MOST_RANGES))
        return any(seen.offsets for seen in looks)

    def among(self, ranges: Iterable[LogRange], *, read_committed: bool) -> tuple[OffsetRange, ...]:
        """The gaps in the ranges that are not yet known to be whole: offsets without a record in a log that was read
        over them."""
        found: list[OffsetRange] = []
        unknown = []
        for log_range in ranges:
            if log_range in self._known:
                self._known[log_range] = time.monotonic()
            else:
                unknown.append(log_range)
        for log_range, seen in self._looked_at(unknown, read_committed=read_committed):
            found += _between(log_range, seen)
            if _is_whole(log_range, seen):
                self._remember(log_range)
        return tuple(found)

    def read(
        self, ranges: Iterable[LogRange], *, read_committed: bool
    ) -> tuple[tuple[OffsetRange, ...], tuple[OffsetRange, ...]]:
        """The parts of the ranges over which their logs were read, and the gaps in these parts."""
        read: list[OffsetRange] = []
        gaps: list[OffsetRange] = []
        for of, seen in self._looked_at(ranges, read_committed=read_committed):
            if seen.first < seen.end:
                first, last = max(of.offsets.first, seen.first), min(of.offsets.last, seen.end - 1)
                read.append(of.offsets._replace(first=first, last=last))
                gaps += _between(of, seen)
        return tuple(read), tuple(gaps)

    def is_left_alone(self, key: SharePartitionKey) -> bool:
        """Whether this log could not be read at the last attempt, or not all of it."""
        return key in self._failed

    def _remember(self, log_range: LogRange) -> None:
        now_s = time.monotonic()
        if len(self._known) >= self._sweep_at:
            self._known = {of: at_s for of, at_s in list(self._known.items()) if now_s - at_s <= KEPT_S}
            self._sweep_at = max(KNOWN, 2 * len(self._known))
        self._known[log_range] = now_s

    def _looked_at(
        self, ranges: Iterable[LogRange], *, read_committed: bool, most: int | None = None
    ) -> Iterator[tuple[LogRange, Seen]]:
        """Yield each range with what its log showed. Members wait for the answer, so ranges of logs that could not be
        read before come last. At most one of these logs is read within AFTER_ERROR_S. The first log that can't be read
        ends the reading."""
        for log_range in sorted(ranges, key=lambda log_range: self._failed.get(log_range.offsets.key, 0.0)):
            if log_range.offsets.key in self._failed and time.monotonic() < self._not_before_s:
                return
            try:
                seen = self._look(log_range, most or log_range.offsets.size, read_committed=read_committed)
            except (BrokerNotReachable, BrokerRefused) as error:
                self._left_alone(log_range)
                where = f"{log_range.topic}-{log_range.offsets.partition}"
                _log.warning("could not read which records of %s exist: %s", where, error)
                return
            if _is_whole(log_range, seen) or (most and len(seen.offsets) == most):
                self._failed.pop(log_range.offsets.key, None)
            else:
                self._left_alone(log_range)
            yield log_range, seen

    def _left_alone(self, log_range: LogRange) -> None:
        """Let nobody read the range's log for AFTER_ERROR_S."""
        if len(self._failed) >= KNOWN:
            self._failed = {}
        self._failed[log_range.offsets.key] = now_s = time.monotonic()
        self._not_before_s = now_s + AFTER_ERROR_S

    def _look(self, log_range: LogRange, most: int, *, read_committed: bool) -> Seen:
        first, last = log_range.offsets.first, log_range.offsets.last
        return self._cluster.existing(log_range.topic_partition, first, last, most=most, read_committed=read_committed)


def count_offsets(ranges: Iterable[OffsetRange]) -> int:
    """The number of offsets in all ranges together."""
    return sum(offsets.size for offsets in ranges)


def _is_whole(log_range: LogRange, seen: Seen) -> bool:
    return seen.first <= log_range.offsets.first and log_range.offsets.last < seen.end


def _between(log_range: LogRange, seen: Seen) -> list[OffsetRange]:
    edges = [max(log_range.offsets.first, seen.first) - 1, *seen.offsets, min(log_range.offsets.last + 1, seen.end)]
    return [
        log_range.offsets._replace(first=before + 1, last=after - 1)
        for before, after in pairwise(edges)
        if after - before > 1
    ]


def ranges_of(offsets: Iterable[tuple[Key, int]]) -> Iterator[tuple[Key, int, int]]:
    """Pairs of key and offset as ranges ``(key, first, last)``: offsets of one key that follow each other, in the given
    order, are one range."""
    reached: tuple[Key, int, int] | None = None
    for key, offset in offsets:
        if reached is not None and offset == reached[2] + 1 and key == reached[0]:
            reached = (key, reached[1], offset)
            continue
        if reached is not None:
            yield reached
        reached = (key, offset, offset)
    if reached is not None:
        yield reached
