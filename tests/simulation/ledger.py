"""What is durable, offset by offset, as the log's own records say it, and what no record may ever do to an offset.

It reads what was appended, knows nothing of runs, groups or scripts, and asks the members (:class:`Evidence`) whether
they wanted what happened. One holder at a time; a count is handed out once; nothing terminal changes; nothing is
accepted that nobody accepted; nothing is archived without a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.records import (
    LogStartMoved,
    MemberJoined,
    PartitionInitialized,
    PlanAcquired,
    PlanCompleted,
    PlanStaged,
    PlanTakenUp,
    RunsChanged,
    decode_record,
)
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.service.stores.store import StoredRecord
from tests.simulation.broker import Broker, Record
from tests.simulation.world import World
from tests.unit.group_driver import durable_state

A, Q, ACK = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
SKEW_MS = 2_000
"""How far a coordinator's clock may be from the world's."""
NEVER_ACQUIRED = Run(A)


class Evidence(Protocol):
    """What the members did, and what they were told."""

    def committed(self, member_id: str, number: int) -> bool:
        """Spark committed the batch of this plan."""

    def asked_for(self, record: Record, count: int, *kinds: int) -> bool:
        """A ShareConsumer sent one of these outcomes with this receipt."""

    def was_said(self, record: Record, count: int, outcome: int) -> bool:
        """A query's sink sent a row with this receipt and outcome."""

    def has_left(self, member_id: str) -> bool:
        """A ShareConsumer said that it leaves."""

    def may_lose(self, member_id: str, record: Record, count: int) -> bool:
        """Its lock may be over by now."""

    def trial_broke_off(self, number: int) -> bool:
        """A process of the query died or was away while it had this plan."""


@dataclass
class KnownPlan:
    """An acquisition."""

    number: int
    member_id: str
    query: bool
    trial: bool
    used: bool = False


