"""Stage the outcomes of a batch's rows (docs/trust/protocol.md, "Outcomes of a sink"). They are durable now, and take
effect when their plan completes.

The rows' receipts name the plan: an outcome is staged on the live plan that carries its offset at its delivery count.
Other rows are of these kinds:

- A row of an earlier attempt of such a plan: the request is refused, since it comes from a driver that was replaced,
  and that must not commit what it wrote.
- A row that no delivery of the group can have had: the request is refused.
- Any other row is stale: it is counted and skipped. The request is refused only if the sink asks for that, or if the
  plan holds none of the rows although its query has lost nothing. If the log lost the record while the query had no
  session, and the row gives it back, the record is lost with the plan's completion. A row that accepts it does not undo
  a loss: the group has forgotten the record's delivery count, so the row may be of another delivery.

Rule: a request applies to a plan only if the plan holds a row of the request, or if the sink's tasks found the plan's
id in the note of the tasks that read the plan. A request that applies to no plan changes nothing (docs/adr/0017).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from coordinator.core.changes import Changes, dead_lettered
from coordinator.core.commands import Decision, MarkDeadLettersWritten, StageRuns
from coordinator.core.endings import after_success
from coordinator.core.failed_deliveries import is_done
from coordinator.core.left_out import bounded
from coordinator.core.log_records import BatchNamed, DataLost, PlanStaged, QueryEnded, Record
from coordinator.core.members import AcquiredPlan
from coordinator.core.plan_state import PlanEvent, after
from coordinator.core.record_state import RecordState
from coordinator.core.runs import FRESH, Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import Outcome, StagedRun, Verdict, against_silence, contradicted
from coordinator.protocol.errors import (
    AcknowledgementModeDiffers,
    BatchNotNamed,
    BatchReclaimed,
    GroupIdNotFound,
    InvalidRequest,
    NeverDelivered,
    NoneHeld,
    NoPlanToDecide,
    SinkOutdated,
    StaleReceipts,
)
from coordinator.protocol.messages import Done, OutcomesStaged, PartitionOutcomes
from coordinator.protocol.values import GIVES_BACK, LONGEST_REASON, AcknowledgeType, OutcomeRun, SharePartitionKey

SAMPLE = 5
_OUTCOMES: dict[AcknowledgeType, Outcome] = {
    AcknowledgeType.ACCEPT: 1,
    AcknowledgeType.RELEASE: 2,
    AcknowledgeType.REJECT: 3,
    AcknowledgeType.DEFER: 5,
}


def stage_outcomes(group: ShareGroup, command: StageRuns, now_ms: int) -> Decision[OutcomesStaged]:
    """See :class:`~coordinator.protocol.messages.StageOutcomes`. A request that is refused stages nothing.

    Raises:
        GroupIdNotFound: the group does not exist.
        SinkOutdated: the group was deleted and created anew since the sink began.
        InvalidRequest: a partition is named twice, or its runs are not ascending.
        NoPlanToDecide: no query of the group has a started plan.
        NeverDelivered: a row's receipt names a delivery that the group has not made.
        BatchReclaimed: a row is of an earlier attempt of a live plan.
        StaleReceipts: rows are stale, and the sink asked to fail on that.
        NoneHeld: all rows are stale, although the query has lost nothing.
        AcknowledgementModeDiffers, BatchNotNamed: see :func:`_check_mode`.
    """
    if not group.exists:
        raise GroupIdNotFound(group_id=group.group_id)
    _check_incarnation(group, command)
    _check_order(group, command)
    plans = _deciding(group)
    if not plans and command.partitions:
        raise NoPlanToDecide(group_id=group.group_id)
    matching = _Matching(group, command, now_ms)
    for outcomes in command.partitions:
        matching.match(outcomes)
    of_rows = matching.plans()
    named = _named(group, plans, command, of_rows)
    if matching.stale and command.fail_on_stale:
        raise StaleReceipts(group_id=group.group_id, count=matching.stale, sample=", ".join(matching.sample))
    if matching.stale and not matching.staged and all(_is_whole(group, plan) for plan in named or plans):
        raise NoneHeld(group_id=group.group_id, count=matching.stale, sample=", ".join(matching.sample))
    silent = [] if command.unreadable else [plan for plan in named if plan not in of_rows]
    spoken_for = [*of_rows, *silent]
    if not command.unreadable:
        _check_mode(group, plans, spoken_for, command)
    newest = max(spoken_for, key=lambda plan: (plan.reclaims, plan.plan_id), default=None)
    reply = OutcomesStaged(
        staged=matching.staged,
        stale=matching.stale,
        stale_sample=tuple(matching.sample),
        attempt=None if newest is None else newest.reclaims,
        plan_id="" if newest is None else group.plan_id_text(newest.plan_id),
        member_id="" if newest is None else newest.member_id,
        contradicted=matching.contradicted(),
    )
    records: list[Record] = [*matching.records(), *_silent(group, silent, command), *matching.losses(spoken_for)]
    if command.batch_id >= 0:
        records += [BatchNamed(plan_id=plan.plan_id, batch_id=command.batch_id) for plan in spoken_for]
    for member in (group.members[plan.member_id] for plan in spoken_for if plan.member_id in group.members):
        if member.ending is not None and (ending := after_success(member.ending)) != member.ending:
            records.append(QueryEnded(member_id=member.member_id, ending=ending))
    return Decision(tuple(records), reply)


def _named(
    group: ShareGroup, plans: Iterable[AcquiredPlan], command: StageRuns, of_rows: list[AcquiredPlan]
) -> list[AcquiredPlan]:
    """The plans that the request names. Rows at a plan's present delivery counts prove that its newest process sends
    them, even if an earlier process left a note on the sink's host.

    Raises:
        BatchReclaimed: the process that read one of the plans was replaced since.
    """
    named = [plan for plan in plans if group.plan_id_text(plan.plan_id) in command.plans]
    for plan in named:
        plan_id = group.plan_id_text(plan.plan_id)
        if command.plans[plan_id] < plan.member_epoch and plan not in of_rows:
            raise BatchReclaimed(group_id=group.group_id, row=f"plan {plan_id}")
    return named


def _check_incarnation(group: ShareGroup, command: StageRuns) -> None:
    """Check that the rows are of this incarnation of the group: receipts of an earlier one may look like current ones.

    Raises:
        SinkOutdated: the group was deleted and created anew.
    """
    if command.incarnation and command.incarnation != group.incarnation:
        raise SinkOutdated(group_id=group.group_id)


def _check_order(group: ShareGroup, command: StageRuns) -> None:
    """Check that rows are ascending, and name each record once.

    Raises:
        InvalidRequest: they do not, or an outcome is unknown.
        NeverDelivered: an offset is negative, or a delivery count is below 1.
    """
    if len({(p.topic_id, p.partition) for p in command.partitions}) < len(command.partitions):
        raise InvalidRequest(what="A partition is named twice in one request.")
    for outcomes in command.partitions:
        reached = -1
        for run in outcomes.runs:
            if run.first < 0 or run.delivery_count < 1:
                row = _receipt(group, outcomes, run, run.first)
                raise NeverDelivered(
                    group_id=command.group_id, row=row, reason="offsets begin at 0, and delivery counts at 1"
                )
            if not reached < run.first <= run.last or run.outcome not in _OUTCOMES:
                what = f"Outcome {run.outcome:d} of {run.first}-{run.last}, after {reached}, is unknown or in no order."
                raise InvalidRequest(what=what)
            reached = run.last


def _deciding(group: ShareGroup) -> list[AcquiredPlan]:
    """The plans on which outcomes can be staged: their batches are being processed now."""
    pending = (member.pending for member in group.members.values() if member.query)
    return [plan for plan in pending if plan is not None and _allows_staging(group, plan)]


def _allows_staging(group: ShareGroup, plan: AcquiredPlan) -> bool:
    return after(group.members[plan.member_id].plan_state(plan.plan_id), PlanEvent.STAGE) is not None


def _is_whole(group: ShareGroup, plan: AcquiredPlan) -> bool:
    """Whether the plan was started, and has lost none of its records since."""
    carried = sum(last - first + 1 for _, segments in group.carrying(plan) for first, last, _ in segments)
    return plan.started and 0 < plan.records == carried and not (plan.left_out or plan.data_loss)


def _check_mode(
    group: ShareGroup, plans: list[AcquiredPlan], spoken_for: list[AcquiredPlan], command: StageRuns
) -> None:
    """Check that the mode in the sink's options, if any, is that in which its batch was acquired.

    Raises:
        AcknowledgementModeDiffers: the sink's options name the other mode.
        BatchNotNamed: the request does not say to which batch it belongs, and in explicit mode that matters.
    """
    own = command.acknowledgement_mode
    differing = [plan for plan in spoken_for or plans if own and plan.explicit != (own == "explicit")]
    if differing and (spoken_for or len(differing) == len(plans)):
        other = "explicit" if differing[0].explicit else "implicit"
        raise AcknowledgementModeDiffers(group_id=group.group_id, own=own, other=other)
    # A target that ignores the replay of a known batch may keep an output of this attempt without the batch's records.
    matters = own != "implicit" and command.has_target and not command.replaces
    if matters and not spoken_for and any(plan.explicit and any(group.carrying(plan)) for plan in plans):
        raise BatchNotNamed(group_id=group.group_id)


def _silent(group: ShareGroup, plans: Iterable[AcquiredPlan], command: StageRuns) -> Iterator[PlanStaged]:
    """Yield log records of a commit that has no rows of these plans. They show that the query has a sink, and that this
    attempt has not mentioned the records, which vetoes what a later attempt says about them."""
    for plan in plans:
        speaks = plan.explicit and plan.reclaims not in plan.explicit_attempts
        replaces = _replaces(plan, command)
        if speaks or replaces is not None or not group.members[plan.member_id].decides:
            yield PlanStaged(
                plan_id=plan.plan_id,
                member_id=plan.member_id,
                explicit_attempts=_explicit_attempts(plan) if speaks else None,
                replaces=replaces,
            )


def _replaces(plan: AcquiredPlan, command: StageRuns) -> bool | None:
    """Whether all sinks of the attempt, this commit's included, declare that their target replaces its output; None if
    that is unchanged."""
    replaces = command.replaces and plan.replaces is not False
    return replaces if replaces != plan.replaces else None


@dataclass(slots=True)
class _Matching:
    """Matches the outcomes of one request to the plans that carry their records."""

    group: ShareGroup
    command: StageRuns
    now_ms: int
    staged: int = 0
    stale: int = 0
    sample: list[str] = field(default_factory=list)
    _by_plan: dict[int, dict[SharePartitionKey, list[StagedRun]]] = field(default_factory=dict)
    _given_back: dict[SharePartitionKey, list[tuple[int, int]]] = field(default_factory=dict)
    _verdicts: dict[tuple[object, ...], Verdict] = field(default_factory=dict)

    def match(self, outcomes: PartitionOutcomes) -> None:
        """Match the outcomes of one partition. Most lie in the same run as the one before, so that run is kept."""
        key = SharePartitionKey(outcomes.topic_id, outcomes.partition)
        partition = self.group.partitions.get(key)
        if partition is None:
            self._check_gone(outcomes, key)
            return
        first, last, held = 0, -1, FRESH
        into: list[StagedRun] | None = None
        for run in outcomes.runs:
            if run.last >= partition.end_offset:
                reason = f"no offset from {partition.end_offset} on was handed out"
                raise self._never(reason, outcomes, run, max(run.first, partition.end_offset))
            if not first <= run.first <= last:
                whole = partition.runs.at(run.first)
                first, last, held = whole or (run.first, run.first - 1, FRESH)
                into = None if whole is None else self._staged_on(partition, held)
            if run.last <= last and into is not None and run.delivery_count == held.delivery_count:
                self._stage(into, run, run.first, run.last)
            else:
                self._match_parts(partition, outcomes, run)

    def _check_gone(self, outcomes: PartitionOutcomes, key: SharePartitionKey) -> None:
        """Count outcomes of a share partition as stale whose state an administrator has deleted.

        Raises:
            NeverDelivered: the group never had the share partition.
        """
        for run in outcomes.runs:
            if key not in self.group.deleted_partitions:
                raise self._never("the group does not read this partition", outcomes, run, run.first)
            self._count_stale(outcomes, run, run.first, run.last)

    def _match_parts(self, partition: SharePartition, outcomes: PartitionOutcomes, run: OutcomeRun) -> None:
        at = run.first
        for first, last, held in partition.runs.between(run.first, run.last):
            if run.delivery_count > held.delivery_count:
                reason = f"it was handed out {held.delivery_count} time(s)"
                raise self._never(reason, outcomes, run, first)
            if held.delivery_count != run.delivery_count:
                self._check_attempt(outcomes, run, held)
                continue
            into = self._staged_on(partition, held)
            if into is None:
                continue
            if at < first:
                self._count_stale(outcomes, run, at, first - 1)
            self._stage(into, run, first, last)
            at = last + 1
        if at <= run.last:
            self._count_stale(outcomes, run, at, run.last)

    def _check_attempt(self, outcomes: PartitionOutcomes, run: OutcomeRun, held: Run) -> None:
        """Check that the row is not of an earlier attempt of a pending plan. Such a row comes from a driver that was
        replaced, and that would go on to commit what it has written, although the outcomes of another attempt count.

        Raises:
            BatchReclaimed: the row is of an earlier attempt.
        """
        plan = self.group.plan_of(held)
        if plan is None or self.group.members[plan.member_id].pending is not plan:
            return
        if held.delivery_count - plan.reclaims <= run.delivery_count < held.delivery_count:
            raise BatchReclaimed(group_id=self.group.group_id, row=_receipt(self.group, outcomes, run, run.first))

    def _never(self, reason: str, outcomes: PartitionOutcomes, run: OutcomeRun, offset: int) -> NeverDelivered:
        return NeverDelivered(
            group_id=self.group.group_id, row=_receipt(self.group, outcomes, run, offset), reason=reason
        )

    def _staged_on(self, partition: SharePartition, run: Run) -> list[StagedRun] | None:
        """The list of outcomes of the plan that carries the run; None if no sink may decide the run's records."""
        plan = self.group.plan_of(run)
        if plan is None or not plan.query or not _allows_staging(self.group, plan):
            return None
        return self._by_plan.setdefault(plan.plan_id, {}).setdefault(partition.key, [])

    def _stage(self, into: list[StagedRun], run: OutcomeRun, first: int, last: int) -> None:
        decided = run[2:]
        verdict = self._verdicts.get(decided)
        if verdict is None:
            verdict = self._verdicts[decided] = self._verdict(run)
        into.append((first, last, verdict))
        self.staged += last - first + 1

    def _verdict(self, run: OutcomeRun) -> Verdict:
        delay = run.delay_ms if run.outcome in GIVES_BACK else None
        not_before_ms = None if delay is None else self.now_ms + delay
        return Verdict(
            run.delivery_count,
            _OUTCOMES[run.outcome],
            not_before_ms,
            run.dead_letter,
            run.reason[:LONGEST_REASON],
            divided=run.divided,
            delay_ms=delay,
            unreadable=self.command.unreadable,
        )

    def _count_stale(self, outcomes: PartitionOutcomes, run: OutcomeRun, first: int, last: int) -> None:
        self.stale += last - first + 1
        if not is_done(self.group, run.outcome, dead_letter=run.dead_letter):
            key = SharePartitionKey(outcomes.topic_id, outcomes.partition)
            self._given_back.setdefault(key, []).append((first, last))
        if len(self.sample) < SAMPLE:
            self.sample.append(_receipt(self.group, outcomes, run, first))

    def plans(self) -> list[AcquiredPlan]:
        """The plans on which something is staged."""
        return [self.group.plans[plan_id] for plan_id, staged in self._by_plan.items() if any(staged.values())]

    def losses(self, plans: Iterable[AcquiredPlan]) -> Iterator[DataLost]:
        """Yield a log record for each plan of which the logs had lost records before a sink gave these back."""
        for plan in plans:
            lost = [
                msgspec.structs.replace(entry, first=at, last=end, count=end - at + 1)
                for entry in plan.unreported_losses
                for first, last in self._given_back.get(SharePartitionKey(entry.topic_id, entry.partition), ())
                if (at := max(first, entry.first)) <= (end := min(last, entry.last))
            ]
            if lost:
                yield DataLost(plan_id=plan.plan_id, member_id=plan.member_id, lost=(), lost_if_completed=bounded(lost))

    def contradicted(self) -> int:
        """The number of records about which an earlier request of the same attempt decided otherwise."""
        return sum(
            contradicted(self.group.plans[plan_id].staged.get(key, []), runs)
            for plan_id, staged in self._by_plan.items()
            for key, runs in staged.items()
        )

    def records(self) -> Iterator[PlanStaged]:
        """Yield one log record for each plan."""
        command = self.command
        for plan in self.plans():
            member, last_explicit = self.group.members[plan.member_id], plan.explicit_before
            staged = {key: runs for key, runs in self._by_plan[plan.plan_id].items() if runs}
            if last_explicit is not None and not command.unreadable:
                for key, runs in staged.items():
                    before = plan.staged.get(key, [])
                    staged[key] = against_silence(before, runs, plan.reclaims, last_explicit)
            partitions = tuple((*key, tuple(runs)) for key, runs in staged.items())
            if command.unreadable:
                yield PlanStaged(plan_id=plan.plan_id, member_id=plan.member_id, partitions=partitions)
                continue
            yield PlanStaged(
                plan_id=plan.plan_id,
                member_id=plan.member_id,
                partitions=partitions,
                explicit_attempts=_explicit_attempts(plan) if plan.explicit else None,
                replaces=_replaces(plan, command),
                query_id=_changed(member.query_id, command.query_id),
                query_name=_changed(member.query_name, command.query_name),
                checkpoint=_changed(member.checkpoint, command.checkpoint),
            )


