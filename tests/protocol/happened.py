"""What an append says about the guarantee's exceptions: locks that were lost, batches that isolation cut, records given
up. Sets of offsets are bits of an int."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.core.record_state import RecordState
from coordinator.core.records import PlanStarted, RunsChanged
from coordinator.core.records import Record as StateRecord
from coordinator.core.runs import Run
from tests.model.naive import Record
from tests.model.plans import most_together

CUT = ("cut", "quarantined", "archived")


class Happened(NamedTuple):
    """``taken``: (offset, number of the plan that it was taken from, after that plan's lock was lost). ``lapsed``:
    offsets whose ShareConsumer lost its lock. ``cut``: left out of a batch by isolation. ``archived``: given up for a
    reason that the guarantee names. ``complaint``: what must never be appended."""

    taken: tuple[tuple[int, int], ...] = ()
    lapsed: int = 0
    cut: int = 0
    archived: int = 0
    complaint: str = ""


def bits(ranges: Iterable[tuple[int, int]]) -> int:
    """Offsets ``first..last`` as bits."""
    found = 0
    for first, last in ranges:
        found |= (1 << (last + 1)) - (1 << first)
    return found


def runs_by_offset(records: Iterable[StateRecord]) -> dict[int, Run]:
    """What a snapshot says of each offset."""
    found = {}
    for record in records:
        if isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                found.update(dict.fromkeys(range(first, last + 1), run))
    return found


def what_happened(
    before: dict[int, Run],
    appended: Iterable[StateRecord],
    *,
    time_passed: bool,
    log_start: int,
    limit: int,
    base: int,
    rejectable: int = 0,
) -> Happened:
    """Of one transaction; ``before`` are the runs that it changes; ``rejectable``: what a sink may reject."""
    looked = _Look(dict(before), time_passed, log_start, limit, rejectable)
    for record in appended:
        if isinstance(record, PlanStarted):
            looked.cut |= bits((out.first, out.last) for out in record.left_out if out.reason in CUT)
        elif isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                for offset in range(first, last + 1):
                    looked.at_record(offset, run)
    looked.at_slices(base)
    return Happened(tuple(looked.taken), looked.lapsed, looked.cut, looked.archived, looked.complaint)


@dataclass(slots=True)
class _Look:
    """What was seen so far of one transaction."""

    runs: dict[int, Run]
    time_passed: bool
    log_start: int
    limit: int
    rejectable: int
    taken: list[tuple[int, int]] = field(default_factory=list)
    lapsed: int = 0
    cut: int = 0
    archived: int = 0
    complaint: str = ""
    together: dict[int, int] = field(default_factory=dict)

    def at_record(self, offset: int, run: Run) -> None:
        was = self.runs.get(offset, Run(RecordState.AVAILABLE))
        if self._left_its_plan(was, run):
            self.taken.append((offset, was.plan_id or 0))
        if self.time_passed and was.deadline_ms is not None and was.state == RecordState.ACQUIRED:
            self.lapsed |= 1 << offset
        if run.state == RecordState.ARCHIVED and was.state != RecordState.ARCHIVED:
            self.archived |= 1 << offset
            if not self._may_be_given_up(offset, was):
                self.complaint = f"record {offset} was archived, and there was no reason to: {was}"
        if run.delivery_count != was.delivery_count + (run.state == RecordState.ACQUIRED):
            self.complaint = f"record {offset} is at count {run.delivery_count} after {was}"
        if run.state == RecordState.ACQUIRED:
            self.together[run.failures] = self.together.get(run.failures, 0) + 1
        self.runs[offset] = run

    def at_slices(self, base: int) -> None:
        """Records on the same try, delivered together, are no more than isolation allows."""
        for failures, count in self.together.items():
            most = most_together(Record(failures=failures), self.limit, base)
            if most is not None and count > most:
                self.complaint = f"{count} records are delivered together on try {failures + 1}, {most} at most"

    def _left_its_plan(self, was: Run, run: Run) -> bool:
        """A record that still carried a plan's number, AVAILABLE since its lock was lost, got another holder; or it was
        set aside when the lock was lost."""
        if was.plan_id is None or run.plan_id == was.plan_id:
            return False
        if self.time_passed:
            return run.quarantined
        return was.state == RecordState.AVAILABLE and run.state == RecordState.ACQUIRED

    def _may_be_given_up(self, offset: int, was: Run) -> bool:
        """The log lost it, its trial failed, its tries are used up, or a sink rejects it."""
        return (
            bool(self.rejectable >> offset & 1)
            or offset < self.log_start
            or was.quarantined
            or was.tries + 1 >= self.limit
        )
