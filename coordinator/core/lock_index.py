"""When the locks of a group's ShareConsumers end: extends all of them at once, and finds those that are due.

Rule: an extension changes no run, since a group may have a million of them. A run in memory has its deadline as the
index keeps it: less the time by which locks were extended before it was given, and marked with the number of bounds
that came before it. A bound is a time before which no lock that was given before the bound ends. The log, replies and
views have deadlines of the coordinator's clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable
from typing import TypeAlias

from coordinator.core.runs import Run

Runs: TypeAlias = tuple[tuple[int, int, Run], ...]

_BOUND_BITS = 64
_HALF = 1 << (_BOUND_BITS - 1)


class LockIndex:
    """The ends of locks by plan: ``_since`` those of locks that were given since the last bound, ``_before`` the
    earlier ones; a heap each, by the deadline as it is kept."""

    __slots__ = ("_before", "_bound_ms", "_bounds", "_extended_ms", "_since")

    def __init__(self) -> None:
        self._extended_ms = 0
        self._bounds = 0
        self._bound_ms = 0
        self._since: list[tuple[int, int]] = []
        self._before: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return f"<LockIndex {len(self._since)}+{len(self._before)} extended_ms={self._extended_ms}>"

    # --- deadlines, as they are and as they are kept

    def kept(self, runs: Runs) -> Runs:
        """The runs as memory has them: those given have deadlines of the clock, or none."""
        return runs if self._is_new else tuple((first, last, self._kept(run)) for first, last, run in runs)

    def shown(self, runs: Iterable[tuple[int, int, Run]]) -> Runs:
        """Runs of memory with deadlines of the clock, for the log."""
        if self._is_new:
            return tuple((first, last, run) for first, last, run in runs)
        return tuple((first, last, self._shown(run)) for first, last, run in runs)

    def deadline_ms(self, kept_ms: int) -> int:
        """When a lock ends, in milliseconds of the clock, whose deadline memory keeps so."""
        bounds, kept_ms = _parts(kept_ms)
        return (max(kept_ms, self._bound_ms) if bounds < self._bounds else kept_ms) + self._extended_ms

    @property
    def _is_new(self) -> bool:
        """Whether nothing was extended: deadlines are kept as they are."""
        return not (self._bounds or self._extended_ms)

    def _kept(self, run: Run) -> Run:
        if run.deadline_ms is None:
            return run
        return run._replace(deadline_ms=(self._bounds << _BOUND_BITS) + run.deadline_ms - self._extended_ms)

    def _shown(self, run: Run) -> Run:
        return run if run.deadline_ms is None else run._replace(deadline_ms=self.deadline_ms(run.deadline_ms))

    def frozen(self) -> LockIndex:
        """An index that shows deadlines for ever as this one does now; it has no ends."""
        index = LockIndex()
        index._extended_ms, index._bounds, index._bound_ms = self._extended_ms, self._bounds, self._bound_ms
        return index

    # --- what is due

    def watch(self, plan_id: int, kept_ms: int, plans: Container[int]) -> None:
        """Note the end of a lock of the plan, as it is kept, which was given now. ``plans``: those that are there."""
        for heap in (self._since, self._before):
            while heap and heap[0][1] not in plans and heap[0][1] != plan_id:
                heapq.heappop(heap)
        heapq.heappush(self._since, (_parts(kept_ms)[1], plan_id))

    def next_ms(self) -> int | None:
        """The earliest end of a lock; None: there is no lock. It is over when it lies before now."""
        ends = [self._since[0][0]] if self._since else []
        ends += [max(self._before[0][0], self._bound_ms)] if self._before else []
        return min(ends) + self._extended_ms if ends else None

    def due(self, now_ms: int) -> set[int]:
        """The ids of plans with a lock that ends before ``now_ms``."""
        kept_ms = now_ms - self._extended_ms
        return _due(self._since, kept_ms) | (_due(self._before, kept_ms) if self._bound_ms < kept_ms else set())

    def passed(self, now_ms: int, plan_ids: Collection[int] | None = None) -> None:
        """Forget the ends before ``now_ms``, of ``plan_ids`` or of all plans: these locks have been ended."""
        kept_ms = now_ms - self._extended_ms
        for heap in (self._since, self._before) if self._bound_ms < kept_ms else (self._since,):
            if plan_ids is None:
                while heap and heap[0][0] < kept_ms:
                    heapq.heappop(heap)
            else:
                heap[:] = [end for end in heap if end[0] >= kept_ms or end[1] not in plan_ids]
                heapq.heapify(heap)

    # --- extension

    def extend(self, by_ms: int, bound_ms: int | None) -> None:
        """End all locks of now later by ``by_ms``, and, if a bound is given, no earlier than ``bound_ms``. A bound
        comes when the one before it is over, so that the last one alone counts."""
        if not (self._since or self._before):
            LockIndex.__init__(self)
            return
        self._extended_ms += by_ms
        if bound_ms is not None:
            self._bounds += 1
            self._bound_ms = bound_ms - self._extended_ms
            fewer, self._before = sorted((self._since, self._before), key=len)
            self._since = []
            for end in fewer:
                heapq.heappush(self._before, end)


def _parts(kept_ms: int) -> tuple[int, int]:
    """The number of bounds before the lock, and its deadline without that number."""
    bounds = (kept_ms + _HALF) >> _BOUND_BITS
    return bounds, kept_ms - (bounds << _BOUND_BITS)


def _due(heap: list[tuple[int, int]], before_ms: int) -> set[int]:
    found, look = set(), [0]
    while look:
        index = look.pop()
        if index < len(heap) and heap[index][0] < before_ms:
            found.add(heap[index][1])
            look += [2 * index + 1, 2 * index + 2]
    return found
