"""How many records a group has acquired within the last second: share.max.records.per.second counts them."""

from __future__ import annotations

import sys
from collections import deque

SECOND_MS = 1_000
STEP_MS = 10
"""Acquisitions within the same step of this many milliseconds are kept as one, at the time of the last: a second has a
bounded number of steps, however many members acquire."""


class RecentAcquisitions:
    """The acquisitions of the last second, the oldest first, by their times in milliseconds."""

    __slots__ = ("_acquired",)

    def __init__(self) -> None:
        self._acquired: deque[tuple[int, int]] = deque()

    def __repr__(self) -> str:
        return f"<RecentAcquisitions {list(self._acquired)}>"

    def fill(self, now_ms: int) -> None:
        """Count the last second as used up: its acquisitions are not known."""
        self._acquired.clear()
        self._acquired.append((now_ms, sys.maxsize))

    def add(self, at_ms: int, records: int) -> None:
        """Record an acquisition. Its time is not before those of earlier ones."""
        if self._acquired and self._acquired[-1][0] // STEP_MS == at_ms // STEP_MS:
            records += self._acquired.pop()[1]
        self._acquired.append((at_ms, records))
        while self._acquired[0][0] <= at_ms - SECOND_MS:
            self._acquired.popleft()

    def left(self, most: int, now_ms: int) -> tuple[int, int]:
        """Returns how many records may be acquired now, if a second may have ``most`` acquisitions. If that is none,
        also the milliseconds until it is one or more; else 0."""
        left = most
        for at_ms, records in reversed(self._acquired):
            if at_ms <= now_ms - SECOND_MS:
                break
            if records >= left:
                return 0, at_ms + SECOND_MS - now_ms
            left -= records
        return left, 0
