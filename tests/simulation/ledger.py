"""Keeps the durable state of each offset, as the log's own records say it, and checks what no record may ever do to an
offset.

It reads what was appended, knows nothing of runs, groups or transactions, and asks the members (:class:`Evidence`)
whether they wanted what happened. One holder at a time; a count is handed out once; nothing terminal changes; nothing
is accepted that nobody accepted; nothing is archived without a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core import share_group
from coordinator.core.record_codec import decode_record
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.records import (
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
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.service.stores.store import StoredRecord
from tests.simulation.administration import Actions
from tests.simulation.broker import Broker, Record, log_of
from tests.simulation.evidence import Evidence, KnownPlan
from tests.simulation.signals_judge import SKEW_MS, lock_is_over, wrong_end_of_work, wrong_signal
from tests.simulation.world import World
from tests.support.group_driver import durable_state

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
    evidence: Evidence = field(init=False)
    runs: dict[Record, Run] = field(default_factory=dict)
    just_changed: set[Record] = field(default_factory=set)
    """Those of the newest append."""
    in_progress: dict[Record, int] = field(default_factory=dict)
    """To when the log told of the record last."""
    starts: dict[int, int] = field(default_factory=dict)
    log_starts: dict[int, int] = field(default_factory=dict)
    plans: dict[int, KnownPlan] = field(default_factory=dict)
    delivered: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(partition, offset, delivery count) to plan number."""
    lost: set[tuple[int, int, int]] = field(default_factory=set)
    """Deliveries whose lock was lost."""
    lost_numbers: set[int] = field(default_factory=set)
    told: set[Record] = field(default_factory=set)
    """Records of topics that are gone, which queries are told to be lost."""
    began_ms: int | None = None
    """When the first member joined."""
    archived: dict[Record, str] = field(default_factory=dict)
    done_by: dict[Record, int] = field(default_factory=dict)
    """Accepted records to the number that they carried."""
    epochs: dict[str, int] = field(default_factory=dict)
    queries: dict[str, bool] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    """Member to when it was answered last."""
    away: set[str] = field(default_factory=set)
    """Members that are forgotten, and have not come back."""
    forgotten_plans: dict[str, set[int]] = field(default_factory=dict)
    """Members that were ever forgotten, and the plans that they had by then."""
    forgotten_epoch: int = 0
    completed: set[int] = field(default_factory=set)
    said: dict[tuple[int, Record], list[Verdict]] = field(default_factory=dict)
    """What sinks staged, by plan number and record, in order."""
    passed_over: set[Record] = field(default_factory=set)
    """A sink named it after an attempt that was taken for silent: it may come back, though all said the same."""
    vetoed: int = 0
    lost_in_progress: int = 0
    """How often work in progress lost its lock."""
    taken_up: set[tuple[int, int]] = field(default_factory=set)
    newest_used: dict[str, int] = field(default_factory=dict)
    """Member to the newest plan that it took up to be read."""
    appends: int = 0
    joined_in: dict[str, int] = field(default_factory=dict)
    """Member to the append that raised its epoch."""
    last_plan_id: int = 0
    snapshots: int = 0
    logged_late: int = 0
    """How often a plan was started that had been given up."""

    def __post_init__(self) -> None:
        self.actions = Actions(self)

    # --- told by the store

    def appended(self, group_id: str, data: Sequence[bytes]) -> None:
        self.appends += 1
        self.just_changed.clear()
        for each in data:
            record = decode_record(each)
            read = _READ.get(type(record))
            if read is not None:
                read(self, record)
        self.actions.check_append()

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
                group.replay(decode_record(each))
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

    def _taken_up(self, record: PlanStarted) -> None:
        self.taken_up.add((record.plan_id, record.member_epoch))
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

    def _outcome(self, key: Record, run: Run) -> int:
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
                wrong = self._wrong(key, before, run)
                if wrong:
                    self.world.fail(f"{key} {wrong}: {in_words(before)} -> {in_words(run)}")
                self.runs[key] = run
                self.just_changed.add(key)
                if run.state == IN_PROGRESS:
                    self.in_progress[key] = self.world.now_ms
                else:
                    self.in_progress.pop(key, None)

    # --- what may become of an offset

    def _wrong(self, key: Record, before: Run, after: Run) -> str:
        if before.state in TERMINAL:
            return "changes though it is done"
        if before.state == ARCHIVING:
            if after.state != ARCHIVED or after.delivery_count != before.delivery_count:
                return "was to be a dead letter"
            return "" if self.broker.letters[key] else "is archived, and its dead letter is not written"
        if (wrong := self.actions.wrong_by_hand(key, before, after)) is not None:
            return wrong
        if after.state == IN_PROGRESS:
            return wrong_signal(self, key, before, after)
        if after.progress is not None:
            return "has signals, and is not in progress"
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
            return "waits for a dead letter, and none is wanted"
        return wrong

    def _wrong_acquisition(self, key: Record, before: Run, after: Run) -> str:
        number = after.plan_id
        if number is None or number not in self.plans:
            return "is acquired under no known number"
        if after.delivery_count != before.delivery_count + 1:
            return "is acquired, and its count does not rise by one"
        if not before.quarantined and (before.not_before_ms or 0) > self.world.now_ms + SKEW_MS:
            return f"is delivered {(before.not_before_ms or 0) - self.world.now_ms} ms too early"
        receipt = (*key, after.delivery_count)
        if receipt in self.delivered:
            return "is delivered under a count that was handed out before"
        if number not in (before.plan_id, self.last_plan_id):
            return f"carries {before.plan_id or 'no number'}, and plan {number} came back to it"
        if before.state == IN_PROGRESS or (before.state == Q and number != before.plan_id):
            return "has a holder, and is acquired by another one"
        if after.failures > before.failures + 1 or after.failures >= after.delivery_count:
            return "has more failures than deliveries"
        self.delivered[receipt] = number
        return ""

    def _wrong_return(self, key: Record, before: Run, after: Run) -> str:
        if after.failures > before.failures + 1 or after.failures > after.delivery_count:
            return "has more failures than deliveries"
        if before.state not in HELD:
            return "" if after.plan_id is None else "goes to a number, and nobody acquired it"
        plan = self.plans[before.plan_id or 0]
        kept, released = after.plan_id is not None, after.releases > before.releases
        if kept and after.plan_id != before.plan_id:
            return "returns under another number"
        if before.state == IN_PROGRESS:
            return wrong_end_of_work(self, key, before, after)
        if released and not plan.query and not self._was_released(plan, key, before.delivery_count):
            return "is released, and nobody released it"
        if released and plan.query:
            return self._wrong_release(plan, key, before, after)
        if kept:
            if not self.evidence.may_lose(plan.member_id, key, before.delivery_count):
                return "loses its lock too early"
            self.note_lost(key, before)
        elif plan.query and after.quarantined:
            self.note_lost(key, before)
        return ""

    def _wrong_release(self, plan: KnownPlan, key: Record, before: Run, after: Run) -> str:
        if not self.evidence.committed(plan.member_id, plan.plan_id):
            return f"is released, and plan {plan.plan_id}, whose batch it is in, was not committed"
        if not self._may_be_released(plan, key, before):
            return f"is released, and its sinks said {self._said(key, before)}"
        said = self.said.get((plan.plan_id, key), [])
        counts = said and not (plan.replaces and said[-1].delivery_count != before.delivery_count)
        own = counts and said[-1].outcome == RELEASE and said[-1].not_before_ms is not None
        if own and after.not_before_ms != said[-1].not_before_ms:
            return f"is released until {after.not_before_ms}, and its sink said {said[-1].not_before_ms}"
        return ""

    def _may_be_released(self, plan: KnownPlan, key: Record, run: Run) -> bool:
        """Whether the record may be released. An explicit attempt that named no outcome has released it, also in a
        later implicit attempt."""
        mixed = plan.was_explicit and not plan.explicit
        return mixed or self._outcome(key, run) == RELEASE

    def _said(self, key: Record, run: Run) -> list[tuple[int, int]]:
        return [(v.delivery_count, v.outcome) for v in self.said.get((run.plan_id or 0, key), [])]

    def note_lost(self, key: Record, before: Run) -> None:
        """The delivery has lost its lock."""
        self.lost.add((*key, before.delivery_count))
        self.lost_numbers.add(before.plan_id or 0)

    def _was_released(self, plan: KnownPlan, key: Record, count: int) -> bool:
        return self.evidence.has_left(plan.member_id) or self.evidence.asked_for(key, count, RELEASE)

    def _wrong_accept(self, key: Record, before: Run) -> str:
        number = before.plan_id
        plan = self.plans.get(number or 0)
        if plan is None or number is None:
            return "is accepted, and nobody had it"
        if plan.query and not self.evidence.committed(plan.member_id, number):
            return f"is accepted, and plan {number}, whose batch it is in, was not committed"
        if plan.query and self._outcome(key, before) != ACCEPT:
            return f"is accepted, and its sinks said {self._said(key, before)}"
        if not plan.query and (
            before.state not in HELD or not self.evidence.asked_for(key, before.delivery_count, ACCEPT)
        ):
            return "is accepted, and its holder did not accept this delivery"
        self.done_by[key] = number
        return ""

    def _wrong_archive(self, key: Record, before: Run, after: Run) -> str:
        plan = self.plans.get(before.plan_id or 0)
        at_once = self.dead_letters and after.state == ARCHIVED
        if after.state == ARCHIVED and (key[0] in self.broker.gone or key[1] < self.broker.starts[key[0]]):
            self.archived[key] = "the log's loss"
        elif plan is None:
            return "is archived, and nobody had it"
        elif plan.query and (given_up := self._given_up_by_sink(plan, key, before)):
            self.archived[key] = given_up
            if at_once and not (given_up == REJECTED_BY_SINK and self._sink_wrote_letter(plan, key)):
                return "is archived, and its dead letter is not written"
        elif at_once and (plan.query or not self.evidence.asked_for(key, before.delivery_count, GAP)):
            return "is archived, and its dead letter is not written"
        elif plan.query:
            if not (plan.trial and plan.started and before.quarantined):
                return "is archived, and was not on trial"
            # A second trial that is lost is judged as it ends, whatever became of its batch (docs/guarantees.md).
            broke_off = before.trials_lost > 0 or self.evidence.trial_broke_off(plan.plan_id)
            if key not in self.broker.poison and not broke_off:
                return "is archived, is no poison, and its trial was not broken off"
            self.archived[key] = "a failed trial"
        elif self.evidence.asked_for(key, before.delivery_count, REJECT, GAP):
            self.archived[key] = "rejected"
        elif before.state == IN_PROGRESS and not (
            lock_is_over(self, before) or self.evidence.asked_for(key, before.delivery_count, RELEASE)
        ):
            return "is in progress, and is given up before its lock is over"
        elif before.tries + 1 >= self.limit:
            self.archived[key] = "its tries are used up"
        else:
            return "is archived without a reason"
        return ""

    def _given_up_by_sink(self, plan: KnownPlan, key: Record, before: Run) -> str:
        """Why, if it was so at its completion."""
        if not self.evidence.committed(plan.member_id, plan.plan_id):
            return ""
        outcome = self._outcome(key, before)
        if outcome == REJECT:
            return REJECTED_BY_SINK
        may_be = self._may_be_released(plan, key, before)
        used_up = may_be and before.state == Q and before.releases + 1 >= self.limit
        return "its tries are used up" if used_up else ""

    def _sink_wrote_letter(self, plan: KnownPlan, key: Record) -> bool:
        return self.broker.letters[key] > 0 and any(verdict.dead_letter for verdict in self.said[plan.plan_id, key])

    # --- looked at

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


GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
REJECTED_BY_SINK = "rejected by a sink"

_READ: dict[type[Any], Any] = {
    ConfigsAltered: Ledger._altered,
    DataLost: Ledger._lost,
    MemberJoined: Ledger._joined,
    MembersForgotten: Ledger._forgotten,
    OffsetsAltered: lambda ledger, record: ledger.actions.alter(record),
    PartitionInitialized: Ledger._initialized,
    LogStartMoved: Ledger._log_start,
    PlanAcquired: Ledger._acquired,
    PlanStarted: Ledger._taken_up,
    PlanCompleted: Ledger._completed,
    PlanStaged: Ledger._staged,
    RunsChanged: Ledger._changed,
}
