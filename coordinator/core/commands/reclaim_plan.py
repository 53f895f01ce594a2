"""Start a query's plan, when Spark calls ``partitions()``, or reclaim the plan in a later process.

A process that comes back to a plan changes only AVAILABLE and ACQUIRED runs that still carry the plan's id
(docs/trust/protocol.md, "Who may touch what").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import itemgetter

from coordinator.core.changes import Changes, moved, split_at
from coordinator.core.commands import Decision, StartOrReclaimPlan
from coordinator.core.commands.acquisition import plan_as_held, plan_of
from coordinator.core.commands.logged_plan import check_held, check_missing
from coordinator.core.failed_deliveries import clears_evidence, left_out_entry, removed_records, replayed
from coordinator.core.isolation import isolation_class, slice_size
from coordinator.core.left_out import LeftOutRange, bounded, in_reply
from coordinator.core.log_records import EvidenceCleared, EvidenceUsed, PlanStarted, Record
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.plan_state import PlanEvent, PlanState, after
from coordinator.core.record_state import Event, RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import PartitionPlan, Plan, PlanReply
from coordinator.protocol.values import SharePartitionKey


def start_or_reclaim_plan(group: ShareGroup, command: StartOrReclaimPlan, now_ms: int) -> Decision[PlanReply]:
    """Mark the plan as started, durably, before anyone reads it. If this process did not acquire the plan, reclaim it
    first. The same request again in the same epoch changes nothing.

    Raises:
        ForeignPlan: the plan is of another incarnation of the group.
        StalePlan: the plan is completed or replaced (:mod:`coordinator.core.plan_state`).
        PlanDiffersFromLog: the plan is not the one in Spark's log (:mod:`coordinator.core.commands.logged_plan`).
    """
    member = group.member(command.member_id, command.member_epoch)
    plan_id = group.plan_id(command.plan_id)
    state = group.checked_state(member, plan_id, PlanEvent.START)
    plan = member.newest
    assert plan is not None and plan_id is not None
    if state is PlanState.SUPERSEDED:
        decision = _start_empty(group, command, member, plan_id, now_ms)
    else:
        check_held(group, command, plan_as_held(group, plan))
        decision = _start(group, command, member, plan, now_ms)
    check_missing(group, command, decision.reply)
    return decision


def _start(
    group: ShareGroup, command: StartOrReclaimPlan, member: Member, plan: AcquiredPlan, now_ms: int
) -> Decision[PlanReply]:
    state = member.plan_state(plan.plan_id)
    if state is PlanState.STARTED and plan.member_epoch == member.member_epoch:
        left_out = _left_out_until_now(group, member, plan, now_ms)
        return Decision((), _reply(group, plan, plan_as_held(group, plan), left_out, plan.data_loss))
    reclaim = _reclaim(group, command, member, plan, now_ms)
    reclaim.unsubscribed = command.unsubscribed_topic_ids
    reclaim.decide()
    # All losses of a deleted topic are reported at once, not only those of the plan.
    of_deleted = [lost for lost in group.unreported_losses if lost.topic_id in command.deleted_topic_ids]
    # If an earlier start in this epoch only reported losses, this answer repeats what that one reported and left out.
    is_repeated = plan.member_epoch == member.member_epoch and not plan.started
    unread, left_out_before = (plan.data_loss, plan.left_out) if is_repeated else ((), ())
    data_loss = bounded((*unread, *plan.unreported_losses, *reclaim.data_loss, *of_deleted))
    left_out = bounded((*left_out_before, *reclaim.left_out))
    event = _start_event(data_loss, command)
    plan_started = PlanStarted(
        plan_id=plan.plan_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        started=after(state, event) is PlanState.STARTED,
        reclaims=reclaim.reclaims,
        explicit=group.config.is_explicit(command.acknowledgement_mode),
        fail_on_data_loss=command.fail_on_data_loss,
        data_loss=data_loss,
        left_out=left_out,
        reported_topic_ids=tuple(sorted({lost.topic_id for lost in of_deleted})),
    )
    records = (*reclaim.records(), plan_started)
    return Decision(records, _reply(group, plan, reclaim.kept_plan(), left_out, data_loss))


def _start_empty(
    group: ShareGroup, command: StartOrReclaimPlan, member: Member, plan_id: int, now_ms: int
) -> Decision[PlanReply]:
    """Start a superseded plan. A driver that had been paused wrote this plan to Spark's log after its successor had
    acquired the newest plan, and Spark goes on from its log. Nothing of this plan is left, and no process has read the
    newest plan. So this plan is the newest again, empty, and the other plan's records go back to the group with their
    counts unchanged."""
    assert member.newest is not None
    back = _reclaim(group, command, member, member.newest, now_ms)
    back.unsubscribed = frozenset(topic_id for topic_id, _, _ in member.newest.ranges)
    back.decide()
    data_loss = bounded((*member.newest.unreported_losses, *back.data_loss))
    event = _start_event(data_loss, command)
    plan_started = PlanStarted(
        plan_id=plan_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        started=after(PlanState.SUPERSEDED, event) is PlanState.STARTED,
        reclaims=back.reclaims,
        data_loss=data_loss,
        replaced_plan_id=member.newest.plan_id,
    )
    reply = PlanReply(plan=Plan(plan_id=command.plan_id, partitions=()), data_loss=in_reply(data_loss))
    return Decision((*back.records(), plan_started), reply)


def _start_event(data_loss: tuple[LeftOutRange, ...], command: StartOrReclaimPlan) -> PlanEvent:
    return PlanEvent.REPORT_LOSS if data_loss and command.fail_on_data_loss else PlanEvent.START


def _left_out_until_now(group: ShareGroup, member: Member, plan: AcquiredPlan, now_ms: int) -> tuple[LeftOutRange, ...]:
    """The offsets that the plan's start left out, and those that the plan has lost since, after the session ended. The
    process asks again if the first answer did not reach it, and checks that every missing offset has a reason."""
    since = Reclaim(group, member, plan, now_ms)
    for topic_id, index, ranges in plan.ranges:
        key = SharePartitionKey(topic_id, index)
        partition = group.partitions.get(key)
        held = [] if partition is None else partition.carrying(plan.plan_id, ranges)
        since._say_lost(key, ranges, [(segment.first, segment.last) for segment in held])
    lost = (*since.left_out, *plan.unreported_losses)
    return bounded((*plan.left_out, *lost)) if lost else plan.left_out


def _reclaim(
    group: ShareGroup, command: StartOrReclaimPlan, member: Member, plan: AcquiredPlan, now_ms: int
) -> Reclaim:
    log_starts = {SharePartitionKey(b.topic_id, b.partition): b.log_start for b in command.bounds}
    return Reclaim(group, member, plan, now_ms, log_starts=log_starts, gone=command.deleted_topic_ids)


def _reply(
    group: ShareGroup,
    plan: AcquiredPlan,
    partitions: tuple[PartitionPlan, ...],
    left_out: tuple[LeftOutRange, ...] = (),
    data_loss: tuple[LeftOutRange, ...] = (),
) -> PlanReply:
    named = Plan(plan_id=group.plan_id_text(plan.plan_id), partitions=partitions, trial=plan.trial)
    return PlanReply(plan=named, left_out=in_reply(left_out), data_loss=in_reply(data_loss))


@dataclass(slots=True)
class Reclaim:
    """Sorts the records of a plan that a process starts or reclaims: those that the batch keeps, and those that it goes
    on without.

    If the process acquired the plan itself, the records that it still holds do not change. A later process acquires
    them again: the delivery count rises by one. That is also a failure if the delivery before had begun (``started``)
    and did not already count as a failure when a lock was lost.

    first_left: the first record of each share partition that has left the batch without being done.
    """

    group: ShareGroup
    member: Member
    plan: AcquiredPlan
    now_ms: int
    log_starts: dict[SharePartitionKey, int] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    unsubscribed: frozenset[str] = frozenset()
    changes: Changes = field(default_factory=Changes)
    candidates: list[tuple[SharePartitionKey, Segment]] = field(default_factory=list)
    kept: dict[SharePartitionKey, list[Segment]] = field(default_factory=dict)
    left_out: list[LeftOutRange] = field(default_factory=list)
    data_loss: list[LeftOutRange] = field(default_factory=list)
    removed: list[tuple[SharePartitionKey, Segment]] = field(default_factory=list)
    first_left: dict[SharePartitionKey, int] = field(default_factory=dict)
    evidence_is_old: bool = False
    trial_failed: bool = False

    @property
    def later_process(self) -> bool:
        return self.plan.member_epoch != self.member.member_epoch

    @property
    def reclaims(self) -> int:
        """How often a later process has reclaimed the plan, this time included."""
        return self.plan.reclaims + self.later_process

    def decide(self) -> None:
        for topic_id, index, ranges in self.plan.ranges:
            key = SharePartitionKey(topic_id, index)
            partition = self.group.partitions.get(key)
            if partition is None:  # its state was deleted
                self._say_lost(key, ranges, [])
                continue
            log_start = max(partition.log_start, self.log_starts.get(key, 0))
            segments = partition.carrying(self.plan.plan_id, ranges)
            self._say_lost(key, ranges, [(s.first, s.last) for s in segments])
            for segment in segments:
                for part in split_at(segment, log_start):
                    self._sort_out(key, part, log_start)
        self._cut()

    def _say_lost(self, key: SharePartitionKey, ranges: Iterable[tuple[int, int]], held: list[tuple[int, int]]) -> None:
        """Leave out the parts of ``ranges`` that no longer carry the plan's id: another member took them, or they were
        decided (``lost``), or an administrator altered the start offset since the acquisition (``altered``). Offsets
        that the log lost are reported as losses, and not here. If an entry of the plan's losses sums up several ranges,
        all offsets between its first and last one count as lost by the log."""
        altered = self.group.partitions.get(key) or self.group.deleted_partitions.get(key)
        reason = "altered" if altered is not None and self.plan.plan_id <= altered.altered_after else "lost"
        archived = [(o.first, o.last) for o in self.plan.unreported_losses if (o.topic_id, o.partition) == key]
        reached = -1
        known = iter(sorted([*held, *archived]))
        at = next(known, None)
        for first, last in ranges:
            while first <= last:
                while at is not None and at[0] <= first:
                    reached, at = max(reached, at[1]), next(known, None)
                if first <= reached:
                    first = reached + 1
                    continue
                end = last if at is None else min(last, at[0] - 1)
                self._leave(key, first, end, reason)
                first = end + 1

    def _sort_out(self, key: SharePartitionKey, segment: Segment, log_start: int) -> None:
        first, last, run = segment
        if key.topic_id in self.gone or last < log_start:
            self.data_loss.append(left_out_entry(self.group, key, first, last, "data_loss"))
            self.removed.append((key, segment))
        elif key.topic_id in self.unsubscribed:
            self._leave_out(key, segment, moved(run, Event.CUT, plan_id=None), "unsubscribed")
        elif self.later_process:
            self._come_back(key, segment)
        elif run.state == RecordState.ACQUIRED:
            self.kept.setdefault(key, []).append(segment)
        else:
            self.candidates.append((key, segment))

    def _come_back(self, key: SharePartitionKey, segment: Segment) -> None:
        run, plan, config = segment.run, self.plan, self.group.config
        if not plan.started:
            self.candidates.append((key, segment))
            return
        lost = run.state == RecordState.ACQUIRED
        failed = run._replace(failures=run.failures + lost, query_failures=run.query_failures + lost)
        after = replayed(run, failed, plan, config, self.now_ms)
        if after is None:
            self.candidates.append((key, segment._replace(run=failed)))
        elif after.quarantined:
            self.evidence_is_old = self.evidence_is_old or clears_evidence(run, after, config)
            self._leave_out(key, segment, after, "quarantined")
        else:
            self.trial_failed = True
            self._leave_out(key, segment, after, "archived")

    def _cut(self) -> None:
        """Cut the batch to its slice, and acquire again what is kept. The other records go back with their counts
        unchanged. In an ordered group, what leaves the batch takes along what follows it in its share partition."""
        config = self.group.config
        limit = config.share_delivery_count_limit
        keep_class: int | None = None
        left: int | None = None
        for key, segment in self.candidates:
            first, last, run = segment
            if config.is_ordered and first > self.first_left.get(key, first):
                self._return(key, segment)
                continue
            run_class = isolation_class(run.failures, limit)
            if keep_class is None:
                keep_class, left = run_class, slice_size(run.failures + 1, limit, config.share_isolation_base)
            if run_class != keep_class or left == 0:
                self._return(key, segment)
                continue
            end = last if left is None else min(last, first + left - 1)
            self._reacquire(key, Segment(first, end, run))
            if end < last:
                self._return(key, Segment(end + 1, last, run))
            if left is not None:
                left -= end - first + 1

    def _reacquire(self, key: SharePartitionKey, segment: Segment) -> None:
        count = segment.run.delivery_count + 1
        run = moved(segment.run, Event.RECLAIM, delivery_count=count, not_before_ms=None, delay_ms=None, reason="")
        self.changes.put(key, segment.first, segment.last, run)
        self.kept.setdefault(key, []).append(segment._replace(run=run))

    def _return(self, key: SharePartitionKey, segment: Segment) -> None:
        self._leave_out(key, segment, moved(segment.run, Event.CUT, plan_id=None), "cut")

    def _leave_out(self, key: SharePartitionKey, segment: Segment, run: Run, reason: str) -> None:
        self.changes.put(key, segment.first, segment.last, run)
        if run.state == RecordState.AVAILABLE:
            self.first_left.setdefault(key, segment.first)
        self._leave(key, segment.first, segment.last, reason)

    def _leave(self, key: SharePartitionKey, first: int, last: int, reason: str) -> None:
        self.left_out.append(left_out_entry(self.group, key, first, last, reason))

    def kept_plan(self) -> tuple[PartitionPlan, ...]:
        return plan_of(self.group, ((key, sorted(held, key=itemgetter(0))) for key, held in self.kept.items()))

    def records(self) -> list[Record]:
        records: list[Record] = [*self.changes.records(), *removed_records(self.group, self.removed)]
        if self.evidence_is_old:
            records.append(EvidenceCleared())
        if self.trial_failed:
            records.append(EvidenceUsed(member_id=self.member.member_id))
        return records
