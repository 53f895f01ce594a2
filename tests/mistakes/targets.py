"""Mistakes about a sink's target at a replay, and about the acknowledgement mode of an attempt."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core import decide, replay, staging
from coordinator.core.commands import CompletePlan, Decision, StageRuns, complete_plan, stage_outcomes
from coordinator.core.log_records import PlanStarted, RunsChanged
from coordinator.core.looks import snapshot
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import Event, RecordState
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.protocol.values import AcknowledgeType
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import IMPLICIT, OWN_MODE, REPLACED, ROLLS, SILENT, SILENT_AND_REPLACED


@mistake(
    rules.TARGET_THAT_REPLACES,
    explorer=(SmallWorld(REPLACED, Budget(1, crashes=1)), SmallWorld(SILENT_AND_REPLACED, Budget(1, crashes=1))),
    model=0,
)
def let_an_older_attempt_veto_though_its_output_is_replaced(patch: Patch) -> None:
    _take_the_target_for_one_that(patch, replaces=False)


@mistake(
    rules.TARGET_THAT_REPLACES,
    explorer=(SmallWorld(ROLLS, Budget(1, crashes=1)), SmallWorld(SILENT, Budget(1, crashes=1))),
    model=0,
)
def take_every_target_for_one_that_replaces(patch: Patch) -> None:
    _take_the_target_for_one_that(patch, replaces=True)


def _take_the_target_for_one_that(patch: Patch, *, replaces: bool) -> None:
    patch.setattr(AcquiredPlan, "replaces_output", property(lambda plan: replaces))


@mistake(rules.TARGET_THAT_REPLACES, model=29)
def one_sink_of_an_attempt_that_replaces_is_enough(patch: Patch) -> None:
    patch.setattr(stage_outcomes, "_replaces", lambda plan, command: command.replaces or plan.replaces)


@mistake(rules.TARGET_THAT_REPLACES, model=14)
def keep_an_earlier_attempts_word_on_its_target(patch: Patch) -> None:
    right = replay._REPLAY[PlanStarted]

    def started(self: ShareGroup, record: PlanStarted) -> None:
        plan = self.members[record.member_id].newest
        before = plan.replaces if plan is not None else None
        right(self, record)
        self.members[record.member_id].newest.replaces = before  # type: ignore[union-attr]

    patch.setitem(replay._REPLAY, PlanStarted, started)


@mistake(rules.TARGET_THAT_REPLACES, model=1)
def take_sinks_of_one_attempt_for_attempts(patch: Patch) -> None:
    right = staging.later
    patch.setattr(staging, "later", lambda before, now: right(before, now)._replace(divided=False))


@mistake(rules.TARGET_THAT_REPLACES, explorer=(SmallWorld(REPLACED, Budget(2, crashes=1, restarts=1)),), model=5)
def forget_what_the_target_does_in_snapshots(patch: Patch) -> None:
    right = snapshot._plan_record
    patch.setattr(
        snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), replaces=None)
    )


@mistake(
    rules.MODE_IS_THE_ATTEMPTS,
    explorer=(SmallWorld(IMPLICIT, Budget(1, configs=1)),),
    simulator=(Seeds("configs", 3),),
    model=0,
)
def complete_by_the_groups_mode_at_completion(patch: Patch) -> None:
    right = decide._DECIDERS[CompletePlan]

    def completed(group: ShareGroup, command: CompletePlan, now_ms: int) -> Decision:
        plan = group.members[command.member_id].newest
        assert plan is not None
        plan.explicit = group.config.is_explicit()
        return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, CompletePlan, completed)


@mistake(rules.MODE_IS_THE_ATTEMPTS, model=0)
def forget_the_mode_in_snapshots(patch: Patch) -> None:
    right = snapshot._plan_record
    patch.setattr(
        snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), explicit=False)
    )


@mistake(rules.MODE_IS_THE_ATTEMPTS, model=0)
def ignore_a_querys_own_mode(patch: Patch) -> None:
    right = GroupConfig.is_explicit
    patch.setattr(GroupConfig, "is_explicit", lambda self, own="": right(self))


@mistake(
    rules.MODE_IS_THE_ATTEMPTS,
    tests=("core/test_outcomes::test_a_sink_that_names_another_mode_than_its_batchs_is_refused",),
    model=0,
)
def ignore_a_sinks_own_mode(patch: Patch) -> None:
    right = decide._DECIDERS[StageRuns]

    def staged(group: ShareGroup, command: Any, now_ms: int) -> Decision:
        return right(group, msgspec.structs.replace(command, acknowledgement_mode=""), now_ms)

    patch.setitem(decide._DECIDERS, StageRuns, staged)


@mistake(rules.MODE_IS_THE_ATTEMPTS, explorer=(SmallWorld(OWN_MODE, Budget(2, crashes=1, configs=1)),), model=26)
def accept_by_silence_what_an_earlier_attempt_passed_over(patch: Patch) -> None:
    """The last attempt is in implicit mode, one before it was not."""
    silence = AcquiredPlan.silence

    def silent(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        return silence(self, run, verdict) if self.explicit else AcknowledgeType.ACCEPT

    patch.setattr(AcquiredPlan, "silence", silent)


@mistake(rules.EXPLICIT_MODE_RELEASES, simulator=(Seeds("sinks", 19),), model=0)
def accept_what_no_sink_decided(patch: Patch) -> None:
    right = AcquiredPlan.outcome

    def outcome(self: Any, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        return AcknowledgeType.ACCEPT if verdict is None else right(self, run, verdict)

    patch.setattr(AcquiredPlan, "outcome", outcome)


@mistake(rules.EXPLICIT_MODE_RELEASES, model=3)
def release_gaps(patch: Patch) -> None:
    right = decide._DECIDERS[CompletePlan]

    def completed(group: ShareGroup, command: CompletePlan, now_ms: int) -> Decision:
        return right(group, msgspec.structs.replace(command, gaps=()), now_ms)

    patch.setitem(decide._DECIDERS, CompletePlan, completed)


@mistake(
    rules.EXPLICIT_MODE_RELEASES,
    tests=("core/test_outcomes::test_explicit_mode_without_a_sink_fails_by_name_and_counts_no_try",),
    model=4,
)
def release_without_asking_for_a_sink(patch: Patch) -> None:
    patch.setattr(complete_plan, "nobody_decides", lambda member: False)


@mistake(
    rules.EXPLICIT_MODE_RELEASES,
    tests=("core/test_outcomes::test_explicit_mode_without_a_sink_fails_by_name_and_counts_no_try",),
    model=4,
)
def count_a_try_of_what_is_given_back(patch: Patch) -> None:
    right = complete_plan.moved

    def counted(run: Run, event: Event, **fields: Any) -> Run:
        return right(run, event, **fields, **({"releases": run.releases + 1} if event == Event.CUT else {}))

    patch.setattr(complete_plan, "moved", counted)


@mistake(
    rules.EXPLICIT_MODE_RELEASES,
    tests=("core/test_outcomes::test_explicit_mode_without_a_sink_fails_by_name_and_counts_no_try",),
    model=4,
)
def complete_without_a_sink(patch: Patch) -> None:
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
