"""Acquire a query's next plan (docs/trust/protocol.md, "One micro-batch").

Rules:

- Records that came back are acquired first, in offset order, then fresh records up to the end of the log.
- A quarantined record is delivered alone. If it has failed alone before, it goes on trial as soon as the query has
  evidence that processing works, but not in two successive plans. If it has not, it is acquired in every second plan of
  a
  query with evidence.
- When no other record can be acquired, a quarantined record is acquired in any case.
- A query whose breaker on releases is open acquires nothing until its pause ends, then a few records
  (:mod:`coordinator.core.release_breaker`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core import isolation
from coordinator.core.commands import AcquirePlan, Decision
from coordinator.core.commands.acquisition import (
    MAX_RANGES,
    held_back,
    held_by,
    is_turn_of_one_alone,
    plan_as_held,
    plan_of,
    ranges_of,
    room,
    rotated,
    run_records,
)
from coordinator.core.commands.reclaim_plan import Reclaim
from coordinator.core.flow import FREE, Flow, flow_of, flowing, in_the_way, least
from coordinator.core.isolation import IsolationEvent, isolation_class, slice_size, stage_of
from coordinator.core.left_out import LeftOutRange, bounded
from coordinator.core.log_records import DataLost, PlanAcquired, PlanStarted, Record
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.order import (
    Log,
    delivered_alone,
    free,
    held_by_others,
    holders,
    may_take_fresh,
    returned,
    waits,
)
from coordinator.core.plan_state import PlanEvent, after
from coordinator.core.release_breaker import PROBE_RECORDS, is_open, most_returned, pause_ms
from coordinator.core.runs import FRESH, Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import PartitionPlan, Plan, PlanReply
from coordinator.protocol.values import SharePartitionKey

SUPERSEDED_KEPT = 100
"""A plan remembers up to this many superseded plans, the last ones."""


def acquire_plan(group: ShareGroup, command: AcquirePlan, now_ms: int) -> Decision[PlanReply]:
    """Acquire the member's next plan, or return its newest plan if nobody has started that yet.

    The process that acquired the newest plan gets it again, with the ranges that the plan still holds, even if that is
    none. A later process reclaims the plan (delivery count + 1, no failure); if nothing of it is left, the next plan
    supersedes it.

    Raises:
        ForeignPlan: ``start`` is of another incarnation of the group.
        StalePlan: the newest plan was started and is not completed; or ``start`` is not the last completed plan, since
            the checkpoint was rolled back.
    """
    member = group.member(command.member_id, command.member_epoch)
    start = group.plan_id(command.start)
    pending = member.pending
    if pending is not None and (
        start == pending.plan_id or after(member.plan_state(pending.plan_id), PlanEvent.RETURN) is None
    ):
        raise group.stale(member, start, f"plan {group.plan_id_text(pending.plan_id)} was delivered and not completed")
    if after(member.plan_state(start), PlanEvent.ACQUIRE_NEXT) is None:
        raise group.stale(member, start, f"the last completed plan is {group.plan_id_text(member.completed) or 'none'}")
    if pending is not None and (again := _pending_again(group, member, now_ms)) is not None:
        return again
    settled, losses = ([], ()) if pending is None else _settle(group, member, pending, now_ms)
    acquisition = Acquisition(group, command, now_ms, superseded=pending, losses=losses)
    acquisition.choose(member)
    decision = acquisition.decision(member)
    return Decision((*settled, *decision.records), decision.reply)


def _settle(
    group: ShareGroup, member: Member, plan: AcquiredPlan, now_ms: int
) -> tuple[list[Record], tuple[LeftOutRange, ...]]:
    """Returns log records that archive what a superseded plan still holds (all of it is below the log start), and the
    losses that the plan has to report after that."""
    reclaim = Reclaim(group, member, plan, now_ms)
    reclaim.decide()
    records = reclaim.records()
    losses = plan.unreported_losses
    if reclaim.data_loss:
        lost = bounded(reclaim.data_loss)
        records.append(DataLost(plan_id=plan.plan_id, member_id=member.member_id, lost=lost))
        losses = bounded((*losses, *lost))
    return records, losses


def _pending_again(group: ShareGroup, member: Member, now_ms: int) -> Decision[PlanReply] | None:
    plan = member.newest
    assert plan is not None
    reclaim = Reclaim(group, member, plan, now_ms)
    if not reclaim.later_process:
        # Even if nothing of the plan is left: Spark may have logged the answer to an earlier try of this request.
        return Decision((), _plan_reply(group, plan.plan_id, plan_as_held(group, plan), plan.trial))
    reclaim.decide()
    if not reclaim.kept:
        return None
    reclaimed = PlanStarted(
        plan_id=plan.plan_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        started=False,
        reclaims=reclaim.reclaims,
        explicit=group.config.is_explicit(),
        unreported_losses=bounded((*plan.unreported_losses, *reclaim.data_loss)),
    )
    reply = _plan_reply(group, plan.plan_id, reclaim.kept_plan(), plan.trial)
    return Decision((*reclaim.records(), reclaimed), reply)


def _plan_reply(group: ShareGroup, plan_id: int, partitions: tuple[PartitionPlan, ...], trial: bool) -> PlanReply:
    return PlanReply(plan=Plan(plan_id=group.plan_id_text(plan_id), partitions=partitions, trial=trial))


@dataclass(slots=True)
class Acquisition:
    """Chooses the records of one plan.

    superseded, losses: the plan that this one supersedes, and that plan's unreported losses.
    taken, counts, records, ranges: what was taken so far.
    most: how many records the plan may have; None: any number.
    most_returned: how many of them may have come back; None: ``most``.
    held_back, holders: as in PlanReply. flow: what the group's limits leave.
    waits: the log record that the member waits for share partitions that others hold, if it does.
    """

    group: ShareGroup
    command: AcquirePlan
    now_ms: int
    superseded: AcquiredPlan | None = None
    losses: tuple[LeftOutRange, ...] = ()
    taken: dict[SharePartitionKey, list[Segment]] = field(default_factory=dict)
    counts: dict[SharePartitionKey, int] = field(default_factory=dict)
    records: int = 0
    ranges: int = 0
    waits: tuple[Record, ...] = ()
    holders: tuple[str, ...] = ()
    most: int | None = None
    most_returned: int | None = None
    _isolating: bool = False
    trial: bool = False
    held_back: int = 0
    flow: Flow = FREE

    def choose(self, member: Member) -> None:
        """Take the plan's records. Quarantined records and others take turns, so that neither keeps the other waiting
        in a stream that never rests. The member's own plans are counted for that: the group's other plans may be other
        members'."""
        of_query = self._rotated(member)
        logs, self.flow = flowing(self.group, of_query), flow_of(self.group, self.now_ms)
        if self.flow.limited_by:
            self.flow = in_the_way(self.group, self.flow, of_query, logs, self.now_ms, self._available_ms)
            return
        self.most = least(self.command.max_records, self.flow.most)
        if is_open(member.breaker, self.group.config):
            if pause_ms(member.breaker, self.group.config, self.now_ms):
                return
            self.most = PROBE_RECORDS if self.most is None else min(PROBE_RECORDS, self.most)
            self.most_returned = most_returned(self.most, self.group.config)
        self.held_back = held_back(partition for partition, _ in logs)
        if self.held_back:
            return
        self._take_from(member, free(self.group, member, logs, self.now_ms, self._available_ms))
        if not self.taken:
            self.flow = in_the_way(self.group, self.flow, of_query, logs, self.now_ms, self._available_ms)
            held = held_by_others(self.group, member, logs)
            self.waits, self.holders = waits(self.group, member, held, self.now_ms), holders(self.group, held)

    def _take_from(self, member: Member, logs: list[Log]) -> None:
        if member.evidence and not (member.newest is not None and member.newest.trial):
            if self._take_quarantined(logs, on_trial=True):
                return
            if is_turn_of_one_alone(member) and self._take_quarantined(logs, on_trial=False):
                return
        self._take_returned(logs)
        if not self._isolating:
            self._take_fresh(logs)
        if not self.taken and not (member.evidence and self._take_quarantined(logs, on_trial=True)):
            self._take_quarantined(logs, on_trial=False)

    def _rotated(self, member: Member) -> list[Log]:
        """The partitions, beginning with another one for each plan of the member, so that no partition is always
        last."""
        logs = [
            (partition, bounds.end)
            for bounds in self.command.bounds
            if (partition := self.group.partitions.get(SharePartitionKey(bounds.topic_id, bounds.partition)))
        ]
        return rotated(logs, member, [partition for partition, _ in logs])

    @property
    def _available_ms(self) -> int:
        """Returns the time up to which released records are for this query. An AvailableNow run leaves out records that
        become available after its begin; otherwise it would not end."""
        began_ms = self.command.began_ms
        return self.now_ms if began_ms is None else min(self.now_ms, began_ms - 1)

    def _room(self, partition: SharePartition) -> int:
        return room(self.group, partition, self.counts.get(partition.key, 0))

    # --- records that came back

    def _take_returned(self, logs: list[Log]) -> None:
        limit = self.group.config.share_delivery_count_limit
        keep_class: int | None = None
        left = self.most if self.most_returned is None else self.most_returned
        hard = self.group.config.share_acquire_mode == "record_limit"
        hard = hard or self.most_returned is not None or self.flow.most is not None
        for partition, end in logs:
            for first, last, run in returned(self.group, partition, end, self._available_ms):
                if (left is not None and left <= 0) or self.ranges >= MAX_RANGES:
                    return
                if (most := self._room(partition)) <= 0:
                    break
                run_class = isolation_class(run.failures, limit)
                if keep_class is None:
                    keep_class = run_class
                    self._isolating = bool(keep_class)
                    cut = slice_size(run.failures + 1, limit, self.group.config.share_isolation_base)
                    if cut is not None:
                        left, hard = cut if left is None else min(cut, left), True
                if run_class != keep_class and self.group.config.is_ordered:
                    break
                if run_class != keep_class:
                    continue
                most = min(most, left) if hard and left is not None else most
                taken = self._take(partition, Segment(first, min(last, first + most - 1), run))
                left = None if left is None else left - taken

    # --- fresh records

    def _take_fresh(self, logs: list[Log]) -> None:
        """Take fresh records from each partition. Its share of the remaining limit is in proportion to its backlog, as
        in Spark's Kafka source."""
        backlog = []
        for partition, end in logs:
            size = min(end - partition.end_offset, self._room(partition))
            if size > 0 and may_take_fresh(self.group, partition, self.counts.get(partition.key, 0)):
                backlog.append((partition, size))
        total = sum(size for _, size in backlog)
        left = total if self.most is None else min(total, self.most - self.records)
        quota = left
        for partition, size in backlog:
            if left <= 0 or self.ranges >= MAX_RANGES:
                return
            share = min(left, -(-quota * size // total))
            first = partition.end_offset
            left -= self._take(partition, Segment(first, first + share - 1, FRESH))

    # --- records that are delivered alone

    def _take_quarantined(self, logs: list[Log], *, on_trial: bool) -> bool:
        """Take the least recently tried quarantined record, alone. Without a trial, it must have waited for its
        backoff."""
        candidates = []
        for partition, end in logs:
            for segment in delivered_alone(self.group, partition):
                backs_off = (segment.run.not_before_ms or 0) > self.now_ms
                stage = stage_of(segment.run, self.group.config.share_delivery_count_limit)
                waits = (stage, IsolationEvent.START_TRIAL) not in isolation.TRANSITIONS if on_trial else backs_off
                if not waits and segment.first < end and self._room(partition) > 0:
                    candidates.append((segment.run.last_tried_ms or 0, partition.key, segment))
                    break
        if not candidates:
            return False
        _, key, segment = min(candidates, key=lambda c: c[0])
        self.trial = on_trial or self._failed_alone_long_enough(segment.run)
        self._take(self.group.partitions[key], segment._replace(last=segment.first))
        return True

    def _failed_alone_long_enough(self, run: Run) -> bool:
        """Whether the record goes on trial without evidence. That needs a dead letter topic, which keeps the record."""
        if not self.group.config.errors_deadletterqueue_topic_name or run.failed_alone_ms is None:
            return False
        return self.now_ms - run.failed_alone_ms >= self.group.config.share_poison_solo_timeout_ms

    # --- the outcome

    def _take(self, partition: SharePartition, segment: Segment) -> int:
        count = segment.last - segment.first + 1
        self.taken.setdefault(partition.key, []).append(segment)
        self.counts[partition.key] = self.counts.get(partition.key, 0) + count
        self.records += count
        self.ranges += 1
        return count

    def decision(self, member: Member) -> Decision[PlanReply]:
        """The decision for the plan. If there are losses to report, the plan may have no record: the next record may be
        long in coming."""
        topic_ids = self._topics_to_report()
        if not (self.taken or topic_ids or self.losses):
            _, limited_by, retry_ms = self.flow
            reply = PlanReply(held_back=self.held_back, holders=self.holders, limited_by=limited_by, retry_ms=retry_ms)
            return Decision(self.waits, reply)
        plan_id = self.group.last_plan_id + 1
        held = held_by(plan_id, self.taken, self.now_ms)
        before = self.superseded
        superseded_plans = () if before is None else (*before.superseded_plans, before.plan_id)[-SUPERSEDED_KEPT:]
        plan = PlanAcquired(
            plan_id=plan_id,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            acquired_ms=self.now_ms,
            trial=self.trial,
            explicit=self.group.config.is_explicit(),
            ranges=ranges_of(held),
            reported_topic_ids=topic_ids,
            unreported_losses=self._unreported_losses(topic_ids),
            superseded_plans=superseded_plans,
        )
        reply = _plan_reply(self.group, plan_id, plan_of(self.group, held.items()), self.trial)
        return Decision((plan, *run_records(self.group, held)), reply)

    def _unreported_losses(self, topic_ids: tuple[str, ...]) -> tuple[LeftOutRange, ...]:
        """The losses that the plan reports: the superseded plan's, and the group's for these topics."""
        of_group = tuple(lost for lost in self.group.unreported_losses if lost.topic_id in topic_ids)
        if self.superseded is None:
            return of_group
        return bounded((*self.losses, *self.superseded.data_loss, *of_group))

    def _topics_to_report(self) -> tuple[str, ...]:
        """The ids of this query's topics for which the group has losses to report. An empty id stands for losses that
        are too many to name their topics."""
        if not self.group.unreported_losses:
            return ()
        known = self.group.topic_names
        names = {known[b.topic_id] for b in self.command.bounds if b.topic_id in known} | set(self.command.topics)
        return tuple(
            sorted({lost.topic_id for lost in self.group.unreported_losses if lost.topic in names or not lost.topic})
        )
