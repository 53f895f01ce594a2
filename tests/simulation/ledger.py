"""What is durable, offset by offset, as the log's own records say it, and what no record may ever do to an offset.

It reads what was appended, knows nothing of runs, groups or transactions, and asks the members (:class:`Evidence`)
whether they wanted what happened. One holder at a time; a count is handed out once; nothing terminal changes; nothing
is accepted that nobody accepted; nothing is archived without a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator.config.resolved import GroupConfig
from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.records import (
    ConfigsAltered,
    DataLost,
    LogStartMoved,
    MemberJoined,
    PartitionInitialized,
    PlanAcquired,
    PlanCompleted,
    PlanStaged,
    PlanStarted,
    RunsChanged,
    decode_record,
)
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.service.stores.store import StoredRecord
from tests.simulation.broker import Broker, Record, log_of
from tests.simulation.world import World
from tests.support.group_driver import durable_state

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

    def own_mode(self, number: int, member_epoch: int) -> str:
        """The acknowledgement mode that the query named when it took the plan up; empty: the group's."""

    def has_left(self, member_id: str) -> bool:
        """A ShareConsumer said that it leaves."""

    def may_lose(self, member_id: str, record: Record, count: int) -> bool:
        """Its lock may be over by now."""

    def trial_broke_off(self, number: int) -> bool:
        """A process of the query died or was away while it had this plan."""


@dataclass
class KnownPlan:
    """An acquisition."""

    plan_id: int
    member_id: str
    query: bool
    trial: bool
    started: bool = False
    explicit: bool = False
    """The acknowledgement mode of the last attempt at its batch; ``was_explicit``: of any."""
    was_explicit: bool = False
    replaces: bool | None = None
    """Whether all sinks of the last attempt said that their target does."""
    epoch: int = 0


