"""The tests can fail: each rule switched off, and the test that is named after it must find it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from coordinator.core import decide, redelivery, runs, share_group
from coordinator.core.commands import (
    Decision,
    ExtendDeadlines,
    acknowledge,
    acquire_plan,
    acquire_records,
    complete_plan,
    membership,
    reclaim_plan,
)
from coordinator.core.record_state import RecordState
from coordinator.core.records import EvidenceCleared, PlanAcquired, PlanCompleted, PlanStarted
from coordinator.core.redelivery import failed_alone
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import Done
from tests.unit.rules import sink_mistakes, source_mistakes
from tests.unit.rules import test_isolation as isolation
from tests.unit.rules import test_plans as promises

Patch = pytest.MonkeyPatch
# A promise not kept, an error that should not be, or one that should be and is not.
FOUND = (AssertionError, ShareGroupError, pytest.fail.Exception)


def match_by_count_instead_of_number(patch: Patch) -> None:
    def carrying(self: SharePartition, number: int, ranges: Iterable[tuple[int, int]]) -> list[Segment]:
        return [s for f, e in ranges for s in self.runs.between(f, e) if s.run.state in (0, 1)]

    patch.setattr(SharePartition, "carrying", carrying)


def clear_the_number_at_expiry(patch: Patch) -> None:
    right = membership.query_lost_lock
    patch.setattr(membership, "query_lost_lock", lambda *a: right(*a)._replace(plan_id=None))


def forget_that_the_cut_comes_first(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._return

    def returned(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        run = segment.run._replace(delivery_count=segment.run.delivery_count + 1)
        right(self, key, segment._replace(run=run))

    patch.setattr(reclaim_plan.Reclaim, "_return", returned)


def forget_the_cut(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "slice_size", lambda *a: None)


def skip_the_epoch_check(patch: Patch) -> None:
    patch.setattr(ShareGroup, "check_epoch", lambda *a: None)


def forget_fenced_processes(patch: Patch) -> None:
    patch.setattr(membership, "_same_process", lambda g, m, c: c.process_id == m.process_id)


def count_a_failure_for_plans_never_used(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        run = segment.run
        extra = 0 if self.plan.started else 1
        right(self, key, segment._replace(run=run._replace(failures=run.failures + extra)))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


def count_a_delivery_twice(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._come_back

    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        extra = segment.run.state == RecordState.AVAILABLE
        run = segment.run._replace(failures=segment.run.failures + extra)
        right(self, key, segment._replace(run=run))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


def archive_at_the_limit(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "quarantined", lambda run, plan, now_ms: Run(RecordState.ARCHIVED, run.delivery_count))


def compare_the_delivery_count(patch: Patch) -> None:
    patch.setattr(Run, "tries", property(lambda run: run.delivery_count))


def isolate_by_releases_too(patch: Patch) -> None:
    patch.setattr(acquire_plan, "isolation_class", lambda failures, limit: 10)
    patch.setattr(acquire_plan, "slice_size", lambda *a: 1)


def forget_the_receipt(patch: Patch) -> None:
    right = acknowledge._check_held

    def check(group: Any, member_id: str, batch: Any, segment: Segment) -> None:
        run = segment.run._replace(delivery_count=batch.delivery_count)
        right(group, member_id, batch, segment._replace(run=run))

    patch.setattr(acknowledge, "_check_held", check)


def do_not_merge(patch: Patch) -> None:
    patch.setattr(runs, "_merged", lambda pieces, head, tail: [each for each in (head, *pieces, tail) if each])


def acquire_without_appending(patch: Patch) -> None:
    patch.setattr(PlanAcquired, "durable", False)


def use_without_appending(patch: Patch) -> None:
    patch.setattr(PlanStarted, "durable", False)


def forget_that_failures_make_evidence_old(patch: Patch) -> None:
    patch.setattr(reclaim_plan, "is_news", lambda before, after: False)


def any_completion_is_evidence(patch: Patch) -> None:
    right = ShareGroup._plan_completed

    def completed(self: ShareGroup, record: Any) -> None:
        right(self, record)
        self.members[record.member_id].evidence = True

    patch.setitem(share_group._REPLAY, PlanCompleted, completed)


def always_on_trial(patch: Patch) -> None:
    patch.setattr(acquire_plan.Acquisition, "_failed_alone_long_enough", lambda self, run: True)


def a_trial_uses_up_nothing(patch: Patch) -> None:
    right = ShareGroup._evidence_cleared

    def cleared(self: ShareGroup, record: EvidenceCleared) -> None:
        if record.member_id is None:
            right(self, record)

    patch.setitem(share_group._REPLAY, EvidenceCleared, cleared)


def never_judge_a_trial(patch: Patch) -> None:
    def come_back(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        self._quarantined(key, segment, failed_alone(segment.run, self.group.config, self.now_ms))

    patch.setattr(reclaim_plan.Reclaim, "_come_back", come_back)


def never_judge_a_lost_trial(patch: Patch) -> None:
    right = redelivery.query_lost_lock

    def lost(run: Run, *rest: Any) -> Run:
        return right(run._replace(trials_lost=0), *rest)

    patch.setattr(membership, "query_lost_lock", lost)


def trial_before_failing_alone(patch: Patch) -> None:
    right = redelivery.quarantined
    patch.setattr(reclaim_plan, "quarantined", lambda *a: right(*a)._replace(quarantined_ms=1))


def consumers_never_reach_the_limit(patch: Patch) -> None:
    right = redelivery.consumer_lost_lock
    patch.setattr(membership, "consumer_lost_lock", lambda run, config: right(run._replace(failures=0), config))


def count_failures_against_what_a_query_releases(patch: Patch) -> None:
    def released_as_a_consumers(run: Run, config: Any, not_before_ms: Any, disposition: Any) -> Run:
        return redelivery.released(run, config, not_before_ms)

    patch.setattr(complete_plan, "query_released", released_as_a_consumers)


def what_was_set_aside_stays_so_when_it_is_released(patch: Patch) -> None:
    right = redelivery.query_released

    def released(run: Run, *rest: Any) -> Run:
        after = right(run, *rest)
        return after._replace(quarantined_ms=run.quarantined_ms) if after.state == RecordState.AVAILABLE else after

    patch.setattr(complete_plan, "query_released", released)


def throttle_by_count(patch: Patch) -> None:
    right = acquire_records.PartitionFetch._returned

    def returned(self: acquire_records.PartitionFetch) -> list[Segment]:
        return [s._replace(run=s.run._replace(failures=s.run.delivery_count)) for s in right(self)]

    patch.setattr(acquire_records.PartitionFetch, "_returned", returned)


def tell_every_loss_again(patch: Patch) -> None:
    patch.setattr(ShareGroup, "_still_held", lambda self, plan: plan.ranges)


def count_time_in_which_nobody_was_heard(patch: Patch) -> None:
    patch.setitem(decide._DECIDERS, ExtendDeadlines, lambda group, command, now_ms: Decision((), Done()))


def give_a_full_session_each_time_nobody_was_heard(patch: Patch) -> None:
    """A full session's time after each time in which nobody was heard."""
    right = membership.extend_deadlines

    def extend_deadlines(group: ShareGroup, command: ExtendDeadlines, now_ms: int) -> Decision:
        group.deadlines_extended_until_ms = 0
        return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, ExtendDeadlines, extend_deadlines)


