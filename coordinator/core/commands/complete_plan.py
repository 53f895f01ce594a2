"""Complete a query's plan (docs/trust/protocol.md, "One micro-batch"): Spark has committed the batch, and the staged
outcomes take effect.

- The records that still carry the plan's id get the outcomes of the last attempt (:mod:`coordinator.core.staging`).
  Records that it does not mention are accepted in implicit mode, and released in explicit mode. The mode is that with
  which the attempt began.
- A rejected record becomes ARCHIVING, or ARCHIVED if its dead letter is already written or none is wanted.
- If sinks rejected too many records (:mod:`coordinator.core.reject_ratio`), the rejected records are given back as if
  they had not been delivered, and the query ends. Accepted records stay accepted: the batch is in the output.
- A deferred record is given back without a try, in the stage of isolation that it has.
- If sinks released most of the batch, the member's breaker opens (:mod:`coordinator.core.release_breaker`). Deferred
  records do not count there, unless all are deferred.
- A record below the log start that would be given back is archived instead, since it can't come back. The query that
  acquires next reports it as lost.
- The same happens to a record that is gone from the log and that no row of the last attempt names, if the tasks go on
  without such records (failOnDataLoss=false): nobody knows whether a task has read it.
- What Kafka removed after the query's session had ended was judged in the same way then
  (:func:`coordinator.core.failed_deliveries.data_lost`), and the losses among it are reported like the others.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from coordinator.core.changes import Changes, archived, count_records, dead_lettered, moved, split_at
from coordinator.core.commands import CompletePlan, Decision, PlanDone
from coordinator.core.failed_deliveries import data_lost, given_back, given_up, query_released, removed_records
from coordinator.core.log_records import PlanCompleted, Record
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.plan_state import PlanEvent, PlanState
from coordinator.core.record_state import Event, RecordState
from coordinator.core.reject_ratio import RejectWindow
from coordinator.core.release_backoff import Delay, backoff, first_delay_ms
from coordinator.core.release_breaker import is_open, judged
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import GAP, StagedRun, Verdict, pieces, with_gaps
from coordinator.protocol.values import GIVES_BACK, AcknowledgeType, Disposition, SharePartitionKey

Lost = tuple[SharePartitionKey, Segment]

OUTCOMES = {
    AcknowledgeType.ACCEPT: "accepted",
    AcknowledgeType.RELEASE: "released",
    AcknowledgeType.REJECT: "rejected",
    AcknowledgeType.DEFER: "deferred",
}


def complete_plan(group: ShareGroup, command: CompletePlan, now_ms: int) -> Decision[PlanDone]:
    """Decide the records that still carry the plan's id. Completing a plan twice changes nothing.

    Raises:
        ForeignPlan: the plan is of another incarnation of the group.
        StalePlan: the plan is superseded or replaced (:mod:`coordinator.core.plan_state`).
    """
    member = group.member(command.member_id, command.member_epoch)
    plan_id = group.plan_id(command.plan_id)
    if group.checked_state(member, plan_id, PlanEvent.COMPLETE) is PlanState.COMPLETED:
        return Decision((), PlanDone())
    plan = member.newest
    assert plan is not None
    if nobody_decides(member) and command.processed and any(group.carrying(plan)):
        return _given_back(group, plan)
    completion = _Completion(group, plan, command, now_ms)
    records = completion.records(processed=command.processed)
    decided = completion.decided if command.processed else 0
    done = PlanCompleted(
        plan_id=plan.plan_id,
        member_id=member.member_id,
        records=decided,
        evidence=member.evidence or (decided > 0 and plan.counts_as_evidence),
        breaker=completion.breaker,
        reject_window=completion.window,
    )
    answer = PlanDone(
        given_up=given_up(group, records),
        outcomes=completion.outcomes,
        too_many_rejects=completion.too_many_rejects,
    )
    return Decision((*records, done), answer)


def nobody_decides(member: Member) -> bool:
    """Whether the member's plan is in explicit mode, and no sink has ever staged an outcome for the member."""
    return member.pending is not None and member.pending.explicit and not member.decides


def _given_back(group: ShareGroup, plan: AcquiredPlan) -> Decision[PlanDone]:
    """Give all of the plan back as if it had not been delivered: a query without a sink must not use up the deliveries
    of its records."""
    changes = Changes()
    lost: list[Lost] = []
    for partition, segments in group.carrying(plan):
        parts = (part for segment in segments for part in split_at(segment, partition.log_start))
        for first, last, run in parts:
            after = moved(run, Event.CUT, plan_id=None)
            if last < partition.log_start:
                after = moved(run, Event.LOG_START)
                lost.append(_lost(partition, first, last, run))
            changes.put(partition.key, first, last, after)
    member = group.members[plan.member_id]
    done = PlanCompleted(
        plan_id=plan.plan_id, member_id=plan.member_id, records=0, evidence=member.evidence, breaker=member.breaker
    )
    told = data_lost(group, lost, plan.lost_if_completed)
    return Decision((*changes.records(), *told, done), PlanDone(undecided=True))


