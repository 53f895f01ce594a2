"""Runs: offset ranges of a share partition whose records are all alike, in order, disjoint, and merged.

One representation serves whole batches and single offsets: :meth:`RunMap.put` splits at its edges, replaces what lies
between, and merges equal neighbours. The counts and indexes beside the map are kept by the same two methods that insert
and remove a run, so they can't drift.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sortedcontainers import SortedDict, SortedList

from coordinator.record_state import TERMINAL, RecordState


class Run(NamedTuple):
    """What is known of each record of a run; its offsets are the map's.

    delivery_count: acquisitions so far. failures, releases: see design §2, *tries*. acquisition: the number of the plan
    that holds it, or, AVAILABLE, held it and may come back; None once nobody may. deadline_ms: a ShareConsumer's lock;
    None for a query's, which lives as long as its session. not_before_ms: not acquired earlier. set_aside_ms: None, or
    when the record first failed alone (0: not yet). last_tried_ms: when it was last delivered alone. lost_trials:
    trials that ended in a lost lock and were not judged then.
    """

    state: RecordState
    delivery_count: int = 0
    failures: int = 0
    releases: int = 0
    acquisition: int | None = None
    deadline_ms: int | None = None
    not_before_ms: int | None = None
    set_aside_ms: int | None = None
    last_tried_ms: int | None = None
    lost_trials: int = 0

    @property
    def tries(self) -> int:
        """What limits compare: deliveries that failed plus releases, never the delivery count."""
        return self.failures + self.releases


class Segment(NamedTuple):
    """Offsets ``first`` to ``last`` inclusive, and the run that they are (a part of)."""

    first: int
    last: int
    run: Run


class RunMap:
    """The runs of one share partition by first offset.

    ``counts``: records by state. ``carried``: records by acquisition number. ``ready``: first offsets of AVAILABLE runs
    that may be acquired at once; ``delayed``: (not before, first) of those that may be later; ``set_aside``:
    (last tried, first) of those that are delivered alone. ``changed_numbers``: numbers that came or went since the
    group last looked (it drops plans that nobody carries).
    """

    __slots__ = ("_firsts", "_runs", "carried", "changed_numbers", "counts", "delayed", "ready", "set_aside")

    def __init__(self) -> None:
        self._runs: SortedDict[int, tuple[int, Run]] = SortedDict()
        self._firsts = self._runs.keys()
        self.counts: list[int] = [0] * len(RecordState)
        self.carried: dict[int, int] = {}
        self.changed_numbers: set[int] = set()
        self.ready: SortedList[int] = SortedList()
        self.delayed: SortedList[tuple[int, int]] = SortedList()
        self.set_aside: SortedList[tuple[int, int]] = SortedList()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Segment]:
        for first, (last, run) in self._runs.items():
            yield Segment(first, last, run)

    def starting_at(self, first: int) -> Segment | None:
        """The run that starts exactly at ``first``."""
        entry = self._runs.get(first)
        return None if entry is None else Segment(first, *entry)

    def first(self) -> Segment | None:
        """The lowest run."""
        return self.starting_at(self._firsts[0]) if self._runs else None

    def between(self, first: int, last: int) -> Iterator[Segment]:
        """The runs in ``first..last``, the outer ones clipped to it."""
        runs = self._runs
        if (entry := runs.get(first)) is not None:
            end, run = entry
            if end >= last:
                yield Segment(first, last, run)
                return
            yield Segment(first, end, run)
        elif (before := runs.bisect_right(first) - 1) >= 0:
            end, run = runs[self._firsts[before]]
            if end >= first:
                yield Segment(first, min(end, last), run)
        for start in runs.irange(first + 1, last):
            end, run = runs[start]
            yield Segment(start, min(end, last), run)

    def put(self, first: int, last: int, run: Run, neighbour: int | None = None) -> int:
        """Make ``first..last`` one run, whatever was there, merged with equal neighbours; where that run starts.

        ``neighbour``: where the run starts that ``first - 1`` is in, of a caller who knows it: it saves the search.
        """
        runs = self._runs
        entry = runs.get(first)
        if entry is not None and entry[0] == last:
            self._remove(first, last, entry[1])
        else:
            self._carve(first, last)
        after = runs.get(last + 1)
        if after is not None and after[1] == run:
            self._remove(last + 1, *after)
            del runs[last + 1]
            last = after[0]
        if neighbour is None and (index := runs.bisect_left(first) - 1) >= 0:
            neighbour = self._firsts[index]
        if neighbour is not None:
            end, before = runs[neighbour]
            if end == first - 1 and before == run:
                self._remove(neighbour, end, before)
                runs.pop(first, None)
                first = neighbour
        self._insert(first, last, run)
        return first

    def drop(self, first: int) -> None:
        """Forget the run that starts at ``first``."""
        last, run = self._runs.pop(first)
        self._remove(first, last, run)

    def _carve(self, first: int, last: int) -> None:
        """Take ``first..last`` out, splitting the runs that reach over its edges."""
        for start, end, run in self._touching(first, last):
            self._remove(start, end, run)
            if start < first:
                self._insert(start, first - 1, run)
            else:
                del self._runs[start]
            if end > last:
                self._insert(last + 1, end, run)

    def _touching(self, first: int, last: int) -> list[Segment]:
        index = self._runs.bisect_left(first) - 1
        found = []
        if index >= 0:
            start = self._firsts[index]
            if self._runs[start][0] >= first:
                found.append(Segment(start, *self._runs[start]))
        found.extend(Segment(start, *self._runs[start]) for start in self._runs.irange(first, last))
        return found

    def _insert(self, first: int, last: int, run: Run) -> None:
        self._runs[first] = (last, run)
        records = last - first + 1
        self.counts[run.state] += records
        if run.acquisition is not None:
            held = self.carried.get(run.acquisition, 0)
            self.carried[run.acquisition] = held + records
            if not held:
                self.changed_numbers.add(run.acquisition)
        if run.state == RecordState.AVAILABLE:
            if run.set_aside_ms is not None:
                self.set_aside.add((run.last_tried_ms or 0, first))
            elif run.not_before_ms is not None:
                self.delayed.add((run.not_before_ms, first))
            else:
                self.ready.add(first)

    def _remove(self, first: int, last: int, run: Run) -> None:
        records = last - first + 1
        self.counts[run.state] -= records
        if run.acquisition is not None:
            left = self.carried[run.acquisition] - records
            if left:
                self.carried[run.acquisition] = left
            else:
                del self.carried[run.acquisition]
                self.changed_numbers.add(run.acquisition)
        if run.state == RecordState.AVAILABLE:
            if run.set_aside_ms is not None:
                self.set_aside.remove((run.last_tried_ms or 0, first))
            elif run.not_before_ms is not None:
                self.delayed.remove((run.not_before_ms, first))
            else:
                self.ready.remove(first)

    def terminal_count(self) -> int:
        """Records of the map in a terminal state."""
        return sum(self.counts[state] for state in TERMINAL)
