"""Poison: tries, slices, quarantine and trials."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core import failed_deliveries, isolation, release_backoff, replay, share_group
from coordinator.core.commands import (
    acknowledge,
    acquire_plan,
    acquire_records,
    complete_plan,
    membership,
    reclaim_plan,
)
from coordinator.core.isolation import IsolationEvent, Stage
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.record_state import RecordState
from coordinator.core.records import EvidenceUsed, MemberProgressKept, PlanCompleted
from coordinator.core.release_backoff import NO_DELAY, Delay
from coordinator.core.replays import plans
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import Disposition
from tests.mistakes import rules
from tests.mistakes.mistake import WITH_SINKS, Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import SLICES


@mistake(
    {
        rules.CUT_COMES_FIRST: ("core/test_isolation::test_the_cut_comes_first",),
    },
    explorer=(SmallWorld(SLICES, Budget(1, crashes=1)),),
    simulator=(Seeds(),),
)
def forget_that_the_cut_comes_first(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._return

    def returned(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        run = segment.run._replace(delivery_count=segment.run.delivery_count + 1)
        right(self, key, segment._replace(run=run))

    patch.setattr(reclaim_plan.Reclaim, "_return", returned)


@mistake(
    {
        rules.CUT_COMES_FIRST: ("core/test_isolation::test_the_cut_comes_first",),
    },
    explorer=(SmallWorld(SLICES, Budget(1, crashes=1)),),
    simulator=(Seeds(),),
)
def forget_the_cut(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "slice_size", lambda *a: None)


@mistake(
    {
        rules.CUT_COMES_FIRST: (),
    },
    simulator=(Seeds(),),
)
def forget_to_cut_what_is_acquired(patch: Patch) -> None:
    patch.setattr(acquire_plan, "slice_size", lambda *a: None)


@mistake(
    {
        rules.CUT_COMES_FIRST: ("core/test_plans::test_a_lost_lock_is_reported_once",),
    },
)
def report_every_loss_again(patch: Patch) -> None:
    patch.setattr(plans, "_still_held", lambda group, plan: plan.ranges)


@mistake(
    {
        rules.ONE_FAILURE_A_DELIVERY: ("core/test_plans::test_a_plan_never_started_costs_a_count_and_no_try",),
    },
)
def count_a_failure_for_plans_never_started(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        run = segment.run
        extra = 0 if self.plan.started else 1
        right(self, key, segment._replace(run=run._replace(failures=run.failures + extra)))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


@mistake(
    {
        rules.ONE_FAILURE_A_DELIVERY: ("core/test_isolation::test_a_delivery_counts_as_one_failure_at_most",),
    },
)
def count_a_delivery_twice(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        extra = segment.run.state == RecordState.AVAILABLE
        run = segment.run._replace(failures=segment.run.failures + extra)
        right(self, key, segment._replace(run=run))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: ("core/test_quarantine::test_a_failure_at_the_limit_quarantines",),
    },
    simulator=(Seeds(),),
)
def archive_at_the_limit(patch: Patch) -> None:
    for stage in isolation.IN_BATCHES:
        for event in (IsolationEvent.FAIL_AT_LIMIT, IsolationEvent.FAIL_AT_LIMIT_ALONE):
            patch.setitem(isolation.TRANSITIONS, (stage, event), Stage.GIVEN_UP)


@mistake(
    {
        rules.LIMITS_COMPARE_TRIES: ("core/test_delivery_limit::test_limits_compare_tries_never_the_delivery_count",),
    },
)
def compare_the_delivery_count(patch: Patch) -> None:
    patch.setattr(Run, "tries", property(lambda run: run.delivery_count))


@mistake(
    {
        rules.RELEASE_IS_NO_FAILURE: ("core/test_isolation::test_isolation_looks_at_failures_only",),
    },
)
def isolate_by_releases_too(patch: Patch) -> None:
    patch.setattr(acquire_plan, "isolation_class", lambda failures, limit: 10)
    patch.setattr(acquire_plan, "slice_size", lambda *a: 1)


@mistake(
    {
        rules.LIMITS_COMPARE_TRIES: ("core/test_delivery_limit::test_limits_compare_tries_never_the_delivery_count",),
    },
)
def throttle_by_count(patch: Patch) -> None:
    right = acquire_records.PartitionFetch._returned

    def returned(self: acquire_records.PartitionFetch) -> list[Segment]:
        return [s._replace(run=s.run._replace(failures=s.run.delivery_count)) for s in right(self)]

    patch.setattr(acquire_records.PartitionFetch, "_returned", returned)


@mistake(
    {
        rules.LIMITS_COMPARE_TRIES: ("core/test_delivery_limit::test_a_consumers_record_is_archived_at_the_limit",),
    },
)
def consumers_never_reach_the_limit(patch: Patch) -> None:
    right = failed_deliveries.consumer_lost_lock
    patch.setattr(membership, "consumer_lost_lock", lambda run, config: right(run._replace(failures=0), config))


@mistake(
    {
        rules.JUDGED_BY_WHO_HAD_IT: (
            "core/test_mixed_groups::test_one_release_of_a_consumer_gives_up_nothing_a_query_failed",
            "core/test_mixed_groups::test_one_lost_lock_of_a_consumer_gives_up_nothing_a_query_failed",
        ),
    },
    simulator=(Seeds(first=32),),
    model=0,
)
def count_a_querys_failures_against_a_share_consumer(patch: Patch) -> None:
    patch.setattr(Run, "consumer_tries", Run.tries)


@mistake(
    {
        rules.LIMITS_COMPARE_TRIES: ("core/test_quarantine::test_failures_archive_no_record_that_a_query_releases",),
    },
)
def count_failures_against_a_querys_releases(patch: Patch) -> None:
    def released_as_a_consumers(run: Run, config: Any, delay: Any, disposition: Any, **how: Any) -> Run:
        return failed_deliveries.released(run._replace(query_failures=0), config, delay)

    patch.setattr(complete_plan, "query_released", released_as_a_consumers)


@mistake(
    {
        rules.LIMITS_COMPARE_TRIES: ("core/test_quarantine::test_a_released_record_leaves_quarantine",),
    },
)
def keep_a_released_record_in_quarantine(patch: Patch) -> None:
    for stage in (Stage.QUARANTINED, Stage.FAILED_ALONE):
        for event in (IsolationEvent.RELEASE, IsolationEvent.RELEASE_BELOW_THRESHOLD):
            patch.setitem(isolation.TRANSITIONS, (stage, event), stage)


@mistake(
    {
        rules.RELEASE_WAITS: (),
    },
    simulator=(Seeds("sinks", WITH_SINKS),),
)
def forget_the_delay_of_a_release(patch: Patch) -> None:
    right = complete_plan.query_released

    def at_once(run: Run, config: GroupConfig, delay: Delay, disposition: Disposition, **how: Any) -> Run:
        return right(run, config, NO_DELAY, disposition, **how)

    patch.setattr(complete_plan, "query_released", at_once)


BY_DEFAULT = ("core/test_outcomes::test_by_default_a_querys_releases_wait_and_a_share_consumers_do_not",)


@mistake({rules.QUERYS_RELEASE_WAITS_BY_DEFAULT: BY_DEFAULT})
def give_a_querys_releases_kafkas_default(patch: Patch) -> None:
    right = complete_plan.first_delay_ms
    patch.setattr(complete_plan, "first_delay_ms", lambda config, by_query: right(config, by_query=False))


@mistake({rules.QUERYS_RELEASE_WAITS_BY_DEFAULT: BY_DEFAULT})
def give_a_share_consumers_releases_the_queries_default(patch: Patch) -> None:
    right = release_backoff.first_delay_ms
    for module in (acknowledge, release_backoff):
        patch.setattr(module, "first_delay_ms", lambda config, by_query: right(config, by_query=True))


@mistake(
    {
        rules.STORED_TIMES_ARE_BOUNDED: (
            "core/test_stored_times::test_bounded_times_are_in_the_log_and_a_crash_before_loses_nothing",
        ),
    },
    model=0,
)
def wait_until_the_clock_of_the_owner_before(patch: Patch) -> None:
    patch.setattr(share_group, "ahead", lambda runs, now_ms: [])


@mistake(
    {
        rules.STORED_TIMES_ARE_BOUNDED: ("core/test_stored_times::test_a_longer_lock_keeps_its_length_by_any_clock",),
    },
    model=0,
)
def end_locks_by_the_clock_of_the_owner_before(patch: Patch) -> None:
    right = ShareGroup._keep_locks
    patch.setattr(
        ShareGroup, "_keep_locks", lambda self, plan, held, deadline_ms, _: right(self, plan, held, deadline_ms, 2**62)
    )


@mistake(
    {
        rules.STORED_TIMES_ARE_BOUNDED: (
            "core/test_stored_times::test_signals_extend_no_lock_for_longer_by_a_clock_that_is_behind",
        ),
    },
    model=126,
)
def extend_locks_by_the_clock_of_the_owner_before(patch: Patch) -> None:
    patch.setattr(AcquiredPlan, "held_since_ms", property(lambda plan: plan.acquired_ms))


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: ("core/test_trials::test_a_record_fails_alone_before_its_trial",),
    },
)
def forget_that_failures_make_evidence_old(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "clears_evidence", lambda before, after, config: False)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: ("core/test_trials::test_quarantine_makes_all_evidence_old",),
    },
)
def any_completion_is_evidence(patch: Patch) -> None:
    right = replay._REPLAY[PlanCompleted]

    def completed(self: ShareGroup, record: Any) -> None:
        right(self, record)
        self.members[record.member_id].evidence = True

    patch.setitem(replay._REPLAY, PlanCompleted, completed)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: ("core/test_trials::test_no_trial_begins_without_evidence",),
    },
)
def always_on_trial(patch: Patch) -> None:
    patch.setattr(acquire_plan.Acquisition, "_failed_alone_long_enough", lambda self, run: True)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: (
            "core/test_trials::test_a_failed_trial_archives_and_uses_up_its_querys_evidence_alone",
        ),
    },
)
def a_trial_uses_up_nothing(patch: Patch) -> None:
    patch.setitem(replay._REPLAY, EvidenceUsed, lambda self, record: None)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: (
            "core/test_trials::test_a_failed_trial_archives_and_uses_up_its_querys_evidence_alone",
            "core/test_trials::test_a_trial_is_judged_when_its_query_comes_back",
        ),
    },
)
def never_judge_a_trial(patch: Patch) -> None:
    patch.setitem(isolation.TRANSITIONS, (Stage.TRIAL, IsolationEvent.FAIL), Stage.FAILED_ALONE)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: ("core/test_trials::test_a_second_lost_trial_counts_as_a_failed_trial",),
    },
)
def never_judge_a_lost_trial(patch: Patch) -> None:
    right = failed_deliveries.query_lost_lock

    def lost(run: Run, *rest: Any) -> Run:
        return right(run._replace(trials_lost=0), *rest)

    patch.setattr(membership, "query_lost_lock", lost)


@mistake(
    {
        rules.FAILED_TRIAL_ARCHIVES: ("core/test_trials::test_a_record_fails_alone_before_its_trial",),
    },
)
def trial_before_failing_alone(patch: Patch) -> None:
    for stage in isolation.IN_BATCHES:
        patch.setitem(isolation.TRANSITIONS, (stage, IsolationEvent.FAIL_AT_LIMIT), Stage.FAILED_ALONE)


@mistake(
    {
        rules.NO_RECORD_STARVES: (
            "core/test_fair_acquisition::test_two_queries_in_turn_starve_nothing",
            "core/test_fair_acquisition::test_two_queries_in_the_other_turn_starve_nothing",
        ),
    },
)
def take_turns_by_the_groups_plans(patch: Patch) -> None:
    choose = acquire_plan.Acquisition.choose

    def by_the_group(self: acquire_plan.Acquisition, member: Member) -> None:
        turn = self.group.last_plan_id % 2 == 1
        with pytest.MonkeyPatch.context() as during:
            during.setattr(acquire_plan, "is_turn_of_one_alone", lambda member: turn)
            choose(self, member)

    patch.setattr(acquire_plan.Acquisition, "choose", by_the_group)


@mistake(
    {
        rules.NO_RECORD_STARVES: (
            "core/test_fair_acquisition::test_a_query_that_is_begun_anew_for_each_plan_starves_nothing",
        ),
    },
)
def forget_the_turns_in_a_snapshot(patch: Patch) -> None:
    right = replay._REPLAY[MemberProgressKept]

    def kept(self: ShareGroup, record: Any) -> None:
        right(self, record)
        self.members[record.member_id].acquisitions = 0

    patch.setitem(replay._REPLAY, MemberProgressKept, kept)


@mistake(
    {
        rules.NO_RECORD_STARVES: ("core/test_fair_acquisition::test_a_consumer_beside_a_stream_starves_nothing",),
    },
)
def let_consumers_take_one_alone_only_if_nothing_else_is_there(patch: Patch) -> None:
    patch.setattr(acquire_records, "is_turn_of_one_alone", lambda member: False)