def _lost(partition: SharePartition, first: int, last: int, run: Run) -> Lost:
    """A lost range without its plan id, so that the group reports it, and not the plan."""
    return partition.key, Segment(first, last, run._replace(plan_id=None))


def _always(after: Run) -> Callable[[int], Run]:
    """A function from any first offset to this run."""
    return lambda first: after


class _Completion:
    """Decides the records of one plan. ``breaker``: the member's breaker after the plan. ``window``: the group's window
    of rejects after the plan, if a sink decided it. ``too_many_rejects``: as in PlanDone."""

    def __init__(self, group: ShareGroup, plan: AcquiredPlan, command: CompletePlan, now_ms: int) -> None:
        self._group = group
        self._plan = plan
        self._now_ms = now_ms
        self._gaps: dict[SharePartitionKey, list[StagedRun]] = {}
        for gap in command.gaps:
            self._gaps.setdefault(gap.key, []).append((gap.first, gap.last, GAP))
        self._bounds = {SharePartitionKey(b.topic_id, b.partition): (b.log_start, b.end) for b in command.bounds}
        self._lost: list[Lost] = []
        self._counts: Counter[AcknowledgeType] = Counter()
        self._released = self._deferred = 0
        self._rejected_by_sinks = 0
        self._keeps_tries = False
        self.window: RejectWindow | None = None
        self.too_many_rejects: tuple[int, int] | None = None
        self.breaker = group.members[plan.member_id].breaker

    @property
    def decided(self) -> int:
        """The number of records that were accepted or rejected, which is evidence that processing works."""
        return self._counts[AcknowledgeType.ACCEPT] + self._counts[AcknowledgeType.REJECT]

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of records by outcome, as in PlanDone."""
        return {word: count for outcome, word in OUTCOMES.items() if (count := self._counts[outcome])}

    def records(self, *, processed: bool) -> list[Record]:
        """The log records about the plan's records. ``processed``: as in CompletePlan; without a record there is
        nothing by which to judge the service behind the query."""
        changes = Changes()
        decided: list[tuple[SharePartitionKey, int, int, Callable[[int], Run]]] = []
        for partition, segments in self._group.carrying(self._plan):
            staged = with_gaps(self._gaps.get(partition.key, []), self._plan.staged.get(partition.key, []))
            if staged or self._plan.explicit or self._plan.explicit_attempts or not self._plan.fail_on_data_loss:
                decided += self._decided(changes, partition, segments, staged)
            else:
                for first, last, run in segments:
                    changes.put(partition.key, first, last, moved(run, Event.COMPLETE))
                self._counts[AcknowledgeType.ACCEPT] += count_records(segments)
        self._judge_rejects()
        if processed:
            self._judge()
        for key, first, last, after in decided:
            changes.put(key, first, last, after(first))
        told = data_lost(self._group, self._lost, self._plan.lost_if_completed)
        return [*removed_records(self._group, self._lost), *changes.records(), *told]

    def _judge_rejects(self) -> None:
        """Find out whether the sinks rejected too many records, and add the batch to the group's window."""
        if self._plan.replaces is None:  # no sink has said anything of this attempt
            return
        before = RejectWindow(self._group.decided, self._group.rejected)
        unreadable = self._counts[AcknowledgeType.REJECT] - self._rejected_by_sinks
        accepted, rejected = self._counts[AcknowledgeType.ACCEPT], self._rejected_by_sinks
        if before.is_exceeded_by(accepted, rejected, self._group.config.errors_deadletterqueue_max_reject_ratio):
            self.too_many_rejects = before.decided + accepted + rejected, before.rejected + rejected
            self._counts[AcknowledgeType.REJECT] = unreadable
            rejected = 0
        if accepted or rejected:
            self.window = before.with_batch(accepted, rejected)

    def _judge(self) -> None:
        """Open, keep open or close the member's breaker. This comes before the releases: the breaker says whether they
        use up tries."""
        group, plan = self._group, self._plan
        records = self.decided + self._counts[AcknowledgeType.RELEASE]
        others = (
            member.breaker
            for member in group.members.values()
            if member.member_id != plan.member_id and member.active and member.breaker is not None
        )
        self.breaker, self._keeps_tries = judged(
            self.breaker,
            group.config,
            self._released if records else self._deferred,
            records or self._deferred,
            plan_id=plan.plan_id,
            now_ms=self._now_ms,
            others=(breaker for breaker in others if is_open(breaker, group.config)),
        )

    def _decided(
        self, changes: Changes, partition: SharePartition, segments: list[Segment], staged: list[StagedRun]
    ) -> Iterator[tuple[SharePartitionKey, int, int, Callable[[int], Run]]]:
        decisions: dict[tuple[Run, Verdict | None], tuple[AcknowledgeType, Callable[[int], Run]]] = {}
        log_start, end = self._bounds.get(partition.key, (0, sys.maxsize))
        log_start = max(partition.log_start, log_start)
        parts = [part for s in segments for low in split_at(s, log_start) for part in split_at(low, end)]
        for first, last, run, verdict in pieces(parts, staged):
            decision = decisions.get((run, verdict))
            if decision is None:
                decision = decisions[run, verdict] = self._decision(run, verdict)
            outcome, after = decision
            is_below = last < log_start
            if (is_below and outcome in GIVES_BACK) or (
                (is_below or first >= end) and self._plan.is_unread(run, verdict, outcome)
            ):
                self._lost.append(_lost(partition, first, last, run))
                continue
            self._counts[outcome] += last - first + 1
            if outcome == AcknowledgeType.REJECT and verdict is not None and not verdict.unreadable:
                if is_below:  # the record can't come back
                    after = _always(self._rejected(run, verdict))
                else:
                    self._rejected_by_sinks += last - first + 1
            if outcome == AcknowledgeType.RELEASE and self._blames_the_service(run, verdict):
                self._released += last - first + 1
            elif outcome == AcknowledgeType.DEFER and verdict is not None and verdict.not_before_ms is None:
                self._deferred += last - first + 1
            yield partition.key, first, last, after

    def _decision(self, run: Run, verdict: Verdict | None) -> tuple[AcknowledgeType, Callable[[int], Run]]:
        """The outcome of the run, and a function from the first offset of a part to the run after the outcome."""
        verdict = self._plan.counting(run, verdict)
        outcome = self._plan.outcome(run, verdict)
        if outcome == AcknowledgeType.RELEASE:
            return outcome, partial(self._release, run, verdict)
        if outcome == AcknowledgeType.ACCEPT:
            after = moved(run, Event.COMPLETE)
        elif outcome == AcknowledgeType.DEFER:
            after = given_back(run)._replace(**self._own_delay(verdict, self._at_once)._asdict())
        elif outcome == AcknowledgeType.REJECT:
            return outcome, lambda first: self._rejected_or_given_back(run, verdict)
        else:
            after = moved(run, Event.GAP if run.state == RecordState.ACQUIRED else Event.MISSING)
        return outcome, _always(after)

    @property
    def _at_once(self) -> Delay:
        """No delay, but an AvailableNow run that began before does not get the record again."""
        return Delay(self._now_ms, 0)

    def _own_delay(self, verdict: Verdict | None, otherwise: Delay) -> Delay:
        """Returns the sink's delay. It ends no later than the delay would if it began now: an earlier owner may have
        had another clock. ``otherwise``: the delay of a record for which the sink has named none."""
        if verdict is None or verdict.not_before_ms is None:
            return otherwise
        if verdict.delay_ms is None:
            return Delay(verdict.not_before_ms)
        return Delay(min(verdict.not_before_ms, self._now_ms + verdict.delay_ms), verdict.delay_ms)

    def _blames_the_service(self, run: Run, verdict: Verdict | None) -> bool:
        """Whether a release points to a service that is away: the last attempt released the record, by a row or because
        no row mentioned it. A release with a delay of its own does not count, since the program manages its own waits.
        Nor does a veto of an earlier attempt, or a record about which the sinks of one attempt contradict each
        other."""
        if verdict is None or verdict.delivery_count != run.delivery_count:
            return self._plan.explicit
        released = AcknowledgeType(verdict.outcome) == AcknowledgeType.RELEASE
        return released and verdict.not_before_ms is None and not verdict.divided

    def _release(self, run: Run, verdict: Verdict | None, first: int) -> Run:
        otherwise = self._at_once
        if first_delay_ms(self._group.config, by_query=True):
            otherwise = backoff(self._group.config, run.releases + 1, first, self._now_ms, by_query=True)
        delay = self._own_delay(verdict, otherwise)
        disposition = Disposition.UNDECIDED if verdict is None else Disposition.DELIVERY_LIMIT
        names_release = verdict is not None and AcknowledgeType(verdict.outcome) == AcknowledgeType.RELEASE
        reason = verdict.reason if verdict is not None and names_release else ""
        return query_released(run, self._group.config, delay, disposition, reason=reason, keeps_tries=self._keeps_tries)

    def _rejected_or_given_back(self, run: Run, verdict: Verdict | None) -> Run:
        assert verdict is not None
        if self.too_many_rejects is not None and not verdict.unreadable:
            return moved(run, Event.CUT, plan_id=None)
        return self._rejected(run, verdict)

    def _rejected(self, run: Run, verdict: Verdict) -> Run:
        after = archived(run, Event.REJECT, self._group.config, Disposition.REJECTED, verdict.reason)
        return dead_lettered(after) if verdict.dead_letter and after.state == RecordState.ARCHIVING else after
