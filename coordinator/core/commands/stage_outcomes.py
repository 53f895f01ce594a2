"""Stage the outcomes of a batch's rows (docs/trust/protocol.md, "Outcomes of a sink"): durable now, in effect when
their plan completes.

The rows' receipts name the plan: an outcome is staged on the live plan that carries its offset at its delivery count.
Rows of an earlier attempt of such a plan come from a driver that was replaced, which must not commit what it wrote, so
the request is refused. So is a row that no delivery of the group can have had. Every other row is stale: it is counted
and skipped, and the request fails only if the sink asks for that, or if no row at all is held though the query has lost
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from coordinator.core.changes import Changes, dead_lettered
from coordinator.core.commands import Decision, MarkDeadLettersWritten, StageRuns
from coordinator.core.members import AcquiredPlan
from coordinator.core.plan_state import PlanEvent, after
from coordinator.core.record_state import RecordState
from coordinator.core.records import BatchNamed, PlanStaged
from coordinator.core.runs import FRESH, Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import StagedRun, Verdict, against_silence, contradicted
from coordinator.protocol.errors import (
    BatchReclaimed,
    GroupIdNotFound,
    InvalidRequest,
    NeverDelivered,
    NoneHeld,
    NoPlanToDecide,
    SinkOutdated,
    StaleReceipts,
    TooManyRejects,
)
from coordinator.protocol.messages import Done, OutcomesStaged, PartitionOutcomes
from coordinator.protocol.values import LONGEST_REASON, AcknowledgeType, OutcomeRun, SharePartitionKey

SAMPLE = 5
_OUTCOMES = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT})
REJECT_WINDOW = 10_000
"""The reject ratio is that of about this many last decided records."""
JUDGED_FROM = 100
"""The reject ratio is judged from this many decided records on: fewer prove nothing."""


def stage_outcomes(group: ShareGroup, command: StageRuns, now_ms: int) -> Decision[OutcomesStaged]:
    """See :class:`~coordinator.protocol.messages.StageOutcomes`. A request that is refused stages nothing.

    Raises:
        GroupIdNotFound: the group does not exist.
        SinkOutdated: the group was deleted and created anew since the sink began.
        InvalidRequest: a partition is named twice, or its runs are not ascending.
        NoPlanToDecide: no query of the group has a started plan.
        NeverDelivered: a row's receipt names a delivery that cannot have been.
        BatchReclaimed: a row is of an earlier attempt of a live plan.
        StaleReceipts: rows are stale, and the sink asked to fail on that.
        NoneHeld: all rows are stale, though the query has lost nothing.
        TooManyRejects: the part of rejected records is above errors.deadletterqueue.max.reject.ratio.
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
    if matching.stale and command.fail_on_stale:
        raise StaleReceipts(group_id=group.group_id, count=matching.stale, sample=", ".join(matching.sample))
    if matching.stale and not matching.staged and _lost_nothing(group, command.query_id):
        raise NoneHeld(group_id=group.group_id, count=matching.stale, sample=", ".join(matching.sample))
    _check_ratio(group, matching)
    reply = OutcomesStaged(
        staged=matching.staged,
        stale=matching.stale,
        stale_sample=tuple(matching.sample),
        attempt=matching.attempt,
        contradicted=matching.contradicted,
    )
    staged = list(matching.records())
    chosen = {each.plan_id for each in staged}
    return Decision((*staged, *_silent(group, plans, command, chosen), *_named(group, plans, command, chosen)), reply)


def _check_incarnation(group: ShareGroup, command: StageRuns) -> None:
    """Check that the group is the one whose receipts the rows have: those of an earlier incarnation may look like
    current ones. Topics need no check: the rows name them by id.

    Raises:
        SinkOutdated: the group was deleted and created anew.
    """
    if command.incarnation and command.incarnation != group.incarnation:
        raise SinkOutdated(group_id=group.group_id)


def _check_order(group: ShareGroup, command: StageRuns) -> None:
    """Check that rows are ascending, and name each record once: staged runs are kept in order.

    Raises:
        InvalidRequest: they are not, or an outcome is unknown.
        NeverDelivered: an offset or a delivery count is one that no record has.
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
    """The plans whose batch is being processed now: outcomes can be staged on them."""
    pending = (member.pending for member in group.members.values() if member.query)
    return [plan for plan in pending if plan is not None and _allows_staging(group, plan)]


def _allows_staging(group: ShareGroup, plan: AcquiredPlan) -> bool:
    return after(group.members[plan.member_id].plan_state(plan.plan_id), PlanEvent.STAGE) is not None


def _lost_nothing(group: ShareGroup, query_id: str) -> bool:
    """Whether the queries that the rows may belong to hold their batches whole. These are the queries with this id of
    Spark's, or all queries if none has it."""
    queries = [member for member in group.members.values() if member.query]
    its = [member for member in queries if query_id and member.query_id == query_id] or queries
    return all(_is_whole(group, member.pending) for member in its if member.pending is not None)