@dataclass
class Ledger:
    """Kept by every append."""

    world: World
    broker: Broker
    limit: int = 5
    base: int = 100_000
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
    told: set[Record] = field(default_factory=set)
    """Records of topics that are gone, which queries are told to be lost."""
    began_ms: int | None = None
    """When the first member joined."""
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
    last_plan_id: int = 0
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

    def _altered(self, record: ConfigsAltered) -> None:
        """What holds from here on, for what is decided now; a plan keeps the mode in which it was taken up."""
        config = GroupConfig.parse(record.configs)
        self.limit, self.base = config.share_delivery_count_limit, config.share_isolation_base
        self.explicit = config.share_acknowledgement_mode == "explicit"
        self.dead_letters = bool(config.errors_deadletterqueue_topic_name)

    def _joined(self, record: MemberJoined) -> None:
        if record.member_epoch != self.epochs.get(record.member_id, 0) + 1:
            self.world.fail(f"{record.member_id} has epoch {record.member_epoch} after {self.epochs[record.member_id]}")
        self.began_ms = self.began_ms or self.world.now_ms
        self.epochs[record.member_id] = record.member_epoch
        self.joined_in[record.member_id] = self.appends
        self.queries[record.member_id] = record.query

    def _initialized(self, record: PartitionInitialized) -> None:
        log = log_of(record.topic_id, record.partition)
        if log in self.starts:
            self.world.fail(f"log {log} began twice")
        self.starts[log] = record.start_offset
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
        plan = KnownPlan(record.plan_id, record.member_id, query, record.trial, explicit=self.explicit)
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
            self.world.fail(f"plan {record.plan_id} was taken up in epoch {record.member_epoch}, which is fenced")

    def _to_be_read(self, record: PlanStarted) -> None:
        """Plans are read in the order of their numbers; one that was given up for another one may still be the first of
        them to be read, and then nobody carries the other's number any more."""
        newest = self.newest_used.get(record.member_id, 0)
        if record.plan_id < newest:
            self.world.fail(f"plan {record.plan_id} was taken up, and {newest} was before it")
        self.newest_used[record.member_id] = record.plan_id
        later = {
            p.plan_id for p in self.plans.values() if p.member_id == record.member_id and p.plan_id > record.plan_id
        }
        if later:
            self.logged_late += 1
            carried = {run.plan_id for run in self.runs.values()}
            if later & carried:
                self.world.fail(f"plan {record.plan_id} was taken up, and {sorted(later & carried)} are carried still")

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
            self.world.fail(f"{key} is staged on plan {number} at count {verdict.delivery_count}: {_text(run)}")
        if not self.evidence.was_said(key, verdict.delivery_count, verdict.outcome):
            self.world.fail(f"{key} is staged at count {verdict.delivery_count}, and no sink said {verdict.outcome}")
        self.said.setdefault((number, key), []).append(verdict)
        if verdict.divided or (verdict.disagrees and not self.plans[number].replaces):
            self.passed_over.add(key)

    def _outcome(self, key: Record, run: Run) -> int:
        """What is to become of a record when its plan completes: what all attempts said of it, of which the last one's
        silence is a part; released if they did not say the same. Of a target that replaces, the last one's alone."""
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
        if before.state == Q and number != before.plan_id:
            return "has a holder, and is acquired by another one"
        if after.failures > before.failures + 1 or after.failures >= after.delivery_count:
            return "has more failures than deliveries"
        self.delivered[receipt] = number
        return ""

    def _wrong_return(self, key: Record, before: Run, after: Run) -> str:
        if after.failures > before.failures + 1 or after.failures > after.delivery_count:
            return "has more failures than deliveries"
        if before.state != Q:
            return "" if after.plan_id is None else "goes to a number, and nobody acquired it"
        plan = self.plans[before.plan_id or 0]
        kept, released = after.plan_id is not None, after.releases > before.releases
        if kept and after.plan_id != before.plan_id:
            return "returns under another number"
        if released and not plan.query and not self._was_released(plan, key, before.delivery_count):
            return "is released, and nobody released it"
        if released and plan.query:
            return self._wrong_release(plan, key, before, after)
        if kept:
            if not self.evidence.may_lose(plan.member_id, key, before.delivery_count):
                return "loses its lock too early"
            self._note_lost(key, before)
        elif plan.query and after.quarantined:
            self._note_lost(key, before)
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
        """What an attempt in explicit mode passed over stays a release in one in implicit mode."""
        mixed = plan.was_explicit and not plan.explicit
        return mixed or self._outcome(key, run) == RELEASE

    def _said(self, key: Record, run: Run) -> list[tuple[int, int]]:
        return [(v.delivery_count, v.outcome) for v in self.said.get((run.plan_id or 0, key), [])]

    def _note_lost(self, key: Record, before: Run) -> None:
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
        if not plan.query and (before.state != Q or not self.evidence.asked_for(key, before.delivery_count, ACCEPT)):
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
                return "is archived, and its letter is not written"
        elif at_once and (plan.query or not self.evidence.asked_for(key, before.delivery_count, GAP)):
            return "is archived, and its letter is not written"
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
        """Accepted or archived, or never there for this group; what waits for its letter is not."""
        run = self.runs.get(key)
        if run is not None and run.state in (*TERMINAL, ARCHIVING):
            return run.state in TERMINAL
        if key in self.told:
            return True
        return key[1] < self.log_starts.get(key[0], 0) or key[1] < self.starts.get(key[0], 0)

    def check_group(self, group: ShareGroup) -> None:
        """The group has the runs that the log says, merged where they are alike."""
        for topic_partition, partition in group.partitions.items():
            seen, before, log = set(), None, log_of(*topic_partition)
            for first, last, run in partition.runs:
                if before == (first, run):
                    self.world.fail(f"{partition!r}: equal neighbours at {first} are not merged")
                before = (last + 1, run)
                for offset in range(first, last + 1):
                    key = (log, offset)
                    seen.add(key)
                    said = self.runs.get(key, NEVER_ACQUIRED)
                    if run._replace(deadline_ms=None) != said._replace(deadline_ms=None):
                        self.world.fail(f"{key} is {_text(run)} in memory and {_text(said)} in the log")
            for offset in range(partition.start_offset, partition.end_offset):
                if (log, offset) not in seen:
                    self.world.fail(f"{partition!r} does not know {offset}")
            self._check_start(log, partition.start_offset)

    def check_rebuilt(self, group: ShareGroup, log: Sequence[StoredRecord]) -> None:
        """Whoever loads the log has the group that is in memory."""
        if self._state(group.group_id, [r.data for r in log]) != durable_state(group):
            self.world.fail("the state that the log rebuilds is not the state in memory")

    def _check_start(self, log: int, start_offset: int) -> None:
        for offset in range(self.starts[log], start_offset):
            run = self.runs.get((log, offset))
            below = run is not None and run.state == ARCHIVING and offset < self.log_starts.get(log, 0)
            if not below and not self.is_done((log, offset)):
                self.world.fail(f"{(log, offset)} is below the start offset {start_offset}, and not done")


def _text(run: Run) -> str:
    number = "" if run.plan_id is None else f" number {run.plan_id}"
    return f"{run.state.name} count {run.delivery_count} failures {run.failures}{number}"


GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
REJECTED_BY_SINK = "rejected by a sink"

_READ: dict[type[Any], Any] = {
    ConfigsAltered: Ledger._altered,
    DataLost: Ledger._lost,
    MemberJoined: Ledger._joined,
    PartitionInitialized: Ledger._initialized,
    LogStartMoved: Ledger._log_start,
    PlanAcquired: Ledger._acquired,
    PlanStarted: Ledger._taken_up,
    PlanCompleted: Ledger._completed,
    PlanStaged: Ledger._staged,
    RunsChanged: Ledger._changed,
}
