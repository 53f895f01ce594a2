"""Poison: tries, slices, quarantine and trials."""

from __future__ import annotations

from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core import isolation, release_backoff, replay, share_group
from coordinator.core.commands import acknowledge, complete_plan, reclaim_plan
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.core.isolation import IsolationEvent, Stage
from coordinator.core.log_records import MemberProgressKept
from coordinator.core.members import AcquiredPlan
from coordinator.core.release_backoff import NO_DELAY, Delay
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import Disposition
from tests.mistakes import rules
from tests.mistakes.mistake import WITH_SINKS, Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import SLICES


@mistake(rules.CUT_COMES_FIRST, explorer=(SmallWorld(SLICES, Budget(1, crashes=1)),), simulator=(Seeds(),))
def forget_that_the_cut_comes_first(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._return

    def returned(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        run = segment.run._replace(delivery_count=segment.run.delivery_count + 1)
        right(self, key, segment._replace(run=run))

    patch.setattr(reclaim_plan.Reclaim, "_return", returned)


@mistake(rules.CUT_COMES_FIRST, explorer=(SmallWorld(SLICES, Budget(1, crashes=1)),), simulator=(Seeds(),))
def forget_the_cut(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "slice_size", lambda *a: None)


@mistake(rules.CUT_COMES_FIRST, simulator=(Seeds(),))
def forget_to_cut_what_is_acquired(patch: Patch) -> None:
    patch.setattr(acquire_plan, "slice_size", lambda *a: None)


@mistake(rules.FAILED_TRIAL_ARCHIVES, simulator=(Seeds(),))
def archive_at_the_limit(patch: Patch) -> None:
    for stage in isolation.IN_BATCHES:
        for event in (IsolationEvent.FAIL_AT_LIMIT, IsolationEvent.FAIL_AT_LIMIT_ALONE):
            patch.setitem(isolation.TRANSITIONS, (stage, event), Stage.GIVEN_UP)


@mistake(rules.LIMITS_COMPARE_TRIES, tests=("core/test_isolation::test_limits_compare_tries_never_the_delivery_count",))
def compare_the_delivery_count(patch: Patch) -> None:
    patch.setattr(Run, "tries", property(lambda run: run.delivery_count))


@mistake(rules.RELEASE_IS_NO_FAILURE, tests=("core/test_isolation::test_isolation_looks_at_failures_only",))
def isolate_by_releases_too(patch: Patch) -> None:
    patch.setattr(acquire_plan, "isolation_class", lambda failures, limit: 10)
    patch.setattr(acquire_plan, "slice_size", lambda *a: 1)


@mistake(rules.JUDGED_BY_WHO_HAD_IT, simulator=(Seeds(first=32),), model=0)
def count_a_querys_failures_against_a_share_consumer(patch: Patch) -> None:
    patch.setattr(Run, "consumer_tries", Run.tries)


@mistake(rules.RELEASE_WAITS, simulator=(Seeds("sinks", WITH_SINKS),))
def forget_the_delay_of_a_release(patch: Patch) -> None:
    right = complete_plan.query_released

    def at_once(run: Run, config: GroupConfig, delay: Delay, disposition: Disposition, **how: Any) -> Run:
        return right(run, config, NO_DELAY, disposition, **how)

    patch.setattr(complete_plan, "query_released", at_once)


BY_DEFAULT = ("core/test_outcomes::test_by_default_a_querys_releases_wait_and_a_share_consumers_do_not",)


@mistake(rules.QUERYS_RELEASE_WAITS_BY_DEFAULT, tests=(*BY_DEFAULT,))
def give_a_share_consumers_releases_the_queries_default(patch: Patch) -> None:
    right = release_backoff.first_delay_ms
    for module in (acknowledge, release_backoff):
        patch.setattr(module, "first_delay_ms", lambda config, by_query: right(config, by_query=True))


@mistake(rules.STORED_TIMES_ARE_BOUNDED, model=0)
def wait_until_the_clock_of_the_owner_before(patch: Patch) -> None:
    patch.setattr(share_group, "ahead", lambda runs, now_ms: [])


@mistake(rules.STORED_TIMES_ARE_BOUNDED, model=0)
def end_locks_by_the_clock_of_the_owner_before(patch: Patch) -> None:
    right = ShareGroup._keep_locks
    patch.setattr(
        ShareGroup, "_keep_locks", lambda self, plan, held, deadline_ms, _: right(self, plan, held, deadline_ms, 2**62)
    )


@mistake(
    rules.STORED_TIMES_ARE_BOUNDED,
    tests=("core/test_lock_index::test_signals_extend_no_lock_for_longer_by_a_clock_that_is_behind",),
    model=126,
)
def extend_locks_by_the_clock_of_the_owner_before(patch: Patch) -> None:
    patch.setattr(AcquiredPlan, "held_since_ms", property(lambda plan: plan.acquired_ms))


@mistake(
    rules.NO_RECORD_STARVES,
    tests=("core/test_fair_acquisition::test_a_query_that_is_begun_anew_for_each_plan_starves_nothing",),
)
def forget_the_turns_in_a_snapshot(patch: Patch) -> None:
    right = replay._REPLAY[MemberProgressKept]

    def kept(self: ShareGroup, record: Any) -> None:
        right(self, record)
        self.members[record.member_id].acquisitions = 0

    patch.setitem(replay._REPLAY, MemberProgressKept, kept)
