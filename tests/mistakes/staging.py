"""Mistakes in staging: attempts, vetoes, targets, and the check of whose rows count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from coordinator.core import decide, staging
from coordinator.core.changes import moved
from coordinator.core.commands import Decision, StageRuns, reclaim_plan, stage_outcomes
from coordinator.core.log_records import PlanStaged, Record, RunsChanged
from coordinator.core.looks import snapshot
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import Event
from coordinator.core.reject_ratio import RejectWindow
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.protocol import outcome_rows, receipts
from coordinator.protocol.messages import PartitionOutcomes
from coordinator.protocol.values import AcknowledgeType
from share_sink import rows, sink
from tests.mistakes import rules
from tests.mistakes.mistake import WITH_SINKS, Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import REJECTS, ROLLS, SILENT


@mistake(rules.OUTCOMES_WAIT_FOR_COMPLETION, simulator=(Seeds("sinks", WITH_SINKS),), model=0)
def a_commit_takes_effect_at_once(patch: Patch) -> None:
    right = decide._DECIDERS[StageRuns]

    def staged(group: ShareGroup, command: Any, now_ms: int) -> Decision:
        decision = right(group, command, now_ms)
        return Decision((*decision.records, *_accepted(group, decision.records)), decision.reply)

    patch.setitem(decide._DECIDERS, StageRuns, staged)


def _accepted(group: ShareGroup, records: tuple[object, ...]) -> Iterator[Record]:
    for record in records:
        assert isinstance(record, PlanStaged)
        for topic_id, index, staged in record.partitions:
            partition = group.partitions[topic_id, index]  # type: ignore[index]
            accepted = tuple(
                (first, last, moved(held, Event.ACCEPT))
                for staged_first, staged_last, verdict in staged
                if verdict.outcome == AcknowledgeType.ACCEPT
                for first, last, held in partition.runs.between(staged_first, staged_last)
            )
            yield RunsChanged(topic_id=topic_id, partition=index, runs=accepted)


@mistake(
    rules.OUTCOMES_WAIT_FOR_COMPLETION,
    explorer=(SmallWorld(REJECTS, Budget(1, restarts=1)),),
    simulator=(Seeds("sinks", WITH_SINKS),),
    model=0,
)
def stage_without_appending(patch: Patch) -> None:
    patch.setattr(PlanStaged, "durable", False)


@mistake(rules.REPLAY_RECLAIMS_ALL, explorer=(SmallWorld(REJECTS, Budget(1, crashes=1)),), model=0)
def leave_decided_records_out_of_a_replay(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        said = self.plan.staged.get(key, [])
        for first, last, run, verdict in staging.pieces([segment], said):
            if verdict is None:
                right(self, key, Segment(first, last, run))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


@mistake(rules.LAST_ATTEMPT_COUNTS, simulator=(Seeds("sinks", WITH_SINKS),), model=0)
def the_first_attempt_counts(patch: Patch) -> None:
    right = staging.later
    patch.setattr(staging, "later", lambda before, now: before._replace(disagrees=right(before, now).disagrees))


@mistake(
    rules.LAST_ATTEMPT_COUNTS,
    explorer=(SmallWorld(ROLLS, Budget(1, crashes=1)),),
    simulator=(Seeds("sinks", WITH_SINKS),),
    model=0,
)
def forget_that_attempts_disagree(patch: Patch) -> None:
    patch.setattr(staging, "later", lambda before, now: now)


@mistake(rules.LAST_ATTEMPT_COUNTS, simulator=(Seeds("sinks", 29),), model=0)
def take_an_older_outcome_for_the_last_attempts(patch: Patch) -> None:
    """An older attempt's outcome counts where the last attempt names none."""
    right = AcquiredPlan.outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        return right(self, run, None if verdict is None else verdict._replace(delivery_count=run.delivery_count))

    patch.setattr(AcquiredPlan, "outcome", outcome)