def _changed(before: str, now: str) -> str | None:
    """The text if it is known and has changed; else None."""
    return now if now not in ("", before) else None


def _explicit_attempts(plan: AcquiredPlan) -> tuple[int, ...] | None:
    """The last two attempts in explicit mode in which a sink wrote, this one included; None if that is unchanged."""
    if plan.reclaims in plan.explicit_attempts:
        return None
    return (*plan.explicit_attempts, plan.reclaims)[-2:]


def _receipt(group: ShareGroup, outcomes: PartitionOutcomes, run: OutcomeRun, offset: int) -> str:
    topic = group.topic_names.get(outcomes.topic_id, outcomes.topic_id)
    return f"{topic}-{outcomes.partition}@{offset} ({run.delivery_count})"


def mark_dead_letters_written(group: ShareGroup, command: MarkDeadLettersWritten, now_ms: int) -> Decision[Done]:
    """Archive the records whose dead letters are written, or never will be, if they are still ARCHIVING at this
    delivery count."""
    changes = Changes()
    for written in command.written:
        offsets = written.offsets
        partition = group.partitions.get(offsets.key)
        for first, last, run in partition.runs.between(offsets.first, offsets.last) if partition is not None else ():
            if run.state == RecordState.ARCHIVING and run.delivery_count == written.delivery_count:
                assert partition is not None
                changes.put(partition.key, first, last, dead_lettered(run))
    return Decision(tuple(changes.records()), Done())