def _is_whole(group: ShareGroup, plan: AcquiredPlan) -> bool:
    carried = sum(last - first + 1 for _, segments in group.carrying(plan) for first, last, _ in segments)
    return plan.started and 0 < plan.records == carried and not (plan.left_out or plan.data_loss)


def _silent(
    group: ShareGroup, plans: Iterable[AcquiredPlan], command: StageRuns, staged: Collection[int]
) -> Iterator[PlanStaged]:
    """Log records of a sink's commit that has no rows of a plan. In explicit mode the commit matters: a query without a
    sink fails, and records that a sink passes over are released.

    The plan is chosen by the sink's rows; without rows, by Spark's query id. A query id that no member has yet may be
    that of any member whose id is not known."""
    members, query_id = group.members.values(), command.query_id
    its = {member.member_id for member in members if query_id and member.query_id == query_id}
    if not its and not staged:
        its = {member.member_id for member in members if not (query_id and member.query_id)}
    for plan in plans:
        if plan.member_id in its and plan.plan_id not in staged:
            is_known = bool(query_id) and group.members[plan.member_id].query_id == query_id
            yield from _silent_about(group, plan, command, is_known=is_known)


def _named(
    group: ShareGroup, plans: Iterable[AcquiredPlan], command: StageRuns, staged: Collection[int]
) -> Iterator[BatchNamed]:
    """Which batch the plans are of which the sink has rows, or that are of its query. Nothing follows from it."""
    for plan in plans:
        is_its = plan.plan_id in staged or (command.query_id != "" and _query_of(group, plan) == command.query_id)
        if command.batch_id >= 0 and is_its:
            yield BatchNamed(plan_id=plan.plan_id, batch_id=command.batch_id)


def _query_of(group: ShareGroup, plan: AcquiredPlan) -> str:
    return group.members[plan.member_id].query_id


def _silent_about(group: ShareGroup, plan: AcquiredPlan, command: StageRuns, *, is_known: bool) -> Iterator[PlanStaged]:
    """Returns the log record of the commit, if it changes something. ``is_known``: the sink surely is this plan's.
    Otherwise it is a guess, which makes no plan implicit, and removes no earlier attempt's veto."""
    explicit = plan.explicit or command.acknowledgement_mode == "explicit"
    speaks = explicit and plan.reclaims not in plan.explicit_attempts
    replaces = _replaces(plan, command) if is_known or (explicit and not command.replaces) else None
    if speaks or replaces is not None or not group.members[plan.member_id].decides:
        yield PlanStaged(
            plan_id=plan.plan_id,
            member_id=plan.member_id,
            explicit_attempts=_explicit_attempts(plan) if speaks else None,
            explicit=True if explicit and not plan.explicit else None,
            replaces=replaces,
        )


def _replaces(plan: AcquiredPlan, command: StageRuns) -> bool | None:
    """Whether all sinks of the attempt declare that their target replaces its output, after this commit; None: as
    before. One sink that does not is enough for False."""
    replaces = command.replaces and plan.replaces is not False
    return replaces if replaces != plan.replaces else None


def _is_explicit(plan: AcquiredPlan, own: str) -> bool:
    """Whether records that no sink decides in this attempt are released. A sink with rows of the plan says so itself;
    otherwise the mode is that of the delivery's start. One of two sinks of an attempt that says so is enough."""
    return plan.reclaims in plan.explicit_attempts or (own == "explicit" if own else plan.explicit)


def _check_ratio(group: ShareGroup, matching: _Matching) -> None:
    most = group.config.errors_deadletterqueue_max_reject_ratio
    decided, rejected = group.decided + matching.staged, group.rejected + matching.rejected
    if most < 1 and matching.rejected and decided >= JUDGED_FROM and rejected > most * decided:
        raise TooManyRejects(group_id=group.group_id, rejected=rejected, decided=decided, ratio=most)


