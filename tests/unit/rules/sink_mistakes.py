"""Mistakes of the sink: staging, attempts, explicit mode, and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core import changes, decide, group_snapshot, runs, share_group, share_partition, staging
from coordinator.core.changes import filed, moved
from coordinator.core.commands import CompletePlan, Decision, complete_plan, reclaim_plan, stage_outcomes
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import Event, RecordState
from coordinator.core.records import PlanStaged, PlanStarted, ProgressKept, Record, RunsChanged
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.protocol.messages import PartitionOutcomes, StageOutcomes
from coordinator.protocol.values import AcknowledgeType, Disposition
from tests.unit.rules import test_sink as promises

Patch = pytest.MonkeyPatch


def a_commit_takes_effect_at_once(patch: Patch) -> None:
    right = decide._DECIDERS[StageOutcomes]

    def staged(group: ShareGroup, command: Any, now_ms: int) -> Decision:
        decision = right(group, command, now_ms)
        return Decision((*decision.records, *_accepted(group, decision.records)), decision.reply)

    patch.setitem(decide._DECIDERS, StageOutcomes, staged)


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


def stage_without_appending(patch: Patch) -> None:
    patch.setattr(PlanStaged, "durable", False)


def leave_what_is_decided_out_of_a_replay(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        said = self.plan.staged.get(key, [])
        for first, last, run, verdict in staging.pieces([segment], said):
            if verdict is None:
                right(self, key, Segment(first, last, run))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


def the_first_attempt_counts(patch: Patch) -> None:
    right = staging.later
    patch.setattr(staging, "later", lambda before, now: before._replace(disagrees=right(before, now).disagrees))


def forget_that_attempts_disagree(patch: Patch) -> None:
    patch.setattr(staging, "later", lambda before, now: now)


def silence_is_none(patch: Patch) -> None:
    """What an older attempt said counts where the last one says nothing."""
    right = complete_plan._Completion._outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        return right(self, run, None if verdict is None else verdict._replace(delivery_count=run.delivery_count))

    patch.setattr(complete_plan._Completion, "_outcome", outcome)


def an_older_attempt_has_no_veto(patch: Patch) -> None:
    right = complete_plan._Completion._outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        is_older = verdict is not None and verdict.delivery_count != run.delivery_count
        return right(self, run, None if is_older else verdict)

    patch.setattr(complete_plan._Completion, "_outcome", outcome)


def an_older_attempt_always_vetoes(patch: Patch) -> None:
    right = complete_plan._Completion._outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        if verdict is not None and verdict.delivery_count != run.delivery_count:
            return AcknowledgeType.RELEASE
        return right(self, run, verdict)

    patch.setattr(complete_plan._Completion, "_outcome", outcome)


def match_rows_by_their_offsets(patch: Patch) -> None:
    right = stage_outcomes._Matching.match

    def match(self: stage_outcomes._Matching, outcomes: PartitionOutcomes) -> None:
        partition = self.group.partitions[self.group.topics[outcomes.topic], outcomes.partition]  # type: ignore[index]
        runs = tuple(
            run._replace(first=first, last=last, delivery_count=held.delivery_count)
            for run in outcomes.runs
            for first, last, held in partition.runs.between(run.first, run.last)
        )
        right(self, msgspec.structs.replace(outcomes, runs=runs))

    patch.setattr(stage_outcomes._Matching, "match", match)


def take_rows_of_any_life_of_the_group(patch: Patch) -> None:
    right = stage_outcomes._check_pins
    patch.setattr(stage_outcomes, "_check_pins", lambda group, command: right(group, _without(command, incarnation="")))


def take_rows_of_any_topic_of_that_name(patch: Patch) -> None:
    right = stage_outcomes._check_pins
    patch.setattr(stage_outcomes, "_check_pins", lambda group, command: right(group, _without(command, topic_ids={})))


def let_a_driver_commit_what_its_successor_took_up(patch: Patch) -> None:
    patch.setattr(stage_outcomes._Matching, "_check_attempt", lambda *a: None)


def forget_reclaims_in_snapshots(patch: Patch) -> None:
    right = group_snapshot._plan_record
    patch.setattr(
        group_snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), reclaims=0)
    )


def an_older_attempts_silence_is_unheard(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "against_silence", lambda before, now, attempt, explicit_attempts: now)


def forget_that_an_attempt_was_passed_over(patch: Patch) -> None:
    right = staging.later
    patch.setattr(staging, "later", lambda before, now: right(before, now._replace(disagrees=False)))


def forget_which_attempts_spoke_in_snapshots(patch: Patch) -> None:
    right = group_snapshot._plan_record
    patch.setattr(
        group_snapshot,
        "_plan_record",
        lambda self, plan: msgspec.structs.replace(right(self, plan), explicit_attempts=()),
    )


def a_commit_without_rows_says_nothing(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "_silent", lambda *a: iter(()))


def every_attempt_is_taken_for_one_that_spoke(patch: Patch) -> None:
    patch.setattr(AcquiredPlan, "explicit_before", property(lambda self: self.reclaims - 1 if self.reclaims else None))


def a_commit_without_rows_is_everybodys(patch: Patch) -> None:
    right = stage_outcomes._silent
    patch.setattr(
        stage_outcomes,
        "_silent",
        lambda group, plans, command, staged: right(group, plans, _without(command, query_id=""), staged),
    )


def forget_whose_query_it_is_in_snapshots(patch: Patch) -> None:
    right = ShareGroup.snapshot

    def snapshot(self: ShareGroup) -> Iterator[Record]:
        for record in right(self):
            yield msgspec.structs.replace(record, query_id="") if isinstance(record, ProgressKept) else record

    patch.setattr(ShareGroup, "snapshot", snapshot)


# --- what the target does with a replay


def an_older_attempt_vetoes_though_its_output_is_replaced(patch: Patch) -> None:
    _take_the_target_for_one_that(patch, replaces=False)


def every_target_is_taken_for_one_that_replaces(patch: Patch) -> None:
    _take_the_target_for_one_that(patch, replaces=True)


def _take_the_target_for_one_that(patch: Patch, *, replaces: bool) -> None:
    right = complete_plan._Completion.__init__

    def begin(self: Any, *args: Any) -> None:
        right(self, *args)
        self._replaces = replaces

    patch.setattr(complete_plan._Completion, "__init__", begin)


def one_sink_of_an_attempt_that_replaces_is_enough(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "_replaces", lambda plan, command: command.replaces or plan.replaces)


def what_an_earlier_attempt_said_of_its_target_holds(patch: Patch) -> None:
    right = share_group._REPLAY[PlanStarted]

    def taken_up(self: ShareGroup, record: PlanStarted) -> None:
        plan = self.members[record.member_id].newest
        before = plan.replaces if plan is not None else None
        right(self, record)
        self.members[record.member_id].newest.replaces = before  # type: ignore[union-attr]

    patch.setitem(share_group._REPLAY, PlanStarted, taken_up)


def sinks_of_one_attempt_are_taken_for_attempts(patch: Patch) -> None:
    right = staging.later
    patch.setattr(staging, "later", lambda before, now: right(before, now)._replace(divided=False))


def forget_what_the_target_does_in_snapshots(patch: Patch) -> None:
    right = group_snapshot._plan_record
    patch.setattr(
        group_snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), replaces=None)
    )


def a_commit_without_rows_speaks_for_any_target(patch: Patch) -> None:
    right = stage_outcomes._silent_about
    patch.setattr(stage_outcomes, "_silent_about", lambda *args, is_known: right(*args, is_known=True))


def _without(command: StageOutcomes, **fields: Any) -> StageOutcomes:
    return msgspec.structs.replace(command, **fields)


def leave_staged_outcomes_out_of_snapshots(patch: Patch) -> None:
    patch.setattr(group_snapshot, "_staged_records", lambda self: iter(()))


def forget_disagreements_in_snapshots(patch: Patch) -> None:
    right = group_snapshot._staged_records

    def records(self: ShareGroup) -> Iterator[PlanStaged]:
        for record in right(self):
            partitions = tuple(
                (topic_id, index, tuple((f, last, verdict._replace(disagrees=False)) for f, last, verdict in runs))
                for topic_id, index, runs in record.partitions
            )
            yield msgspec.structs.replace(record, partitions=partitions)

    patch.setattr(group_snapshot, "_staged_records", records)


# --- explicit mode


def the_mode_of_the_group_at_completion_holds(patch: Patch) -> None:
    right = decide._DECIDERS[CompletePlan]

    def completed(group: ShareGroup, command: CompletePlan, now_ms: int) -> Decision:
        plan = group.members[command.member_id].newest
        assert plan is not None
        plan.explicit = group.config.is_explicit()
        return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, CompletePlan, completed)


def forget_the_mode_in_snapshots(patch: Patch) -> None:
    right = group_snapshot._plan_record
    patch.setattr(
        group_snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), explicit=False)
    )


def the_groups_mode_holds_for_a_query_that_has_its_own(patch: Patch) -> None:
    right = GroupConfig.is_explicit
    patch.setattr(GroupConfig, "is_explicit", lambda self, own="": right(self))


def a_sinks_own_mode_is_not_asked_for(patch: Patch) -> None:
    right = decide._DECIDERS[StageOutcomes]

    def staged(group: ShareGroup, command: Any, now_ms: int) -> Decision:
        return right(group, _without(command, acknowledgement_mode=""), now_ms)

    patch.setitem(decide._DECIDERS, StageOutcomes, staged)


def what_an_attempt_passed_over_is_accepted_by_a_later_ones_silence(patch: Patch) -> None:
    """The last attempt is in implicit mode, one before it was not."""
    silence = complete_plan._Completion._silence

    def silent(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        return silence(self, run, verdict) if self._plan.explicit else AcknowledgeType.ACCEPT

    patch.setattr(complete_plan._Completion, "_silence", silent)


def accept_what_no_sink_decided(patch: Patch) -> None:
    right = complete_plan._Completion._outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        return AcknowledgeType.ACCEPT if verdict is None else right(self, run, verdict)

    patch.setattr(complete_plan._Completion, "_outcome", outcome)


def release_gaps(patch: Patch) -> None:
    right = decide._DECIDERS[CompletePlan]

    def completed(group: ShareGroup, command: CompletePlan, now_ms: int) -> Decision:
        return right(group, msgspec.structs.replace(command, gaps=()), now_ms)

    patch.setitem(decide._DECIDERS, CompletePlan, completed)


def release_without_asking_for_a_sink(patch: Patch) -> None:
    patch.setattr(complete_plan, "nobody_decides", lambda member: False)


def count_a_try_of_what_is_given_back(patch: Patch) -> None:
    right = complete_plan.moved

    def counted(run: Run, event: Event, **fields: Any) -> Run:
        return right(run, event, **fields, **({"releases": run.releases + 1} if event == Event.CUT else {}))

    patch.setattr(complete_plan, "moved", counted)


def complete_without_a_sink_and_only_say_so(patch: Patch) -> None:
    right = complete_plan._given_back

    def given_back(group: ShareGroup, plan: Any) -> Decision:
        decision = right(group, plan)
        records = tuple(
            msgspec.structs.replace(r, runs=tuple((f, e, Run(RecordState.ACKNOWLEDGED, 1)) for f, e, _ in r.runs))
            if isinstance(r, RunsChanged)
            else r
            for r in decision.records
        )
        return Decision(records, decision.reply)

    patch.setattr(complete_plan, "_given_back", given_back)


# --- dead letters


def archive_without_waiting_for_the_letter(patch: Patch) -> None:
    right = changes.archived

    def archived(run: Run, event: Event, config: GroupConfig, disposition: Disposition, reason: str = "") -> Run:
        after = right(run, event, config, disposition, reason)
        return filed(after) if after.state == RecordState.ARCHIVING else after

    patch.setattr(complete_plan, "archived", archived)


def the_window_passes_over_what_waits_for_its_letter(patch: Patch) -> None:
    patch.setattr(runs, "TERMINAL", runs.TERMINAL | {RecordState.ARCHIVING})


def retention_takes_what_waits_for_its_letter(patch: Patch) -> None:
    patch.setattr(share_partition, "_STAYS", frozenset({RecordState.ACQUIRED}))


MISTAKES: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (a_commit_takes_effect_at_once, promises.test_outcomes_take_effect_when_the_plan_completes),
    (stage_without_appending, promises.test_what_was_staged_is_durable_before_spark_commits),
    (leave_what_is_decided_out_of_a_replay, promises.test_a_replay_reads_again_what_a_sink_has_already_decided),
    (the_first_attempt_counts, promises.test_the_last_attempts_outcome_counts),
    (forget_that_attempts_disagree, promises.test_attempts_that_disagree_release_the_record),
    (silence_is_none, promises.test_silence_of_the_last_attempt_is_an_outcome),
    (an_older_attempt_has_no_veto, promises.test_silence_of_the_last_attempt_is_an_outcome),
    (an_older_attempt_always_vetoes, promises.test_an_older_attempt_that_agrees_with_silence_vetoes_nothing),
    (
        an_older_attempts_silence_is_unheard,
        promises.test_what_an_older_attempt_passed_over_in_explicit_mode_is_released,
    ),
    (
        forget_which_attempts_spoke_in_snapshots,
        promises.test_what_an_older_attempt_passed_over_in_explicit_mode_is_released,
    ),
    (
        forget_that_an_attempt_was_passed_over,
        promises.test_what_was_accepted_and_then_passed_over_in_explicit_mode_is_released,
    ),
    (a_commit_without_rows_says_nothing, promises.test_what_an_older_attempt_passed_over_in_explicit_mode_is_released),
    (
        every_attempt_is_taken_for_one_that_spoke,
        promises.test_an_older_attempt_in_which_no_sink_spoke_vetoes_nothing,
    ),
    (a_commit_without_rows_is_everybodys, promises.test_nothing_said_is_said_for_the_sinks_own_query),
    (forget_whose_query_it_is_in_snapshots, promises.test_nothing_said_is_said_for_the_sinks_own_query),
    (
        an_older_attempt_vetoes_though_its_output_is_replaced,
        promises.test_where_the_target_replaces_its_output_the_last_attempt_alone_counts,
    ),
    (
        forget_what_the_target_does_in_snapshots,
        promises.test_where_the_target_replaces_its_output_the_last_attempt_alone_counts,
    ),
    (
        every_target_is_taken_for_one_that_replaces,
        promises.test_unless_all_sinks_of_the_last_attempt_say_that_the_target_replaces_older_attempts_veto,
    ),
    (
        one_sink_of_an_attempt_that_replaces_is_enough,
        promises.test_unless_all_sinks_of_the_last_attempt_say_that_the_target_replaces_older_attempts_veto,
    ),
    (
        what_an_earlier_attempt_said_of_its_target_holds,
        promises.test_unless_all_sinks_of_the_last_attempt_say_that_the_target_replaces_older_attempts_veto,
    ),
    (
        sinks_of_one_attempt_are_taken_for_attempts,
        promises.test_sinks_of_one_attempt_that_disagree_release_the_record_whatever_the_target_does,
    ),
    (
        a_commit_without_rows_speaks_for_any_target,
        promises.test_a_commit_without_rows_speaks_for_the_target_of_its_own_query_alone,
    ),
    (match_rows_by_their_offsets, promises.test_a_run_is_staged_on_the_plan_that_carries_its_offset_at_its_count),
    (take_rows_of_any_life_of_the_group, promises.test_a_sink_from_before_decides_nothing),
    (take_rows_of_any_topic_of_that_name, promises.test_a_sink_from_before_decides_nothing),
    (
        let_a_driver_commit_what_its_successor_took_up,
        promises.test_a_driver_whose_batch_was_taken_up_since_is_refused,
    ),
    (forget_reclaims_in_snapshots, promises.test_a_driver_whose_batch_was_taken_up_since_is_refused),
    (leave_staged_outcomes_out_of_snapshots, promises.test_a_snapshot_appends_staged_outcomes_again),
    (forget_disagreements_in_snapshots, promises.test_a_snapshot_appends_staged_outcomes_again),
    (accept_what_no_sink_decided, promises.test_explicit_mode_releases_what_no_sink_decided),
    (the_mode_of_the_group_at_completion_holds, promises.test_the_mode_is_the_one_that_the_attempt_began_with),
    (forget_the_mode_in_snapshots, promises.test_the_mode_is_the_one_that_the_attempt_began_with),
    (
        the_groups_mode_holds_for_a_query_that_has_its_own,
        promises.test_a_querys_own_mode_holds_for_it_whatever_another_one_sets,
    ),
    (a_sinks_own_mode_is_not_asked_for, promises.test_a_mode_that_the_sink_alone_has_holds_for_its_first_batch),
    (
        what_an_attempt_passed_over_is_accepted_by_a_later_ones_silence,
        promises.test_what_an_attempt_in_explicit_mode_passed_over_is_released_in_implicit_mode_too,
    ),
    (release_gaps, promises.test_gaps_are_told_apart_before_undecided_offsets_are_released),
    (
        release_without_asking_for_a_sink,
        promises.test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery,
    ),
    (
        count_a_try_of_what_is_given_back,
        promises.test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery,
    ),
    (
        complete_without_a_sink_and_only_say_so,
        promises.test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery,
    ),
    (archive_without_waiting_for_the_letter, promises.test_nothing_is_archived_before_its_dead_letter_is_known),
    (
        the_window_passes_over_what_waits_for_its_letter,
        promises.test_nothing_is_archived_before_its_dead_letter_is_known,
    ),
    (retention_takes_what_waits_for_its_letter, promises.test_retention_takes_no_record_out_of_the_dead_letter_queue),
]
