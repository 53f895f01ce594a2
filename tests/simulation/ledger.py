"""Keeps the durable state of each offset, as the log's own records say it, and checks what no record may ever do to an
offset.

It reads what was appended, knows nothing of runs, groups or transactions, and asks the members (the witness)
whether they wanted what happened. One holder at a time; a count is handed out once; nothing terminal changes; nothing
is accepted that nobody accepted; nothing is archived without a reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordinator.config.resolved import GroupConfig
from coordinator.core import share_group
from coordinator.core.log_records import (
    ActionDone,
    ConfigsAltered,
    DataLost,
    LogStartMoved,
    MemberJoined,
    MembersForgotten,
    OffsetsAltered,
    PartitionInitialized,
    PlanAcquired,
    PlanCompleted,
    PlanStaged,
    PlanStarted,
    RunsChanged,
)
from coordinator.core.record_codec import decode_record
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.service.stores.store import StoredRecord
from tests.simulation.administration import Actions
from tests.simulation.broker import Broker, Record, log_of
from tests.simulation.changes_judge import ACCEPT, GAP, LOST, RELEASE, KnownPlan, wrong_change
from tests.simulation.deferrals_judge import DeferralsJudge
from tests.simulation.flow_judge import FlowJudge
from tests.simulation.order_judge import OrderJudge
from tests.simulation.signals_judge import SKEW_MS
from tests.simulation.simulated_world import World
from tests.simulation.ttl_judge import TtlJudge
from tests.support.group_driver import durable_state

if TYPE_CHECKING:
    from tests.simulation.witness import Witness

A, Q, ACK = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
ARCHIVING, ARCHIVED, IN_PROGRESS = RecordState.ARCHIVING, RecordState.ARCHIVED, RecordState.IN_PROGRESS
NEVER_ACQUIRED = Run(A)


@dataclass
class Ledger:
    """Kept by every append."""

    world: World
    broker: Broker
    limit: int = 5
    base: int = 100_000
    explicit: bool = False
    dead_letters: bool = False
    retention_ms: int = 604_800_000
    config: GroupConfig = field(default_factory=GroupConfig.parse)
    evidence: Witness = field(init=False)
    runs: dict[Record, Run] = field(default_factory=dict)
    just_changed: set[Record] = field(default_factory=set)
    """Records that the newest append changed."""
    returned: dict[Record, tuple[Run, Run]] = field(default_factory=dict)
    """Records that the newest append took from their plans, before and after, unless they are done."""
    in_progress: dict[Record, int] = field(default_factory=dict)
    """By record in progress, the time of its last signal in the log."""
    starts: dict[int, int] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)
    plans: dict[int, KnownPlan] = field(default_factory=dict)
    delivered: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """By (partition, offset, delivery count), the plan's number."""
    lost: set[tuple[int, int, int]] = field(default_factory=set)
    """Deliveries whose lock was lost."""
    lost_numbers: set[int] = field(default_factory=set)
    told: set[Record] = field(default_factory=set)
    """Records of deleted topics that queries were notified of as lost."""
    began_ms: int | None = None
    """The time at which the first member joined."""
    archived: dict[Record, str] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By log, how often a record of it was accepted, and archived as one that its log never had (``none``)."""
    done_by: dict[Record, int] = field(default_factory=dict)
    """By accepted record, the number of the plan that accepted it."""
    epochs: dict[str, int] = field(default_factory=dict)
    queries: dict[str, bool] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    """By member, the time of its last answer."""
    away: set[str] = field(default_factory=set)
    """Members that are forgotten and have not come back."""
    forgotten_plans: dict[str, set[int]] = field(default_factory=dict)
    """By member that was ever forgotten, the plans that it had then."""
    forgotten_epoch: int = 0
    completed: set[int] = field(default_factory=set)
    said: dict[tuple[int, Record], list[Verdict]] = field(default_factory=dict)
    """By plan number and record, what sinks staged, in order."""
    passed_over: set[Record] = field(default_factory=set)
    """Records that a sink named after an attempt that counted as silent: they may come back, though all attempts
    agreed."""
    vetoed: int = 0
    lost_in_progress: int = 0
    """The number of times that a record in progress lost its lock."""
    started: set[tuple[int, int]] = field(default_factory=set)
    newest_used: dict[str, int] = field(default_factory=dict)
    """By member, the newest plan that it started."""
    appends: int = 0
    joined_in: dict[str, int] = field(default_factory=dict)
    """By member, the append that raised its epoch."""
    last_plan_id: int = 0
    snapshots: int = 0
    logged_late: int = 0
    """The number of starts of a plan that had been given up."""

    def __post_init__(self) -> None:
        self.actions = Actions(self)
        self.order = OrderJudge(self)
        self.flow = FlowJudge(self)
        self.ttl = TtlJudge(self)
        self.deferrals = DeferralsJudge(self)

    # --- called by the store

    def appended(self, group_id: str, data: Sequence[bytes]) -> None:
        self.appends += 1
        self.just_changed.clear()
        self.returned.clear()
        for each in data:
            record = decode_record(each)
            read = _READ.get(type(record))
            if read is not None:
                read(self, record)
        self.actions.check_append()
        self.order.check_append()
        self.flow.check_append()

    def replaced(self, group_id: str, old: Sequence[StoredRecord], new: Sequence[bytes]) -> None:
        """A snapshot says what the log said."""
        self.snapshots += 1
        before, after = self.state(group_id, [r.data for r in old]), self.state(group_id, new)
        if before != after:
            self.world.fail("a snapshot does not rebuild the state that the log had")

    def state(self, group_id: str, data: Sequence[bytes]) -> list[bytes]:
        """The durable state that these records rebuild."""
        group = ShareGroup(group_id)
        try:
            for each in data:
                replay(group, decode_record(each))
        except (LookupError, ValueError, AssertionError, AttributeError) as error:
            self.world.fail(f"the log can't be replayed: {error!r}")
        return durable_state(group)

    # --- one method a record

    def _altered(self, record: ConfigsAltered) -> None:
        """Sets the configs for later decisions; a plan keeps the acknowledgement mode in which its delivery began."""
        config = GroupConfig.parse(record.configs)
        self.config = config
        self.limit, self.base = config.share_delivery_count_limit, config.share_isolation_base
        self.explicit = config.share_acknowledgement_mode == "explicit"
        self.dead_letters = bool(config.errors_deadletterqueue_topic_name)
        self.retention_ms = config.share_member_retention_ms
        self.deferrals.alone.clear()

    def _joined(self, record: MemberJoined) -> None:
        known = record.member_id in self.epochs and record.member_id not in self.away
        before = self.epochs[record.member_id] if known else self.forgotten_epoch
        if record.member_epoch != before + 1:
            self.world.fail(f"{record.member_id} has epoch {record.member_epoch} after {before}")
        self.away.discard(record.member_id)
        self.seen_ms[record.member_id] = self.world.now_ms
        self.began_ms = self.began_ms or self.world.now_ms
        self.epochs[record.member_id] = record.member_epoch
        self.joined_in[record.member_id] = self.appends
        self.queries[record.member_id] = record.query

    def _forgotten(self, record: MembersForgotten) -> None:
        """Those that hold nothing, and were away for long; their epochs and plans are never anybody's again."""
        for member_id in record.member_ids:
            numbers = {plan.plan_id for plan in self.plans.values() if plan.member_id == member_id}
            carried = {run.plan_id for run in self.runs.values() if run.state in (A, *HELD)}
            if numbers & carried:
                self.world.fail(f"{member_id} is forgotten, and its plans {sorted(numbers & carried)} are carried")
            away_ms = self.world.now_ms - self.seen_ms[member_id]
            if away_ms < self.retention_ms - 2 * SKEW_MS:
                self.world.fail(f"{member_id} is forgotten, and was away for {away_ms} ms")
            self.forgotten_epoch = max(self.forgotten_epoch, self.epochs[member_id])
            self.forgotten_plans.setdefault(member_id, set()).update(numbers)
            self.away.add(member_id)
        if len(self.epochs) - len(self.away) < share_group.MEMBERS_KEPT:
            self.world.fail(f"{len(self.away)} of {len(self.epochs)} members are forgotten")

    def _initialized(self, record: PartitionInitialized) -> None:
        log = log_of(record.topic_id, record.partition)
        if log in self.starts:
            self.world.fail(f"log {log} began twice")
        self.starts[log] = record.start_offset
        self.actions.begun.add(log)
        if self.broker.created_ms(log) > (self.began_ms or 0) and record.start_offset > self.broker.starts[log]:
            self.world.fail(f"log {log} came later than the subscription, and begins at {record.start_offset}")

    def _lost(self, record: DataLost) -> None:
        for out in record.lost:
            log = log_of(out.topic_id, out.partition)
            if log in self.broker.gone:
                self.told.update((log, offset) for offset in range(out.first, out.last + 1))

    def _log_start(self, record: LogStartMoved) -> None:
        log = log_of(record.topic_id, record.partition)
        self.log_starts[log] = max(self.log_starts.get(log, 0), record.log_start)
        if log not in self.broker.gone and record.log_start > self.broker.starts[log]:
            self.world.fail(f"log {log} does not begin at {record.log_start}")

    def _acquired(self, record: PlanAcquired) -> None:
        if record.plan_id <= self.last_plan_id:
            self.world.fail(f"plan {record.plan_id} after plan {self.last_plan_id}: numbers rise")
        self.last_plan_id = record.plan_id
        query = self.queries[record.member_id]
        plan = KnownPlan(
            record.plan_id, record.member_id, query, record.trial, record.acquired_ms, explicit=self.explicit
        )
        self.plans[record.plan_id] = plan
        self.flow.acquired(record)

    def _plan_started(self, record: PlanStarted) -> None:
        self.started.add((record.plan_id, record.member_epoch))
        self.plans[record.plan_id].started = record.started
        own = self.evidence.own_mode(record.plan_id, record.member_epoch)
        plan = self.plans[record.plan_id]
        if plan.epoch != record.member_epoch:
            plan.epoch, plan.replaces = record.member_epoch, None
        plan.explicit = own == "explicit" if own else self.explicit
        plan.was_explicit = plan.was_explicit or plan.explicit
        if record.started or record.data_loss:
            self._to_be_read(record)
        if record.member_epoch != self.epochs[record.member_id]:
            self.world.fail(f"plan {record.plan_id} was reclaimed in epoch {record.member_epoch}, which is fenced")

    def _to_be_read(self, record: PlanStarted) -> None:
        """Plans are read in the order of their numbers; one that was given up for another one may still be the first of
        them to be read, and then nobody carries the other's number any more."""
        newest = self.newest_used.get(record.member_id, 0)
        if record.plan_id < newest:
            self.world.fail(f"plan {record.plan_id} was started, and {newest} was before it")
        self.newest_used[record.member_id] = record.plan_id
        later = {
            p.plan_id for p in self.plans.values() if p.member_id == record.member_id and p.plan_id > record.plan_id
        }
        if later:
            self.logged_late += 1
            carried = {run.plan_id for run in self.runs.values()}
            if later & carried:
                self.world.fail(f"plan {record.plan_id} was started, and {sorted(later & carried)} are carried still")

    def _completed(self, record: PlanCompleted) -> None:
        self.completed.add(record.plan_id)
        if not self.evidence.committed(record.member_id, record.plan_id):
            self.world.fail(f"plan {record.plan_id} was completed, and its batch was not committed")
        self.deferrals.check_completion(record)

    def _staged(self, record: PlanStaged) -> None:
        if record.explicit and record.plan_id in self.plans:  # so may a commit say that has no row of the plan: a guess
            self.plans[record.plan_id].was_explicit = True
        if record.replaces is not None and record.plan_id in self.plans:
            self.plans[record.plan_id].replaces = record.replaces
        for topic_id, partition, runs in record.partitions:
            log = log_of(topic_id, partition)
            for first, last, verdict in runs:
                for offset in range(first, last + 1):
                    self._note_said(record.plan_id, (log, offset), verdict)

    def _note_said(self, number: int, key: Record, verdict: Verdict) -> None:
        run = self.runs.get(key, NEVER_ACQUIRED)
        if run.plan_id != number or run.delivery_count != verdict.delivery_count:
            self.world.fail(f"{key} is staged on plan {number} at count {verdict.delivery_count}: {in_words(run)}")
        if not self.evidence.was_said(key, verdict.delivery_count, verdict.outcome):
            self.world.fail(f"{key} is staged at count {verdict.delivery_count}, and no sink said {verdict.outcome}")
        self.said.setdefault((number, key), []).append(verdict)
        if verdict.divided or (verdict.disagrees and not self.plans[number].replaces):
            self.passed_over.add(key)

    def outcome(self, key: Record, run: Run) -> int:
        """The outcome of a record when its plan completes: the one on which all attempts agree, where a last attempt
        that names none counts too; a release if they disagree. Where the target replaces, the last attempt's outcome
        counts alone."""
        said = self.said.get((run.plan_id or 0, key), [])
        alone = self.plans[run.plan_id or 0].replaces is True
        if alone:
            said = [verdict for verdict in said if verdict.delivery_count == run.delivery_count]
        outcomes = {verdict.outcome for verdict in said}
        if not said or said[-1].delivery_count != run.delivery_count:
            outcomes.add(RELEASE if self.plans[run.plan_id or 0].explicit else ACCEPT)
        if any(verdict.divided if alone else verdict.disagrees for verdict in said):
            outcomes.add(RELEASE)
        self.vetoed += len(outcomes) > 1
        return outcomes.pop() if len(outcomes) == 1 else RELEASE

    def _changed(self, record: RunsChanged) -> None:
        log = log_of(record.topic_id, record.partition)
        for first, last, run in record.runs:
            for offset in range(first, last + 1):
                key = (log, offset)
                before = self.runs.get(key, NEVER_ACQUIRED)
                wrong = wrong_change(self, key, before, run)
                if wrong:
                    self.world.fail(f"{key} {wrong}: {in_words(before)} -> {in_words(run)}")
                self._count(key, before, run)
                self.order.changed(key, before, run)
                if run.state == A and before.plan_id is not None and run.plan_id is None:
                    self.returned[key] = before, run
                self.runs[key] = run
                self.flow.changed(key, run)
                self.just_changed.add(key)
                if run.state == IN_PROGRESS:
                    self.in_progress[key] = self.world.now_ms
                else:
                    self.in_progress.pop(key, None)

    def _count(self, key: Record, before: Run, run: Run) -> None:
        """Count the change as what is true of the record: one that Kafka removed is never one that was never there."""
        counts = self.counts[key[0]]
        if run.state == ACK:
            counts["accepted"] += 1
        elif run.state == ARCHIVED and not run.disposition:
            asked = self.evidence.asked_for(key, before.delivery_count, GAP)
            counts["either" if asked and self.archived[key] == LOST else "none" if asked else "removed"] += 1

    def note_lost(self, key: Record, before: Run) -> None:
        """The delivery has lost its lock."""
        self.lost.add((*key, before.delivery_count))
        self.lost_numbers.add(before.plan_id or 0)

    # --- read by the judges

    def is_done(self, key: Record) -> bool:
        """Accepted or archived, or never there for this group; what waits for its dead letter is not."""
        run = self.runs.get(key)
        if run is not None and run.state in (*TERMINAL, ARCHIVING):
            return run.state in TERMINAL
        if key in self.told:
            return True
        return key[1] < self.log_starts.get(key[0], 0) or key[1] < self.starts.get(key[0], 0)


def in_words(run: Run) -> str:
    number = "" if run.plan_id is None else f" number {run.plan_id}"
    return f"{run.state.name} count {run.delivery_count} failures {run.failures}{number}"


_READ: dict[type[Any], Any] = {
    ConfigsAltered: Ledger._altered,
    DataLost: Ledger._lost,
    MemberJoined: Ledger._joined,
    MembersForgotten: Ledger._forgotten,
    OffsetsAltered: lambda ledger, record: ledger.actions.alter(record),
    ActionDone: lambda ledger, record: ledger.actions.note_done(record),
    PartitionInitialized: Ledger._initialized,
    LogStartMoved: Ledger._log_start,
    PlanAcquired: Ledger._acquired,
    PlanStarted: Ledger._plan_started,
    PlanCompleted: Ledger._completed,
    PlanStaged: Ledger._staged,
    RunsChanged: Ledger._changed,
}