@dataclass(slots=True)
class _Matching:
    """The outcomes of one request, matched to the plans that carry their records."""

    group: ShareGroup
    command: StageRuns
    now_ms: int
    staged: int = 0
    rejected: int = 0
    stale: int = 0
    sample: list[str] = field(default_factory=list)
    _by_plan: dict[int, dict[SharePartitionKey, list[StagedRun]]] = field(default_factory=dict)
    _verdicts: dict[tuple[object, ...], Verdict] = field(default_factory=dict)

    def match(self, outcomes: PartitionOutcomes) -> None:
        """Match the outcomes of one partition. Most of them lie in one run, which is looked up once."""
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
        """Count outcomes of a partition that the group does not have as stale.

        Raises:
            NeverDelivered: the group does not know the topic, or no administrator has deleted the state of the share
                partition.
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
        """Refuse a row of an attempt before the pending plan's last one: the row comes from a driver that was taken for
        dead. That driver commits what it has written if nobody stops it, and what would be staged by then is another
        attempt's. The last one may have staged nothing: it may only have reported lost data.

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
        """The list for outcomes of the plan that carries the run; None if no sink may decide the run's records."""
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
        if run.outcome == AcknowledgeType.REJECT:
            self.rejected += last - first + 1

    def _verdict(self, run: OutcomeRun) -> Verdict:
        delay = run.delay_ms if run.outcome == AcknowledgeType.RELEASE else None
        not_before_ms = None if delay is None else self.now_ms + delay
        return Verdict(
            run.delivery_count,
            int(run.outcome),
            not_before_ms,
            run.dead_letter,
            run.reason[:LONGEST_REASON],
            delay_ms=delay,
        )

    def _count_stale(self, outcomes: PartitionOutcomes, run: OutcomeRun, first: int, last: int) -> None:
        self.stale += last - first + 1
        if len(self.sample) < SAMPLE:
            self.sample.append(_receipt(self.group, outcomes, run, first))

    @property
    def attempt(self) -> int | None:
        """The latest attempt among the plans on which something is staged; None: there is none."""
        plans = (self.group.plans[plan_id] for plan_id, staged in self._by_plan.items() if any(staged.values()))
        return max((plan.reclaims for plan in plans), default=None)

    @property
    def contradicted(self) -> int:
        """The number of records about which an earlier request of the same attempt decided otherwise."""
        return sum(
            contradicted(self.group.plans[plan_id].staged.get(key, []), runs)
            for plan_id, staged in self._by_plan.items()
            for key, runs in staged.items()
        )

    def records(self) -> Iterator[PlanStaged]:
        """One log record a plan; the first holds the window of the reject ratio."""
        window: tuple[int, int] | None = _reject_window(self.group, self.staged, self.rejected)
        command = self.command
        for plan_id, staged in self._by_plan.items():
            plan = self.group.plans[plan_id]
            member = self.group.members[plan.member_id]
            partitions = tuple(
                (key.topic_id, key.partition, tuple(_after_silence(plan, key, runs)))
                for key, runs in staged.items()
                if runs
            )
            if not partitions:
                continue
            explicit = _is_explicit(plan, command.acknowledgement_mode)
            yield PlanStaged(
                plan_id=plan_id,
                member_id=plan.member_id,
                partitions=partitions,
                reject_window=window,
                explicit_attempts=_explicit_attempts(plan) if explicit else None,
                explicit=explicit if explicit != plan.explicit else None,
                replaces=_replaces(plan, command),
                query_id=_changed(member.query_id, command.query_id),
                query_name=_changed(member.query_name, command.query_name),
                checkpoint=_changed(member.checkpoint, command.checkpoint),
            )
            window = None


def _changed(before: str, now: str) -> str | None:
    """The text, if it is known and another one than before; else None."""
    return now if now not in ("", before) else None


def _explicit_attempts(plan: AcquiredPlan) -> tuple[int, ...] | None:
    """The last two attempts in which a sink wrote whose silence is a release, this one included; None: as they were."""
    if plan.reclaims in plan.explicit_attempts:
        return None
    return (*plan.explicit_attempts, plan.reclaims)[-2:]


def _reject_window(group: ShareGroup, staged: int, rejected: int) -> tuple[int, int] | None:
    """(decided, rejected) after this commit, halved until the window holds about the last REJECT_WINDOW records."""
    decided, rejected = group.decided + staged, group.rejected + rejected
    while decided > REJECT_WINDOW:
        decided, rejected = decided // 2, rejected // 2
    return decided, rejected


def _after_silence(plan: AcquiredPlan, key: SharePartitionKey, runs: list[StagedRun]) -> list[StagedRun]:
    last_explicit = plan.explicit_before
    return (
        runs if last_explicit is None else against_silence(plan.staged.get(key, []), runs, plan.reclaims, last_explicit)
    )


def _receipt(group: ShareGroup, outcomes: PartitionOutcomes, run: OutcomeRun, offset: int) -> str:
    topic = group.topic_names.get(outcomes.topic_id, outcomes.topic_id)
    return f"{topic}-{outcomes.partition}@{offset} ({run.delivery_count})"


def mark_dead_letters_written(group: ShareGroup, command: MarkDeadLettersWritten, now_ms: int) -> Decision[Done]:
    """Archive the records whose dead letter is written, or never will be. Records that are no longer ARCHIVING at this
    delivery count are left as they are."""
    changes = Changes()
    for written in command.written:
        offsets = written.offsets
        partition = group.partitions.get(offsets.key)
        for first, last, run in partition.runs.between(offsets.first, offsets.last) if partition is not None else ():
            if run.state == RecordState.ARCHIVING and run.delivery_count == written.delivery_count:
                assert partition is not None
                changes.put(partition.key, first, last, dead_lettered(run))
    return Decision(tuple(changes.records()), Done())
