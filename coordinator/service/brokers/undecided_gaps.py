"""Which of the offsets that no sink decided the log does not hold: read before a completion may release the others.

A batch may have left millions of records undecided, and a request must be answered in time. So one request reads for a
bounded time, and what it read is remembered for the next one, which goes on from there. Of several requests for the
same plan (a query that was started again while its first request is still here) one reads at a time.

Rule: never a guess; an offset is a gap only if the log was read over it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

from coordinator.core.commands import Gap
from coordinator.service.brokers.cluster import Cluster
from coordinator.service.brokers.offset_ranges import LogRange, ranges_of

CALL_S = 10.0
"""So long one request reads; far less than a client waits for its answer."""
AT_ONCE = 50_000
"""Offsets that are asked for at once."""
PLANS_KEPT = 100

Asked = tuple[str, str, str]
"""Group, member, and the plan's number."""


class UndecidedLook:
    """How far one plan's offsets have been read. ``gaps``: those that the log does not hold, of ``read`` that were
    asked for, of ``total``."""

    def __init__(self, ranges: tuple[LogRange, ...], *, read_committed: bool) -> None:
        self.ranges, self.read_committed = ranges, read_committed
        self.total = sum(held.last - held.first + 1 for held in ranges)
        self.read = 0
        self.gaps: list[Gap] = []
        self.reading = threading.Lock()
        self._at, self._offset = 0, -1

    @property
    def is_done(self) -> bool:
        return self.read == self.total

    @property
    def gap_count(self) -> int:
        """Offsets that the log does not hold."""
        return sum(gap.last - gap.first + 1 for gap in self.gaps)

    def read_on(self, cluster: Cluster, until_s: float) -> None:
        """Until the end, or until that time of the monotonic clock. BrokerNotReachable, BrokerRefused; what was read
        before is remembered."""
        while not self.is_done:
            pieces = self._next_pieces()
            where = (pieces[0].topic, pieces[0].partition)
            absent, answered = cluster.absent(
                where, _offsets_of(pieces), read_committed=self.read_committed, until_s=until_s
            )
            self._note(pieces[0], absent)
            self._advance(answered)
            if time.monotonic() >= until_s:
                return

    def _next_pieces(self) -> list[LogRange]:
        """The next offsets of one partition: a part of one range, or several whole ones."""
        first = self.ranges[self._at]
        begin = max(first.first, self._offset)
        pieces = [first._replace(first=begin, last=min(first.last, begin + AT_ONCE - 1))]
        left = AT_ONCE - (pieces[0].last - begin + 1)
        for held in takewhile(lambda held: held[:3] == first[:3], self.ranges[self._at + 1 : self._at + AT_ONCE]):
            left -= held.last - held.first + 1
            if left < 0:
                break
            pieces.append(held)
        return pieces

    def _note(self, place: LogRange, absent: Sequence[int]) -> None:
        for _, first, last in ranges_of((None, offset) for offset in absent):
            before = self.gaps[-1] if self.gaps else None
            here = (place.topic_id, place.partition, first - 1)
            if before is not None and (before.topic_id, before.partition, before.last) == here:
                first = self.gaps.pop().first
            self.gaps.append(Gap(topic_id=place.topic_id, partition=place.partition, first=first, last=last))

    def _advance(self, answered: int) -> None:
        self.read += answered
        while answered:
            held = self.ranges[self._at]
            begin = max(held.first, self._offset)
            taken = min(answered, held.last - begin + 1)
            answered -= taken
            self._offset = begin + taken
            if self._offset > held.last:
                self._at, self._offset = self._at + 1, -1


class UndecidedLooks:
    """Thread-safe. Remembers at most PLANS_KEPT plans, those that were asked for last."""

    def __init__(self, cluster: Cluster, *, call_s: float = CALL_S) -> None:
        self._cluster = cluster
        self._call_s = call_s
        self._looks: OrderedDict[Asked, UndecidedLook] = OrderedDict()
        self._guard = threading.Lock()

    def go_on(self, asked: Asked, ranges: tuple[LogRange, ...], *, read_committed: bool) -> UndecidedLook:
        """Read on for a while, unless another request does; how far it has come. The ranges ascend."""
        until_s = time.monotonic() + self._call_s
        look = self._look(asked, ranges, read_committed=read_committed)
        if look.reading.acquire(timeout=self._call_s):
            try:
                look.read_on(self._cluster, until_s)
            finally:
                look.reading.release()
        return look

    def forget(self, asked: Asked) -> None:
        """The plan is completed."""
        with self._guard:
            self._looks.pop(asked, None)

    def _look(self, asked: Asked, ranges: tuple[LogRange, ...], *, read_committed: bool) -> UndecidedLook:
        with self._guard:
            look = self._looks.pop(asked, None)
            if look is None or (look.ranges, look.read_committed) != (ranges, read_committed):
                look = UndecidedLook(ranges, read_committed=read_committed)
            self._looks[asked] = look
            if len(self._looks) > PLANS_KEPT:
                self._looks.popitem(last=False)
            return look


def _offsets_of(pieces: list[LogRange]) -> Sequence[int]:
    if len(pieces) == 1:
        return range(pieces[0].first, pieces[0].last + 1)
    return [offset for held in pieces for offset in range(held.first, held.last + 1)]
