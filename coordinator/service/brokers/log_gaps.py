"""Which acquired offsets the log really holds: compaction, transaction markers and aborted batches leave gaps.

Plans hold gaps, since nobody has read the log when it is acquired, and accepting them is harmless. Three things must
not rest on them, and only for these is the log read (design §4.6): that a batch was completed is no evidence that
processing works if there was nothing in it; a record that was set aside is not tried alone if there is none; and what
no sink decided, in explicit mode, is not released.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import groupby, islice, pairwise

from coordinator.core.commands import Gap
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused
from coordinator.service.brokers.cluster import Cluster
from coordinator.service.brokers.offset_ranges import ranges_of
from coordinator.service.runtime.transactions import Held

MOST_RANGES = 100
KNOWN = 10_000
AFTER_ERROR_S = 10.0

_log = logging.getLogger(__name__)


class Gaps:
    """Thread-safe: what it remembers is only ever added to, or thrown away as a whole."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: set[Held] = set()
        self._not_before_s = 0.0

    def holds_any(self, ranges: Iterable[Held], *, read_committed: bool) -> bool:
        """Whether there is a record in one of the first ranges; False also while the log can't be read."""
        return any(self._existing(held, 1, read_committed=read_committed) for held in islice(ranges, MOST_RANGES))

    def surely_holds_any(self, ranges: Iterable[Held], *, read_committed: bool) -> bool:
        """The same, never a guess: BrokerNotReachable or BrokerRefused if the log can't be read."""
        return any(self._look(held, 1, read_committed=read_committed) for held in islice(ranges, MOST_RANGES))

    def among(self, ranges: Iterable[Held], *, read_committed: bool) -> tuple[Gap, ...]:
        """Those of the offsets that the log does not hold; none while it can't be read."""
        found: list[Gap] = []
        for held in ranges:
            if held in self._known:
                continue
            there = self._existing(held, held.last - held.first + 1, read_committed=read_committed)
            if there is None:
                break
            found += _between(held, there)
            if len(self._known) >= KNOWN:
                self._known = set()
            self._known.add(held)
        return tuple(found)

    def absent(self, ranges: Iterable[Held], *, read_committed: bool) -> tuple[Gap, ...]:
        """Those of the offsets of ascending ranges that the log does not hold, never a guess: BrokerNotReachable if it
        can't be read."""
        found = ranges_of(self._absent(ranges, read_committed=read_committed))
        return tuple(
            Gap(topic_id=topic_id, partition=partition, first=first, last=last)
            for (topic_id, partition), first, last in found
        )

    def _absent(self, ranges: Iterable[Held], *, read_committed: bool) -> Iterator[tuple[tuple[str, int], int]]:
        for (topic, topic_id, partition), of_one in groupby(ranges, key=lambda held: held[:3]):
            offsets = [offset for held in of_one for offset in range(held.first, held.last + 1)]
            for offset in self._cluster.absent((topic, partition), offsets, read_committed=read_committed):
                yield (topic_id, partition), offset

    def _existing(self, held: Held, most: int, *, read_committed: bool) -> list[int] | None:
        """None if the log can't be read. Then it is left alone for a while: members wait for the answer."""
        if time.monotonic() < self._not_before_s:
            return None
        try:
            return self._look(held, most, read_committed=read_committed)
        except (BrokerNotReachable, BrokerRefused) as error:
            self._not_before_s = time.monotonic() + AFTER_ERROR_S
            _log.warning("the log can't be read to see which records exist: %s", error)
            return None

    def _look(self, held: Held, most: int, *, read_committed: bool) -> list[int]:
        where = (held.topic, held.partition)
        return self._cluster.existing(where, held.first, held.last, most=most, read_committed=read_committed)


def count_offsets(ranges: Iterable[Held | Gap]) -> int:
    """Offsets in all of them together."""
    return sum(r.last - r.first + 1 for r in ranges)


def _between(held: Held, there: list[int]) -> list[Gap]:
    """The holes that the existing offsets leave in a range."""
    edges = [held.first - 1, *there, held.last + 1]
    return [
        Gap(topic_id=held.topic_id, partition=held.partition, first=before + 1, last=after - 1)
        for before, after in pairwise(edges)
        if after - before > 1
    ]
