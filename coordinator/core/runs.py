"""Runs: ranges of offsets of a share partition whose records are all alike; ascending, disjoint, and merged.

One representation serves whole batches and single offsets: :meth:`RunMap.replace` splits runs at the edges, replaces
what lies between, and merges equal neighbours. Every change of the map goes through ``_count`` and ``_uncount``, which
keep the counts and indexes beside the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from sortedcontainers import SortedDict, SortedList

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.protocol.values import Disposition, Int64, Offset


class Progress(NamedTuple):
    """A member's signals that its work on a record goes on: the times of the first and of the last signal, by the
    coordinator's clock, and the newest hint: what the program said about the work."""

    first_ms: Int64
    last_ms: Int64
    hint: str = ""


class Run(NamedTuple):
    """The state that all records of a run have. The run's offsets are not in it: they are the keys of the map.

    delivery_count: acquisitions so far.
    failures, releases: how many deliveries failed, and how many were given back (docs/learn/concepts.md, "Tries").
    query_failures: how many of the failures were a query's.
    plan_id: the plan that holds the record. If the record is AVAILABLE: the plan that held it, whose query may come
        back; None once no query may.
    deadline_ms: when a ShareConsumer's lock ends, in the form of :class:`coordinator.core.due_times.LockIndex`; None
        for a query's lock, which lives as long as the session.
    not_before_ms: the record is not acquired before this time.
    delay_ms: how long that delay was when it was given, by which a load bounds it; None if an older version gave it.
    quarantined: the record is delivered only alone (:mod:`coordinator.core.isolation`).
    failed_alone_ms: when the quarantined record first failed alone; None if it has not.
    last_tried_ms: when the quarantined record was last delivered alone; None if it was not.
    trials_lost: how many trials ended in a lost lock, and so without a judgement.
    disposition, reason: what the dead letter of an ARCHIVING record says.
    progress: the holder's signals; only an IN_PROGRESS record has any.
    """

    state: RecordState
    delivery_count: Offset = 0
    failures: Offset = 0
    releases: Offset = 0
    plan_id: Offset | None = None
    deadline_ms: Int64 | None = None
    not_before_ms: Int64 | None = None
    quarantined: bool = False
    failed_alone_ms: Int64 | None = None
    last_tried_ms: Int64 | None = None
    trials_lost: Offset = 0
    disposition: Disposition = Disposition.NONE
    reason: str = ""
    progress: Progress | None = None
    delay_ms: Int64 | None = None
    query_failures: Offset = 0

    @property
    def tries(self) -> int:
        """Failures plus releases. Limits are about tries, never about the delivery count."""
        return self.failures + self.releases

    @property
    def consumer_tries(self) -> int:
        """The tries that count while a ShareConsumer holds the record: all but the failures of queries."""
        return self.tries - self.query_failures


FRESH = Run(RecordState.AVAILABLE)
"""A record that was never acquired. It has no run in a map."""


class Segment(NamedTuple):
    """Offsets ``first`` to ``last`` inclusive, which are a run or a part of one, and the state of that run."""

    first: int
    last: int
    run: Run


_ABOVE_ALL_OFFSETS = 2**63


class FrozenRuns:
    """The runs of a map as they were at one moment. Later changes of the map do not show here."""

    __slots__ = ("_entries", "_firsts", "_keys")

    def __init__(self, runs: SortedDict[int, tuple[int, Run]]) -> None:
        self._firsts = list(runs.keys())
        # dict's own views are copied at once; the sorted views would look up each run.
        self._keys, self._entries = list(dict.keys(runs)), list(dict.values(runs))

    def steps(self, most: int) -> Iterator[list[tuple[int, int, Run]]]:
        """Yield the runs as (first, last, run) in order, up to ``most`` in each list."""
        entries = dict(zip(self._keys, self._entries, strict=True))
        for at in range(0, len(self._firsts), most):
            yield [(first, *entries[first]) for first in self._firsts[at : at + most]]


