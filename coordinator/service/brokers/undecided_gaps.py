"""Finds the gaps among the offsets that no sink decided, before a completion releases the other offsets.

A batch may leave millions of records undecided, and a request must be answered in time. So one request reads for a
bounded time, and the next request for the plan continues there. Of several requests for one plan (a query that was
started again while its first request still runs) one reads at a time.

Rule: an offset is a gap only if the log was read over it; this is never guessed.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

from coordinator.core.commands.view_group import LogRange
from coordinator.protocol.values import OffsetRange
from coordinator.service.brokers.cluster import Cluster
from coordinator.service.brokers.log_gaps import count_offsets, ranges_of

CALL_S = 10.0
"""Seconds for which one request reads; far less than a client waits for its answer."""
AT_ONCE = 50_000
"""The most offsets of one question to the cluster."""
PLANS_KEPT = 100

Asked = tuple[str, str, str]
"""The group, the member and the plan id."""


class UndecidedLook:
    """The reading of one plan's undecided offsets: of ``total`` offsets ``read`` are checked, and ``gaps`` are those of
    them that the log does not hold."""

    def __init__(self, ranges: tuple[LogRange, ...], *, read_committed: bool) -> None:
        self.ranges, self.read_committed = ranges, read_committed
        self.total = count_offsets(held.offsets for held in ranges)
        self.read = 0
        self.gaps: list[OffsetRange] = []
        self.reading = threading.Lock()
        self._at, self._offset = 0, -1

    @property
    def is_done(self) -> bool:
        return self.read == self.total

    def read_on(self, cluster: Cluster, until_s: float) -> None:
        """Read until every offset is checked, or the monotonic clock reaches ``until_s``.

        Raises:
            BrokerNotReachable, BrokerRefused: the log can't be read; the progress until then is kept.
        """
        while not self.is_done:
            pieces = self._next_pieces()
            absent, answered = cluster.absent(
                pieces[0].topic_partition, _offsets_of(pieces), read_committed=self.read_committed, until_s=until_s
            )
            self._note(pieces[0].offsets, absent)
            self._advance(answered)
            if time.monotonic() >= until_s:
                return

    def _next_pieces(self) -> list[LogRange]:
        """The next offsets of one partition: a part of one range, or several whole ones."""
        topic, offsets = self.ranges[self._at]
        begin = max(offsets.first, self._offset)
        piece = offsets._replace(first=begin, last=min(offsets.last, begin + AT_ONCE - 1))
        pieces, room = [LogRange(topic, piece)], AT_ONCE - piece.size
        following = self.ranges[self._at + 1 : self._at + AT_ONCE]
        for held in takewhile(lambda held: held.topic == topic and held.offsets.key == offsets.key, following):
            room -= held.offsets.size
            if room < 0:
                break
            pieces.append(held)
        return pieces

    def _note(self, read: OffsetRange, absent: Sequence[int]) -> None:
        for _, first, last in ranges_of((None, offset) for offset in absent):
            before = self.gaps[-1] if self.gaps else None
            if before is not None and (before.key, before.last) == (read.key, first - 1):
                first = self.gaps.pop().first
            self.gaps.append(read._replace(first=first, last=last))

    def _advance(self, answered: int) -> None:
        self.read += answered
        while answered:
            offsets = self.ranges[self._at].offsets
            begin = max(offsets.first, self._offset)
            taken = min(answered, offsets.last - begin + 1)
            answered -= taken
            self._offset = begin + taken
            if self._offset > offsets.last:
                self._at, self._offset = self._at + 1, -1


class UndecidedLooks:
    """The readings by plan. Thread-safe. Keeps the PLANS_KEPT plans that were asked for last."""

    def __init__(self, cluster: Cluster, *, call_s: float = CALL_S) -> None:
        self._cluster = cluster
        self._call_s = call_s
        self._looks: OrderedDict[Asked, UndecidedLook] = OrderedDict()
        self._guard = threading.Lock()

    def go_on(self, asked: Asked, ranges: tuple[LogRange, ...], *, read_committed: bool) -> UndecidedLook:
        """Continue the plan's reading for ``call_s``, unless another request does so now, and return it. ``ranges``
        ascend.

        Raises:
            BrokerNotReachable, BrokerRefused: the log can't be read.
        """
        until_s = time.monotonic() + self._call_s
        look = self._look(asked, ranges, read_committed=read_committed)
        if look.reading.acquire(timeout=self._call_s):
            try:
                look.read_on(self._cluster, until_s)
            finally:
                look.reading.release()
        return look

    def forget(self, asked: Asked) -> None:
        """Drop the reading of a plan that is completed."""
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
    spans = [held.offsets.as_range() for held in pieces]
    return spans[0] if len(spans) == 1 else [offset for span in spans for offset in span]
