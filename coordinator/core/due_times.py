"""Finds what is due: work of groups and ends of sessions (:class:`DueTimes`), and ends of ShareConsumers' locks
(:class:`LockIndex`).

Rule: neither scans all its times. A coordinator may serve thousands of groups, a group may have a million locks, and
each round of the runtime asks both.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Container, Iterable, Iterator
from typing import TypeAlias

from sortedcontainers import SortedList

from coordinator.core.runs import Run

Runs: TypeAlias = tuple[tuple[int, int, Run], ...]

_BOUND_BITS = 64
_HALF = 1 << (_BOUND_BITS - 1)


class DueTimes:
    """At most one time, in milliseconds, for each name: the id of a group or a member."""

    __slots__ = ("_of_name", "_ordered")

    def __init__(self) -> None:
        self._of_name: dict[str, int] = {}
        self._ordered: SortedList[tuple[int, str]] = SortedList()

    def __len__(self) -> int:
        return len(self._of_name)

    def __repr__(self) -> str:
        return f"<DueTimes {len(self._of_name)}>"

    def set(self, name: str, due_ms: int | None) -> None:
        """Set the time of the name; None removes it."""
        before_ms = self._of_name.pop(name, None)
        if before_ms is not None:
            self._ordered.remove((before_ms, name))
        if due_ms is not None:
            self._of_name[name] = due_ms
            self._ordered.add((due_ms, name))

    def earliest_ms(self) -> int | None:
        """Returns the earliest time; None if no name has one."""
        return self._ordered[0][0] if self._ordered else None

    def due(self, now_ms: int) -> list[str]:
        """The names whose time is ``now_ms`` or earlier, sorted by name."""
        later = self._ordered.bisect_left((now_ms + 1, ""))
        return sorted(name for _, name in self._ordered[:later])


class LockIndex:
    """Extends the locks of a group's ShareConsumers all at once, and finds those that are due.

    Rule: an extension changes no run, since a group may have a million runs. Instead, a run in memory has its deadline
    in the index's own form, a *kept* deadline. It lacks the time by which locks had been extended before this lock was
    given, and contains the number of bounds that had come before. A bound is a time before which no lock ends that was
    given before the bound was set. The log, replies and views have deadlines of the coordinator's clock.

    Inside, ``_since`` has the ends of locks that were given since the last bound, and ``_before`` those of earlier
    locks. Each is a heap of (kept deadline without the number of bounds, plan id).
    """

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
        """Returns the runs with kept deadlines, for memory. The deadlines of the given runs are times of the clock, or
        none."""
        return runs if self._is_new else tuple((first, last, self._kept(run)) for first, last, run in runs)

    def shown(self, runs: Iterable[tuple[int, int, Run]]) -> Runs:
        """Returns the runs with their deadlines as times of the clock, for the log. The given runs have kept deadlines,
        or none."""
        if self._is_new:
            return tuple((first, last, run) for first, last, run in runs)
        return tuple((first, last, self._shown(run)) for first, last, run in runs)

    def deadline_ms(self, kept_ms: int) -> int:
        """The deadline of the clock, in milliseconds, for a kept deadline."""
        bounds, kept_ms = _parts(kept_ms)
        return (max(kept_ms, self._bound_ms) if bounds < self._bounds else kept_ms) + self._extended_ms

    @property
    def _is_new(self) -> bool:
        """Whether nothing was extended yet, so that kept deadlines are those of the clock."""
        return not (self._bounds or self._extended_ms)

    def _kept(self, run: Run) -> Run:
        if run.deadline_ms is None:
            return run
        return run._replace(deadline_ms=(self._bounds << _BOUND_BITS) + run.deadline_ms - self._extended_ms)

    def _shown(self, run: Run) -> Run:
        return run if run.deadline_ms is None else run._replace(deadline_ms=self.deadline_ms(run.deadline_ms))

    def frozen(self) -> LockIndex:
        """An index that shows kept deadlines for ever as this one does now, and finds no locks."""
        index = LockIndex()
        index._extended_ms, index._bounds, index._bound_ms = self._extended_ms, self._bounds, self._bound_ms
        return index

    # --- what is due

    def watch(self, plan_id: int, kept_ms: int, plans: Container[int]) -> None:
        """Add the kept deadline of a lock of the plan that was given now. ``plans``: the ids of the group's plans."""
        for heap in (self._since, self._before):
            while heap and heap[0][1] not in plans and heap[0][1] != plan_id:
                heapq.heappop(heap)
        heapq.heappush(self._since, (_parts(kept_ms)[1], plan_id))

    def next_ms(self) -> int | None:
        """Returns the earliest end of a lock; None if there is no lock. A lock has ended once its end lies before
        now."""
        ends = [self._since[0][0]] if self._since else []
        ends += [max(self._before[0][0], self._bound_ms)] if self._before else []
        return min(ends) + self._extended_ms if ends else None

    def due(self, now_ms: int) -> set[int]:
        """The ids of plans with a lock that ends before ``now_ms``."""
        kept_ms = now_ms - self._extended_ms
        heaps = (self._since, self._before) if self._bound_ms < kept_ms else (self._since,)
        return {plan_id for heap in heaps for _, plan_id in _entries_until(heap, kept_ms - 1)}

    def passed(self, now_ms: int, plan_ids: Collection[int] | None = None) -> None:
        """Drop the ends before ``now_ms``, of ``plan_ids`` or of all plans. These locks must have been ended."""
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
        """End all present locks later by ``by_ms`` and, if a bound is given, no earlier than ``bound_ms``. The bound
        before must have passed: only the last bound counts."""
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
    """The number of bounds in a kept deadline, and the rest of it."""
    bounds = (kept_ms + _HALF) >> _BOUND_BITS
    return bounds, kept_ms - (bounds << _BOUND_BITS)


def _entries_until(heap: list[tuple[int, int]], until_ms: int) -> Iterator[tuple[int, int]]:
    """Yield the heap's entries up to this time, in no order."""
    look = [0]
    while look:
        index = look.pop()
        if index < len(heap) and heap[index][0] <= until_ms:
            yield heap[index]
            look += [2 * index + 1, 2 * index + 2]