class RunMap:
    """The runs of one share partition by first offset.

    counts: the number of records by state. carried: the number of records by plan id.
    timed: how many AVAILABLE runs have a time before which they are not acquired. It may have passed.
    changed_plan_ids: plan ids that came or went since the group last cleared this set; it drops plans that no run
        carries.

    Private indexes of first offsets:

    _ready: AVAILABLE runs that may be acquired at once.
    _delayed: AVAILABLE runs that may be acquired later, as (not before, first).
    _quarantined: AVAILABLE runs that are delivered alone, as (last tried, first).
    _backing_off: those of the quarantined runs that wait, as (not before, first).
    _archiving: runs whose dead letters are not written yet.
    """

    __slots__ = (
        "_archiving",
        "_backing_off",
        "_delayed",
        "_firsts",
        "_quarantined",
        "_ready",
        "_runs",
        "carried",
        "changed_plan_ids",
        "counts",
        "timed",
    )

    def __init__(self) -> None:
        self._runs: SortedDict[int, tuple[int, Run]] = SortedDict()
        self._firsts = self._runs.keys()
        self.counts: list[int] = [0] * len(RecordState)
        self.carried: dict[int, int] = {}
        self.changed_plan_ids: set[int] = set()
        self.timed = 0
        self._ready: SortedList[int] = SortedList()
        self._delayed: SortedList[tuple[int, int]] = SortedList()
        self._quarantined: SortedList[tuple[int, int]] = SortedList()
        self._backing_off: SortedList[tuple[int, int]] = SortedList()
        self._archiving: SortedList[int] = SortedList()

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Segment]:
        for first, (last, run) in self._runs.items():
            yield Segment(first, last, run)

    def frozen(self) -> FrozenRuns:
        return FrozenRuns(self._runs)

    def first(self) -> Segment | None:
        """Returns the run with the lowest offsets; None if the map is empty."""
        if not self._runs:
            return None
        first = self._firsts[0]
        return Segment(first, *self._runs[first])

    def at(self, offset: int) -> Segment | None:
        """Returns the whole run that holds this offset; None if no run does."""
        entry = self._runs.get(offset)
        if entry is not None:
            return Segment(offset, *entry)
        index = self._runs.bisect_left(offset) - 1
        if index < 0:
            return None
        first = self._firsts[index]
        last, run = self._runs[first]
        return Segment(first, last, run) if last >= offset else None

    def between(self, first: int, last: int) -> Iterator[Segment]:
        """Yield the runs in ``first..last``; runs that reach beyond that range are cut."""
        if (whole := self.at(first)) is not None:
            yield Segment(first, min(whole.last, last), whole.run)
            if whole.last >= last:
                return
        runs = self._runs
        for start in runs.irange(first + 1, last):
            end, run = runs[start]
            yield Segment(start, min(end, last), run)

    def whole_from(self, offset: int) -> Iterator[Segment]:
        """Yield the whole runs that end at ``offset`` or above it, in offset order."""
        inside = self.at(offset)
        for first in self._runs.irange(offset if inside is None else inside.first):
            yield Segment(first, *self._runs[first])

    def starting_below(self, offset: int) -> list[Segment]:
        """The whole runs that start below ``offset``."""
        return [Segment(first, *self._runs[first]) for first in self._runs.irange(None, offset, (True, False))]

    def available(self, now_ms: int) -> Iterator[Segment]:
        """Yield the whole AVAILABLE runs that may be acquired with others at ``now_ms``, in offset order."""
        firsts: Iterable[int] = self._ready
        if self._delayed:
            due = [first for _, first in self._delayed.irange(None, (now_ms, _ABOVE_ALL_OFFSETS))]
            firsts = sorted([*self._ready, *due]) if due else self._ready
        for first in firsts:
            yield Segment(first, *self._runs[first])

    def all_available(self) -> Iterator[Segment]:
        """Yield the whole AVAILABLE runs in offset order, also those that may not be acquired yet. The runs that wait
        for their dead letters, which may be many, are not looked at."""
        later = sorted(first for _, first in (*self._delayed, *self._quarantined))
        for first in merge(self._ready, later):
            yield Segment(first, *self._runs[first])

    def quarantined(self) -> Iterator[Segment]:
        """Yield the whole AVAILABLE runs that are delivered only alone, the least recently tried first."""
        for _, first in self._quarantined:
            yield Segment(first, *self._runs[first])

    @property
    def has_quarantined(self) -> bool:
        """Whether an AVAILABLE run is delivered only alone."""
        return bool(self._quarantined)

    def archiving_from(self, offset: int) -> Iterator[Segment]:
        """Yield the whole runs that wait for their dead letters and end at ``offset`` or above it, in offset order."""
        inside = self.at(offset)
        for first in self._archiving.irange(offset if inside is None else inside.first):
            yield Segment(first, *self._runs[first])

    def due_after(self, now_ms: int) -> int | None:
        """The earliest time after ``now_ms`` at which an AVAILABLE run is no longer delayed, or no longer backs off;
        None: no run waits."""
        after = (now_ms, _ABOVE_ALL_OFFSETS)
        found = [next(each.irange(after), None) for each in (self._delayed, self._backing_off) if each]
        return min((due_ms for due_ms, _ in filter(None, found)), default=None)

    def put(self, first: int, last: int, run: Run) -> None:
        """Replace ``first..last`` by one run, merged with equal neighbours."""
        self.replace([(first, last, run)])

    def replace(self, pieces: Sequence[tuple[int, int, Run]]) -> None:
        """Replace the offsets of these pieces, which must be ascending and adjacent; equal neighbours are merged."""
        runs = self._runs
        first, last, edge = pieces[0][0], pieces[-1][1], pieces[-1][2]
        entry = runs.get(first)
        if entry is not None and entry[0] >= last:
            touched = [first]
        else:
            touched = [] if not runs or self._firsts[-1] < first else list(runs.irange(first, last))
        head, tail = None, None
        if (index := runs.bisect_left(first) - 1) >= 0:
            start = self._firsts[index]
            end, before = runs[start]
            if end >= first or (end == first - 1 and before == pieces[0][2]):
                touched.insert(0, start)
                head = (start, first - 1, before)
        if touched:
            end, old = runs[touched[-1]]
            if end > last:
                tail = (last + 1, end, old)
        if tail is None and (entry := runs.get(last + 1)) is not None and entry[1] == edge:
            touched.append(last + 1)
            tail = (last + 1, *entry)
        merged = pieces if len(pieces) == 1 and head is tail is None else _merged(pieces, head, tail)
        new = {start: (end, run) for start, end, run in merged}
        for start in touched:
            self._uncount(start, *runs[start])
            if start not in new:
                del runs[start]
        if len(new) == 1:
            runs[merged[0][0]] = merged[0][1:]
        else:
            runs.update(new)
        self._count(merged)

    def drop(self, first: int) -> None:
        """Remove the run that starts at ``first``."""
        last, run = self._runs.pop(first)
        self._uncount(first, last, run)

    def drop_terminal(self, offset: int) -> int:
        """Remove the terminal runs that follow each other from ``offset`` on. Returns the offset after the last."""
        lowest, dropped = offset, 0
        while (entry := self._runs.get(offset)) is not None and entry[1].state in TERMINAL:
            self._uncount(offset, *entry)
            offset, dropped = entry[0] + 1, dropped + 1
        if dropped == 1:
            del self._runs[lowest]
        elif dropped:
            at = self._runs.bisect_left(lowest)
            del self._firsts[at : at + dropped]
        return offset

    def _count(self, pieces: Iterable[tuple[int, int, Run]]) -> None:
        ready = []
        for first, last, run in pieces:
            records = last - first + 1
            self.counts[run.state] += records
            if run.plan_id is not None:
                held = self.carried.get(run.plan_id, 0)
                self.carried[run.plan_id] = held + records
                if not held:
                    self.changed_plan_ids.add(run.plan_id)
            if run.state == RecordState.AVAILABLE:
                self.timed += run.not_before_ms is not None
                if run.quarantined:
                    self._quarantined.add((run.last_tried_ms or 0, first))
                    if run.not_before_ms is not None:
                        self._backing_off.add((run.not_before_ms, first))
                elif run.not_before_ms is not None:
                    self._delayed.add((run.not_before_ms, first))
                else:
                    ready.append(first)
            elif run.state == RecordState.ARCHIVING:
                self._archiving.add(first)
        if ready:
            self._ready.update(ready)

    def _uncount(self, first: int, last: int, run: Run) -> None:
        records = last - first + 1
        self.counts[run.state] -= records
        if run.plan_id is not None:
            left = self.carried[run.plan_id] - records
            if left:
                self.carried[run.plan_id] = left
            else:
                del self.carried[run.plan_id]
                self.changed_plan_ids.add(run.plan_id)
        if run.state == RecordState.AVAILABLE:
            self.timed -= run.not_before_ms is not None
            if run.quarantined:
                self._quarantined.remove((run.last_tried_ms or 0, first))
                if run.not_before_ms is not None:
                    self._backing_off.remove((run.not_before_ms, first))
            elif run.not_before_ms is not None:
                self._delayed.remove((run.not_before_ms, first))
            else:
                self._ready.remove(first)
        elif run.state == RecordState.ARCHIVING:
            self._archiving.remove(first)

    def terminal_count(self) -> int:
        """Records of the map in a terminal state."""
        return sum(self.counts[state] for state in TERMINAL)


def _merged(
    pieces: Iterable[tuple[int, int, Run]], head: tuple[int, int, Run] | None, tail: tuple[int, int, Run] | None
) -> list[tuple[int, int, Run]]:
    """The adjacent pieces in one list, with equal neighbours merged."""
    merged = [] if head is None else [head]
    for piece in pieces if tail is None else (*pieces, tail):
        if merged and merged[-1][2] == piece[2]:
            merged[-1] = (merged[-1][0], piece[1], piece[2])
        else:
            merged.append(piece)
    return merged