@mistake(rules.LAST_ATTEMPT_COUNTS, simulator=(Seeds("sinks", 123),), model=3)
def an_older_attempt_has_no_veto(patch: Patch) -> None:
    right = AcquiredPlan.outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        is_older = verdict is not None and verdict.delivery_count != run.delivery_count
        return right(self, run, None if is_older else verdict)

    patch.setattr(AcquiredPlan, "outcome", outcome)


@mistake(rules.LAST_ATTEMPT_COUNTS, simulator=(Seeds("sinks", 107),), model=3)
def an_older_attempt_always_vetoes(patch: Patch) -> None:
    right = AcquiredPlan.outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        if verdict is not None and verdict.delivery_count != run.delivery_count:
            return AcknowledgeType.RELEASE
        return right(self, run, verdict)

    patch.setattr(AcquiredPlan, "outcome", outcome)


@mistake(rules.LAST_ATTEMPT_COUNTS, explorer=(SmallWorld(SILENT, Budget(1, crashes=1)),), model=5)
def ignore_the_silence_of_an_older_attempt(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "against_silence", lambda before, now, attempt, explicit_attempts: now)


@mistake(rules.LAST_ATTEMPT_COUNTS, explorer=(SmallWorld(SILENT, Budget(2, crashes=2)),), model=26)
def forget_that_an_attempt_passed_the_record_over(patch: Patch) -> None:
    right = staging.later
    patch.setattr(staging, "later", lambda before, now: right(before, now._replace(disagrees=False)))


@mistake(rules.LAST_ATTEMPT_COUNTS, model=34)
def forget_explicit_attempts_in_snapshots(patch: Patch) -> None:
    right = snapshot._plan_record
    patch.setattr(
        snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), explicit_attempts=())
    )


@mistake(rules.LAST_ATTEMPT_COUNTS, explorer=(SmallWorld(SILENT, Budget(1, crashes=1)),), model=0)
def ignore_a_commit_without_rows(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "_silent", lambda *a: iter(()))


@mistake(rules.EXPLICIT_MODE_RELEASES, model=0)
def a_commit_without_rows_counts_as_a_sink_in_explicit_mode_alone(patch: Patch) -> None:
    right = stage_outcomes._silent

    def silent(group: ShareGroup, plans: Any, command: Any) -> Iterator[Record]:
        for record in right(group, plans, command):
            if record.explicit_attempts is not None:
                yield record

    patch.setattr(stage_outcomes, "_silent", silent)


@mistake(rules.LAST_ATTEMPT_COUNTS, model=0)
def take_every_attempt_for_an_explicit_one(patch: Patch) -> None:
    patch.setattr(AcquiredPlan, "explicit_before", property(lambda self: self.reclaims - 1 if self.reclaims else None))


@mistake(
    rules.BATCH_IS_NAMED,
    tests=("core/test_attempts::test_a_commit_without_rows_that_names_no_plan_says_nothing",),
    model=0,
)
def a_commit_without_rows_speaks_for_every_query(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "_named", lambda group, plans, command, of_rows: list(plans))


@mistake(
    rules.BATCH_IS_NAMED,
    tests=("core/test_attempts::test_a_replaced_process_is_refused_without_rows_as_well",),
    model=0,
)
def a_replaced_process_speaks_for_its_plan(patch: Patch) -> None:
    patch.setattr(
        stage_outcomes,
        "_named",
        lambda group, plans, command, of_rows: [p for p in plans if group.plan_id_text(p.plan_id) in command.plans],
    )


@mistake(rules.BATCH_IS_NAMED, rules.REJECTS_ARE_JUDGED_WHOLE, model=0)
def the_drivers_rejects_are_a_sinks(patch: Patch) -> None:
    right = decide._DECIDERS[StageRuns]

    def staged(group: ShareGroup, command: Any, now_ms: int) -> Decision:
        return right(group, msgspec.structs.replace(command, unreadable=False), now_ms)

    patch.setitem(decide._DECIDERS, StageRuns, staged)