def rest_while_members_are_there(patch: Patch) -> None:
    patch.setattr(ShareGroup, "may_rest", lambda self, now_ms: True)


MISTAKES: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (match_by_count_instead_of_number, promises.test_state_and_count_alone_never_match),
    (clear_the_number_at_expiry, promises.test_a_run_keeps_its_number_when_its_lock_runs_out),
    (clear_the_number_at_expiry, promises.test_reclaim_takes_all_that_carries_the_number),
    (forget_that_the_cut_comes_first, isolation.test_the_cut_comes_first),
    (forget_the_cut, isolation.test_the_cut_comes_first),
    (skip_the_epoch_check, promises.test_fenced_reader_never_rejoins),
    (forget_fenced_processes, promises.test_epoch_outlives_the_session),
    (count_a_delivery_twice, isolation.test_a_delivery_is_one_failure_at_most),
    (count_a_failure_for_plans_never_used, promises.test_a_plan_never_used_burns_a_count_and_no_try),
    (archive_at_the_limit, isolation.test_a_failure_at_the_limit_sets_aside),
    (compare_the_delivery_count, isolation.test_limits_compare_tries_never_the_delivery_count),
    (
        count_failures_against_what_a_query_releases,
        isolation.test_failures_give_nothing_up_that_a_query_releases,
    ),
    (
        what_was_set_aside_stays_so_when_it_is_released,
        isolation.test_a_record_that_was_set_aside_and_is_released_is_as_any_released_one,
    ),
    (throttle_by_count, isolation.test_limits_compare_tries_never_the_delivery_count),
    (isolate_by_releases_too, isolation.test_isolation_looks_at_failures_only),
    (forget_the_receipt, isolation.test_a_receipt_of_an_older_delivery_is_refused),
    (do_not_merge, isolation.test_equal_neighbours_are_one_run),
    (acquire_without_appending, promises.test_every_acquisition_is_durable),
    (use_without_appending, promises.test_used_is_durable_so_that_a_replay_counts_after_a_crash),
    (forget_that_failures_make_evidence_old, isolation.test_what_failed_among_others_fails_alone_before_its_trial),
    (any_completion_is_evidence, isolation.test_setting_aside_makes_all_evidence_old),
    (always_on_trial, isolation.test_no_trial_without_evidence),
    (a_trial_uses_up_nothing, isolation.test_failed_trial_archives_and_uses_up_evidence),
    (never_judge_a_trial, isolation.test_failed_trial_archives_and_uses_up_evidence),
    (never_judge_a_trial, isolation.test_a_trial_is_judged_when_its_query_comes_back),
    (never_judge_a_lost_trial, isolation.test_a_second_trial_lost_is_a_failed_one),
    (trial_before_failing_alone, isolation.test_what_failed_among_others_fails_alone_before_its_trial),
    (consumers_never_reach_the_limit, isolation.test_a_consumers_record_is_archived_at_the_limit),
    (tell_every_loss_again, promises.test_a_loss_is_said_once),
    (count_time_in_which_nobody_was_heard, promises.test_time_in_which_nobody_was_heard_ends_no_session_and_no_lock),
    (
        give_a_full_session_each_time_nobody_was_heard,
        promises.test_who_is_gone_loses_its_records_also_where_nobody_is_heard_again_and_again,
    ),
    (rest_while_members_are_there, promises.test_on_demand_may_rest),
]
ALL_MISTAKES = [*MISTAKES, *source_mistakes.MISTAKES, *sink_mistakes.MISTAKES]


@pytest.mark.parametrize(
    ("mistake", "test"), ALL_MISTAKES, ids=[f"{m.__name__}-{t.__name__.removeprefix('test_')}" for m, t in ALL_MISTAKES]
)
def test_the_mistake_is_found(mistake: Callable[[Patch], None], test: Callable[[], None], monkeypatch: Patch) -> None:
    test()
    mistake(monkeypatch)
    with pytest.raises(FOUND):
        test()