@dataclass
class Ledger:
    """Kept by every append."""

    world: World
    broker: Broker
    limit: int = 5
    explicit: bool = False
    dead_letters: bool = False
    evidence: Evidence = field(init=False)
    runs: dict[Record, Run] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)
    plans: dict[int, KnownPlan] = field(default_factory=dict)
    delivered: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(partition, offset, delivery count) to plan number."""
    lost: set[tuple[int, int, int]] = field(default_factory=set)
    """Deliveries whose lock was lost."""
    lost_numbers: set[int] = field(default_factory=set)
    archived: dict[Record, str] = field(default_factory=dict)
    done_by: dict[Record, int] = field(default_factory=dict)
    """Accepted records to the number that they carried."""
    epochs: dict[str, int] = field(default_factory=dict)
    queries: dict[str, bool] = field(default_factory=dict)
    completed: set[int] = field(default_factory=set)
    said: dict[tuple[int, Record], list[Verdict]] = field(default_factory=dict)
    """What sinks staged, by plan number and record, in order."""
    passed_over: set[Record] = field(default_factory=set)
    """A sink named it after an attempt that was taken for silent: it may come back, though all said the same."""
    vetoed: int = 0
    taken_up: set[tuple[int, int]] = field(default_factory=set)
    newest_used: dict[str, int] = field(default_factory=dict)
    """Member to the newest plan that it took up to be read."""
    appends: int = 0
    joined_in: dict[str, int] = field(default_factory=dict)
    """Member to the append that raised its epoch."""
    last_number: int = 0
    snapshots: int = 0
    logged_late: int = 0
    """How often a plan was taken up that had been given up."""

    # --- told by the store

    def appended(self, group_id: str, data: Sequence[bytes]) -> None:
        self.appends += 1
        for each in data:
            record = decode_record(each)
            read = _READ.get(type(record))
            if read is not None:
                read(self, record)

    def replaced(self, group_id: str, old: Sequence[StoredRecord], new: Sequence[bytes]) -> None:
        """A snapshot says what the log said."""
        self.snapshots += 1
        before, after = self._state(group_id, [r.data for r in old]), self._state(group_id, new)
        if before != after:
            self.world.fail("a snapshot does not rebuild the state that the log had")

    def _state(self, group_id: str, data: Sequence[bytes]) -> list[bytes]:
        group = ShareGroup(group_id)
        try:
            for each in data:
                group.replay(decode_record(each))
        except (LookupError, ValueError, AssertionError, AttributeError) as error:
            self.world.fail(f"the log can't be replayed: {error!r}")
        return durable_state(group)

    # --- one method a record

    def _joined(self, record: MemberJoined) -> None:
        if record.member_epoch != self.epochs.get(record.member_id, 0) + 1:
            self.world.fail(f"{record.member_id} has epoch {record.member_epoch} after {self.epochs[record.member_id]}")
        self.epochs[record.member_id] = record.member_epoch
        self.joined_in[record.member_id] = self.appends
        self.queries[record.member_id] = record.query

    def _initialized(self, record: PartitionInitialized) -> None:
        if record.partition in self.starts:
            self.world.fail(f"partition {record.partition} began twice")
        self.starts[record.partition] = record.start_offset

    def _log_start(self, record: LogStartMoved) -> None:
        self.log_starts[record.partition] = max(self.log_starts.get(record.partition, 0), record.log_start)
        if record.log_start > self.broker.starts[record.partition]:
            self.world.fail(f"the log of {record.partition} does not begin at {record.log_start}")

    def _acquired(self, record: PlanAcquired) -> None:
        if record.number <= self.last_number:
            self.world.fail(f"plan {record.number} after plan {self.last_number}: numbers rise")
        self.last_number = record.number
        query = self.queries[record.member_id]
        self.plans[record.number] = KnownPlan(record.number, record.member_id, query, record.trial)

    def _taken_up(self, record: PlanTakenUp) -> None:
        self.taken_up.add((record.number, record.member_epoch))
        self.plans[record.number].used = record.used
        if record.used or record.data_loss:
            self._to_be_read(record)
        if record.member_epoch != self.epochs[record.member_id]:
            self.world.fail(f"plan {record.number} was taken up in epoch {record.member_epoch}, which is fenced")

    def _to_be_read(self, record: PlanTakenUp) -> None:
        """Plans are read in the order of their numbers; one that was given up for another one may still be the first of
        them to be read, and then nobody carries the other's number any more."""
        newest = self.newest_used.get(record.member_id, 0)
        if record.number < newest:
            self.world.fail(f"plan {record.number} was taken up, and {newest} was before it")
        self.newest_used[record.member_id] = record.number
        later = {p.number for p in self.plans.values() if p.member_id == record.member_id and p.number > record.number}
        if later:
            self.logged_late += 1
            carried = {run.acquisition for run in self.runs.values()}
            if later & carried:
                self.world.fail(f"plan {record.number} was taken up, and {sorted(later & carried)} are carried still")

    def _completed(self, record: PlanCompleted) -> None:
        self.completed.add(record.number)
        if not self.evidence.committed(record.member_id, record.number):
            self.world.fail(f"plan {record.number} was completed, and its batch was not committed")

    def _staged(self, record: PlanStaged) -> None:
        for _, partition, runs in record.partitions:
            for first, last, verdict in runs:
                for offset in range(first, last + 1):
                    self._note_said(record.number, (partition, offset), verdict)

    def _note_said(self, number: int, key: Record, verdict: Verdict) -> None:
        run = self.runs.get(key, NEVER_ACQUIRED)
        if run.acquisition != number or run.delivery_count != verdict.delivery_count:
            self.world.fail(f"{key} is staged on plan {number} at count {verdict.delivery_count}: {_text(run)}")
        if not self.evidence.was_said(key, verdict.delivery_count, verdict.outcome):
            self.world.fail(f"{key} is staged at count {verdict.delivery_count}, and no sink said {verdict.outcome}")
        self.said.setdefault((number, key), []).append(verdict)
        if verdict.disagrees:
            self.passed_over.add(key)

    def _outcome(self, key: Record, run: Run) -> int:
        """What is to become of a record when its plan completes: what all attempts said of it, of which the last one's
        silence is a part; released if they did not say the same."""
        said = self.said.get((run.acquisition or 0, key), [])
        outcomes = {verdict.outcome for verdict in said}
        if not said or said[-1].delivery_count != run.delivery_count:
            outcomes.add(RELEASE if self.explicit else ACCEPT)
        if any(verdict.disagrees for verdict in said):
            outcomes.add(RELEASE)
        self.vetoed += len(outcomes) > 1
        return outcomes.pop() if len(outcomes) == 1 else RELEASE

    def _changed(self, record: RunsChanged) -> None:
        for first, last, run in record.runs:
            for offset in range(first, last + 1):
                key = (record.partition, offset)
                before = self.runs.get(key, NEVER_ACQUIRED)
                wrong = self._wrong(key, before, run)
                if wrong:
                    self.world.fail(f"{key} {wrong}: {_text(before)} -> {_text(run)}")
                self.runs[key] = run

    # --- what may become of an offset

    def _wrong(self, key: Record, before: Run, after: Run) -> str:
        if before.state in TERMINAL:
            return "changes though it is done"
        if before.state == ARCHIVING:
            if after.state != ARCHIVED or after.delivery_count != before.delivery_count:
                return "was to be a dead letter"
            return "" if self.broker.letters[key] else "is archived, and its letter is not written"
        if after.state == Q:
            return self._wrong_acquisition(key, before, after)
        if after.delivery_count != before.delivery_count:
            return "has another delivery count, and was not acquired"
        if after.state == A:
            return self._wrong_return(key, before, after)
        if after.state == ACK:
            return self._wrong_accept(key, before)
        wrong = self._wrong_archive(key, before, after)
        if not wrong and after.state == ARCHIVING and not self.dead_letters:
            return "waits for a letter, and none is wanted"
        return wrong

    def _wrong_acquisition(self, key: Record, before: Run, after: Run) -> str:
        number = after.acquisition
        if number is None or number not in self.plans:
            return "is acquired under no known number"
        if after.delivery_count != before.delivery_count + 1:
            return "is acquired, and its count does not rise by one"
        if before.set_aside_ms is None and (before.not_before_ms or 0) > self.world.now_ms + SKEW_MS:
            return f"is delivered {(before.not_before_ms or 0) - self.world.now_ms} ms too early"
        receipt = (*key, after.delivery_count)
        if receipt in self.delivered:
            return "is delivered under a count that was handed out before"
        if number not in (before.acquisition, self.last_number):
            return f"carries {before.acquisition or 'no number'}, and plan {number} came back to it"
        if before.state == Q and number != before.acquisition:
            return "has a holder, and is acquired by another one"
        if after.failures > before.failures + 1 or after.failures >= after.delivery_count:
            return "has more failures than deliveries"
        self.delivered[receipt] = number
        return ""

    def _wrong_return(self, key: Record, before: Run, after: Run) -> str:
        if after.failures > before.failures + 1 or after.failures > after.delivery_count:
            return "has more failures than deliveries"
        if before.state != Q:
            return "" if after.acquisition is None else "goes to a number, and nobody acquired it"
        plan = self.plans[before.acquisition or 0]
        kept, released = after.acquisition is not None, after.releases > before.releases
        if kept and after.acquisition != before.acquisition:
            return "returns under another number"
        if released and not plan.query and not self._was_released(plan, key, before.delivery_count):
            return "is released, and nobody released it"
        if released and plan.query:
            return self._wrong_release(plan, key, before, after)
        if kept:
            if not self.evidence.may_lose(plan.member_id, key, before.delivery_count):
                return "loses its lock too early"
            self._note_lost(key, before)
        elif plan.query and after.set_aside_ms is not None:
            self._note_lost(key, before)
        return ""

    def _wrong_release(self, plan: KnownPlan, key: Record, before: Run, after: Run) -> str:
        if not self.evidence.committed(plan.member_id, plan.number):
            return f"is released, and plan {plan.number}, whose batch it is in, was not committed"
        if self._outcome(key, before) != RELEASE:
            return f"is released, and its sinks said {self._said(key, before)}"
        said = self.said.get((plan.number, key), [])
        own = said and said[-1].outcome == RELEASE and said[-1].not_before_ms is not None
        if own and after.not_before_ms != said[-1].not_before_ms:
            return f"is released until {after.not_before_ms}, and its sink said {said[-1].not_before_ms}"
        return ""

    def _said(self, key: Record, run: Run) -> list[tuple[int, int]]:
        return [(v.delivery_count, v.outcome) for v in self.said.get((run.acquisition or 0, key), [])]

    def _note_lost(self, key: Record, before: Run) -> None:
        self.lost.add((*key, before.delivery_count))
        self.lost_numbers.add(before.acquisition or 0)

    def _was_released(self, plan: KnownPlan, key: Record, count: int) -> bool:
        return self.evidence.has_left(plan.member_id) or self.evidence.asked_for(key, count, RELEASE)

    def _wrong_accept(self, key: Record, before: Run) -> str:
        number = before.acquisition
        plan = self.plans.get(number or 0)
        if plan is None or number is None:
            return "is accepted, and nobody had it"
        if plan.query and not self.evidence.committed(plan.member_id, number):
            return f"is accepted, and plan {number}, whose batch it is in, was not committed"
        if plan.query and self._outcome(key, before) != ACCEPT:
            return f"is accepted, and its sinks said {self._said(key, before)}"
        if not plan.query and (before.state != Q or not self.evidence.asked_for(key, before.delivery_count, ACCEPT)):
            return "is accepted, and its holder did not accept this delivery"
        self.done_by[key] = number
        return ""

    def _wrong_archive(self, key: Record, before: Run, after: Run) -> str:
        plan = self.plans.get(before.acquisition or 0)
        at_once = self.dead_letters and after.state == ARCHIVED
        if after.state == ARCHIVED and key[1] < self.broker.starts[key[0]]:
            self.archived[key] = "the log's loss"
        elif plan is None:
            return "is archived, and nobody had it"
        elif plan.query and (given_up := self._given_up_by_sink(plan, key, before)):
            self.archived[key] = given_up
            if at_once and not (given_up == REJECTED_BY_SINK and self._sink_wrote_letter(plan, key)):
                return "is archived, and its letter is not written"
        elif at_once and (plan.query or not self.evidence.asked_for(key, before.delivery_count, GAP)):
            return "is archived, and its letter is not written"
        elif plan.query:
            if not (plan.trial and plan.used and before.set_aside_ms is not None):
                return "is archived, and was not on trial"
            # A second trial that is lost is judged as it ends, whatever became of its batch (docs/guarantees.md).
            broke_off = before.lost_trials > 0 or self.evidence.trial_broke_off(plan.number)
            if key not in self.broker.poison and not broke_off:
                return "is archived, is no poison, and its trial was not broken off"
            self.archived[key] = "a failed trial"
        elif self.evidence.asked_for(key, before.delivery_count, REJECT, GAP):
            self.archived[key] = "rejected"
        elif before.tries + 1 >= self.limit:
            self.archived[key] = "its tries are used up"
        else:
            return "is archived without a reason"
        return ""

    def _given_up_by_sink(self, plan: KnownPlan, key: Record, before: Run) -> str:
        """Why, if it was so at its completion."""
        if not self.evidence.committed(plan.member_id, plan.number):
            return ""
        outcome = self._outcome(key, before)
        if outcome == REJECT:
            return REJECTED_BY_SINK
        used_up = outcome == RELEASE and before.state == Q and before.tries + 1 >= self.limit
        return "its tries are used up" if used_up else ""

    def _sink_wrote_letter(self, plan: KnownPlan, key: Record) -> bool:
        return self.broker.letters[key] > 0 and any(verdict.letter for verdict in self.said[plan.number, key])

    # --- looked at

    def is_done(self, key: Record) -> bool:
        """Accepted or archived, or never there for this group; what waits for its letter is not."""
        run = self.runs.get(key)
        if run is not None and run.state in (*TERMINAL, ARCHIVING):
            return run.state in TERMINAL
        return key[1] < self.log_starts.get(key[0], 0) or key[1] < self.starts.get(key[0], 0)

    def check_group(self, group: ShareGroup) -> None:
        """The group has the runs that the log says, merged where they are alike."""
        for topic_partition, partition in group.partitions.items():
            seen, before = set(), None
            for first, last, run in partition.runs:
                if before == (first, run):
                    self.world.fail(f"{partition!r}: equal neighbours at {first} are not merged")
                before = (last + 1, run)
                for offset in range(first, last + 1):
                    key = (topic_partition.partition, offset)
                    seen.add(key)
                    said = self.runs.get(key, NEVER_ACQUIRED)
                    if run._replace(deadline_ms=None) != said._replace(deadline_ms=None):
                        self.world.fail(f"{key} is {_text(run)} in memory and {_text(said)} in the log")
            for offset in range(partition.start_offset, partition.end_offset):
                if (topic_partition.partition, offset) not in seen:
                    self.world.fail(f"{partition!r} does not know {offset}")
            self._check_start(topic_partition.partition, partition.start_offset)

    def check_rebuilt(self, group: ShareGroup, log: Sequence[StoredRecord]) -> None:
        """Whoever loads the log has the group that is in memory."""
        if self._state(group.group_id, [r.data for r in log]) != durable_state(group):
            self.world.fail("the state that the log rebuilds is not the state in memory")

    def _check_start(self, partition: int, start_offset: int) -> None:
        for offset in range(self.starts[partition], start_offset):
            run = self.runs.get((partition, offset))
            below = run is not None and run.state == ARCHIVING and offset < self.log_starts.get(partition, 0)
            if not below and not self.is_done((partition, offset)):
                self.world.fail(f"{(partition, offset)} is below the start offset {start_offset}, and not done")


def _text(run: Run) -> str:
    number = "" if run.acquisition is None else f" number {run.acquisition}"
    return f"{run.state.name} count {run.delivery_count} failures {run.failures}{number}"


GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
REJECTED_BY_SINK = "rejected by a sink"

_READ: dict[type[Any], Any] = {
    MemberJoined: Ledger._joined,
    PartitionInitialized: Ledger._initialized,
    LogStartMoved: Ledger._log_start,
    PlanAcquired: Ledger._acquired,
    PlanTakenUp: Ledger._taken_up,
    PlanCompleted: Ledger._completed,
    PlanStaged: Ledger._staged,
    RunsChanged: Ledger._changed,
}