@mistake(
    rules.REJECTS_ARE_JUDGED_WHOLE,
    tests=("core/test_reject_ratio::test_the_records_of_a_batch_count_in_any_order_and_without_rows",),
)
def judge_rejects_by_the_rejected_alone(patch: Patch) -> None:
    right = RejectWindow.is_exceeded_by
    patch.setattr(
        RejectWindow, "is_exceeded_by", lambda self, accepted, rejected, ratio: right(self, 0, rejected, ratio)
    )


@mistake(rules.STAGING_IS_FENCED, simulator=(Seeds("sinks", 48),), model=1)
def match_rows_by_their_offsets(patch: Patch) -> None:
    right = stage_outcomes._Matching.match

    def match(self: stage_outcomes._Matching, outcomes: PartitionOutcomes) -> None:
        partition = self.group.partitions[outcomes.topic_id, outcomes.partition]  # type: ignore[index]
        runs = tuple(
            run._replace(first=first, last=last, delivery_count=held.delivery_count)
            for run in outcomes.runs
            for first, last, held in partition.runs.between(run.first, run.last)
        )
        right(self, msgspec.structs.replace(outcomes, runs=runs))

    patch.setattr(stage_outcomes._Matching, "match", match)


@mistake(
    rules.STAGING_IS_FENCED,
    tests=("core/test_staging::test_a_sink_of_another_incarnation_is_outdated",),
    simulator=(Seeds("sinks", WITH_SINKS),),
    model=0,
)
def take_rows_of_any_incarnation(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "_check_incarnation", lambda group, command: None)


@mistake(rules.STAGING_IS_FENCED, rules.TOPIC_IS_ITS_ID, model=14)
def take_rows_of_any_topic_of_that_name(patch: Patch) -> None:
    right = stage_outcomes._Matching.match

    def match(self: stage_outcomes._Matching, outcomes: PartitionOutcomes) -> None:
        newest = self.group.topics[self.group.topic_names[outcomes.topic_id]]
        right(self, msgspec.structs.replace(outcomes, topic_id=newest))

    patch.setattr(stage_outcomes._Matching, "match", match)


@mistake(rules.STAGING_IS_FENCED, model=4)
def let_a_driver_commit_what_its_successor_reclaimed(patch: Patch) -> None:
    patch.setattr(stage_outcomes._Matching, "_check_attempt", lambda *a: None)


@mistake(rules.STAGING_IS_FENCED, model=19)
def forget_reclaims_in_snapshots(patch: Patch) -> None:
    right = snapshot._plan_record
    patch.setattr(snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), reclaims=0))


def _without(command: StageRuns, **fields: Any) -> StageRuns:
    return msgspec.structs.replace(command, **fields)


@mistake(
    rules.STAGING_IS_FENCED,
    tests=("share_sink/test_sink_writer::test_a_union_of_two_groups_rows_is_refused_by_each_groups_sink",),
)
def take_rows_by_the_name_of_their_topic(patch: Patch) -> None:
    """Not by the digest in their receipts: a union also has rows of another group."""

    def topic_ids(receipt: dict[str, Any], of: sink.Sink) -> Any:
        ids = {topic: topic_id for topic_id, topic in of.opened.topics.items()}
        return pa.array([ids[topic] for topic in receipt["topic"].to_pylist()], pa.string())

    patch.setattr(rows, "_topic_ids", topic_ids)


@mistake(
    rules.STAGING_IS_FENCED, tests=("protocol/test_wire::test_no_two_groups_incarnations_or_topics_have_one_digest",)
)
def name_the_group_alone_in_receipts(patch: Patch) -> None:
    """Rows from before a group was deleted, or a topic was made anew, have the receipts of now."""
    right = receipts.receipt_digest
    patch.setattr(receipts, "receipt_digest", lambda group_id, incarnation, topic_id: right(group_id, "", ""))


@mistake(
    rules.CONTRADICTIONS_ARE_TOLD,
    tests=("protocol/test_outcome_rows::test_rows_that_disagree_about_a_record_release_it",),
)
def release_contradicting_rows_silently(patch: Patch) -> None:
    right = outcome_rows.settled
    patch.setattr(outcome_rows, "settled", lambda table: (right(table)[0], {}))
