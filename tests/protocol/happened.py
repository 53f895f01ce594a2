"""The guarantee's exceptions in an append: locks that were lost, batches that isolation cut, records given up. Sets of
records are bits of an int: the offsets of the first log, then those of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.core.log_records import DataLost, LogStartMoved, PlanStarted, RunsChanged
from coordinator.core.log_records import Record as StateRecord
from coordinator.core.record_state import HELD, RecordState
from coordinator.core.runs import Run
from coordinator.protocol.values import Disposition
from tests.model.plans import most_together
from tests.model.state import Record
from tests.protocol.requests import number_of_log

CUT = ("cut", "quarantined", "archived")


class Happened(NamedTuple):
    """``taken``: (record, number of the plan that it was taken from, after that plan's lock was lost). ``lapsed``:
    records whose ShareConsumer lost its lock. ``cut``: left out of a batch by isolation. ``archived``: given up for a
    reason that the guarantee names. ``counted``: lost by the log before they were acquired. ``complaint``: what must
    never be appended."""

    taken: tuple[tuple[int, int], ...] = ()
    lapsed: int = 0
    cut: int = 0
    archived: int = 0
    counted: int = 0
    complaint: str = ""


class Flow(NamedTuple):
    """What limits acquisitions: all topics are paused; so many records may be in flight, None: any number."""

    is_paused: bool = False
    in_flight: int | None = None


NO_LIMIT = Flow()


def bits(ranges: Iterable[tuple[int, int]]) -> int:
    """Offsets ``first..last`` as bits."""
    found = 0
    for first, last in ranges:
        found |= (1 << (last + 1)) - (1 << first)
    return found


def numbers(topic_id: str, partition: int, first: int, last: int, of_a_log: int) -> range:
    """The numbers of the records at offsets ``first..last`` of a log, where each log has ``of_a_log`` records."""
    before = number_of_log(topic_id, partition) * of_a_log
    return range(before + first, before + last + 1)


def runs_by_record(records: Iterable[StateRecord], of_a_log: int) -> dict[int, Run]:
    """The run of each record in a snapshot."""
    found = {}
    for record in records:
        if isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                found.update(dict.fromkeys(numbers(record.topic_id, record.partition, first, last, of_a_log), run))
    return found


def out_of_order(runs: Mapping[int, Run], of_a_log: int) -> str:
    """What is wrong with these runs of a group in order: of each log one plan holds records, and none waits before
    them. Empty if nothing is."""
    waits: dict[int, int] = {}
    holders: dict[int, int | None] = {}
    for number, run in sorted(runs.items()):
        log = number // of_a_log
        if run.state == RecordState.AVAILABLE:
            waits.setdefault(log, number)
        elif run.state in HELD and log in waits:
            return f"record {number} is held, and record {waits[log]} waits"
        elif run.state in HELD and holders.setdefault(log, run.plan_id) != run.plan_id:
            return f"records of log {log} are held by plans {holders[log]} and {run.plan_id}"
    return ""


def what_happened(
    before: dict[int, Run],
    appended: Iterable[StateRecord],
    *,
    time_passed: bool,
    missing: int,
    limit: int,
    base: int,
    of_a_log: int,
    ends: Mapping[int, int],
    has_queries: bool,
    rejectable: int = 0,
    ordered: bool = False,
    may_release: bool = True,
    flow: Flow = NO_LIMIT,
) -> Happened:
    """Of one transaction; ``before`` are the runs that it changes; ``missing``: records that the log has no more;
    ``of_a_log``: how many a log has; ``ends``: up to which offset each was acquired, by its number; ``has_queries``:
    the group has one to which losses are to be reported; ``rejectable``: what a sink may reject; ``may_release``:
    whether anybody may release anything; ``flow``: what limited it."""
    looked = _Look(dict(before), time_passed, missing, limit, rejectable, ordered, may_release)
    for record in appended:
        if isinstance(record, PlanStarted):
            cut = (out for out in record.left_out if out.reason in CUT)
            looked.cut |= sum(1 << n for o in cut for n in numbers(o.topic_id, o.partition, o.first, o.last, of_a_log))
        elif isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                for number in numbers(record.topic_id, record.partition, first, last, of_a_log):
                    looked.at_record(number, run)
        elif isinstance(record, LogStartMoved):
            end = ends.get(number_of_log(record.topic_id, record.partition), 0)
            never_acquired = numbers(record.topic_id, record.partition, end, record.log_start - 1, of_a_log)
            looked.counted |= sum(1 << number for number in never_acquired)
        elif isinstance(record, DataLost):
            for lost in record.lost:
                looked.reported |= sum(
                    1 << n for n in numbers(lost.topic_id, lost.partition, lost.first, lost.last, of_a_log)
                )
    if has_queries and (unreported := looked.counted & ~looked.reported):
        looked.complaint = f"records {unreported:b} (bits) are lost, and no query is told"
    looked.at_slices(base)
    looked.at_flow(flow)
    return Happened(tuple(looked.taken), looked.lapsed, looked.cut, looked.archived, looked.counted, looked.complaint)


@dataclass(slots=True)
class _Look:
    """The records of one transaction that were read so far."""

    runs: dict[int, Run]
    time_passed: bool
    missing: int
    limit: int
    rejectable: int
    ordered: bool
    may_release: bool
    taken: list[tuple[int, int]] = field(default_factory=list)
    lapsed: int = 0
    cut: int = 0
    archived: int = 0
    counted: int = 0
    reported: int = 0
    complaint: str = ""
    acquired: int = 0
    together: dict[int, int] = field(default_factory=dict)

    def at_record(self, offset: int, run: Run) -> None:
        was = self.runs.get(offset, Run(RecordState.AVAILABLE))
        if self._left_its_plan(was, run):
            self.taken.append((offset, was.plan_id or 0))
        if self.time_passed and was.deadline_ms is not None and was.state in HELD:
            self.lapsed |= 1 << offset
        if run.state == RecordState.ARCHIVED and was.state != RecordState.ARCHIVED:
            self.archived |= 1 << offset
            too_old = run.disposition == Disposition.TTL and was.state not in HELD
            if not too_old and not self._may_be_given_up(offset, was):
                self.complaint = f"record {offset} was archived, and there was no reason to: {was}"
        if run.delivery_count != was.delivery_count + (run.state == RecordState.ACQUIRED):
            self.complaint = f"record {offset} is at count {run.delivery_count} after {was}"
        if run.releases > was.releases and not self.may_release:
            self.complaint = f"record {offset} has a release more, and nobody released it: {was}"
        if run.state == RecordState.ACQUIRED:
            self.together[run.failures] = self.together.get(run.failures, 0) + 1
            self.acquired |= (was.plan_id != run.plan_id) << offset
        self.runs[offset] = run

    def at_slices(self, base: int) -> None:
        """Records on the same try, delivered together, are no more than isolation allows."""
        for failures, count in self.together.items():
            most = most_together(Record(failures=failures), self.limit, base)
            if most is not None and count > most:
                self.complaint = f"{count} records are delivered together on try {failures + 1}, {most} at most"

    def at_flow(self, flow: Flow) -> None:
        """Nothing is acquired while topics are paused, or beyond the limit. A batch that is replayed keeps its plan."""
        held = sum(run.state in HELD for run in self.runs.values())
        if self.acquired and flow.is_paused:
            self.complaint = f"records {self.acquired:b} (bits) were acquired, and their topic is paused"
        if self.acquired and flow.in_flight is not None and held > flow.in_flight:
            self.complaint = f"{held} records are in flight, {flow.in_flight} at most"

    def _left_its_plan(self, was: Run, run: Run) -> bool:
        """A record that still carried a plan's number, AVAILABLE since its lock was lost, got another holder, or in
        order an earlier record did, or it became too old; or it was quarantined when the lock was lost."""
        if was.plan_id is None or run.plan_id == was.plan_id:
            return False
        if self.time_passed:
            return run.quarantined
        goes_along = self.ordered and run == was._replace(plan_id=None)
        is_taken = run.state == RecordState.ACQUIRED or run.disposition == Disposition.TTL
        return was.state == RecordState.AVAILABLE and (is_taken or goes_along)

    def _may_be_given_up(self, offset: int, was: Run) -> bool:
        """The log lost it, its trial failed, its tries are used up, or a sink rejects it."""
        return (
            bool(self.rejectable >> offset & 1)
            or bool(self.missing >> offset & 1)
            or was.quarantined
            or was.tries - was.query_failures + 1 >= self.limit
        )
