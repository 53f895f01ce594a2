"""◆ Tries and slices: what keeps failing comes in smaller and smaller slices, and the cut comes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config.resolved import GroupConfig
from coordinator.core import isolation
from coordinator.core.commands import Expire
from coordinator.core.failed_deliveries import query_lost_lock, query_released, replayed
from coordinator.core.isolation import (
    Stage,
    failure_event,
    integer_root,
    isolation_class,
    release_event,
    slice_size,
    stage_of,
)
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import RecordState
from coordinator.core.release_backoff import NO_DELAY
from coordinator.core.runs import Run
from coordinator.protocol.values import Disposition
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, ranges
from tests.support.quarantine import quarantined_plan

NOW_MS = 1_000_000
LIMITS = st.integers(2, 8)


@pytest.mark.parametrize("degree", range(1, 6))
def test_a_root_is_the_largest_number_whose_power_is_not_too_large(degree: int) -> None:
    for value in [*range(70), *(base**degree + over for base in (8, 10, 64) for over in (-1, 0, 1))]:
        root = integer_root(value, degree)
        assert root**degree <= value < (root + 1) ** degree


def test_a_root_of_a_large_number_is_exact() -> None:
    """A float has too few digits to tell these two apart."""
    assert [integer_root(10**45 + over, 5) for over in (-1, 0)] == [10**9 - 1, 10**9]


@pytest.mark.parametrize(("limit", "first"), [(2, None), (3, 2), (4, 2), (5, 3), (6, 3), (9, 5), (10, 5)])
def test_isolation_begins_with_half_of_the_tries_and_never_at_two(limit: int, first: int | None) -> None:
    """The same threshold decides which records may be delivered together, and how many."""
    for current in range(1, limit + 3):
        isolated = first is not None and current >= first
        assert isolation_class(current - 1, limit) == (min(current, limit) if isolated else 0)
        assert (slice_size(current, limit, 100_000) is not None) == isolated


def test_isolation_looks_at_failures_only() -> None:
    group = GroupDriver(records=10, **{"share.delivery.count.limit": "10"})
    group.join("c1", query=False)
    for count in range(1, 7):
        for first, last, _ in fetched(group, 10):
            assert acknowledged(group, first, last, count, 2) == {}
            if first != 0 or last != 9:
                break
    group.run(Expire())
    group.join()
    first = ranges(group.next())[0]
    assert first[1] - first[0] > 0, "released, never failed: not cut"


@st.composite
def held_runs(draw: st.DrawFn) -> tuple[Run, AcquiredPlan]:
    """A run that a query's started plan holds, and the plan: a trial only if the run failed alone."""
    quarantined = draw(st.booleans())
    failed_alone_ms = draw(st.sampled_from([None, 5])) if quarantined else None
    trial = failed_alone_ms is not None and draw(st.booleans())
    alone = quarantined or draw(st.booleans())
    run = Run(
        RecordState.ACQUIRED,
        9,
        failures=draw(st.integers(int(quarantined), 8)),
        releases=draw(st.integers(0, 8)),
        plan_id=7,
        quarantined=quarantined,
        failed_alone_ms=failed_alone_ms,
        trials_lost=draw(st.integers(0, 1)) if trial else 0,
    )
    ranges = (("T", 0, ((3, 3 if alone else 4),)),)
    return run, AcquiredPlan(7, "m1", 1, NOW_MS, ranges, query=True, trial=trial, started=True)


def config_of(limit: int) -> GroupConfig:
    return GroupConfig.parse({"share.delivery.count.limit": str(limit)})


@given(held_runs(), LIMITS, st.booleans())
def test_a_failed_delivery_moves_a_record_along_the_transition_table(held, limit, session_ended):
    run, plan = held
    failed = run._replace(failures=run.failures + 1)
    before = stage_of(run, limit, on_trial=plan.trial)
    event = failure_event(before, failed, limit, alone=plan.records == 1, session_ended=session_ended)
    if session_ended:
        after = query_lost_lock(run, plan, config_of(limit), NOW_MS)
    else:
        after = replayed(run, failed, plan, config_of(limit), NOW_MS) or failed
    assert stage_of(after, limit) is isolation.TRANSITIONS[before, event]


@given(held_runs(), LIMITS)
def test_a_released_record_leaves_the_quarantine_along_the_transition_table(held, limit):
    run, plan = held
    after = query_released(run, config_of(limit), NO_DELAY, Disposition.DELIVERY_LIMIT)
    expected = stage_of(run, limit, on_trial=plan.trial)
    if run.quarantined:
        expected = isolation.TRANSITIONS[expected, release_event(run.failures, limit)]
    at_limit = run.releases + 1 >= limit
    assert stage_of(after, limit) is (Stage.GIVEN_UP if at_limit else expected)


def test_every_stage_is_reached_and_only_giving_up_is_final():
    reached = set(isolation.TRANSITIONS.values())
    left = {before for before, _ in isolation.TRANSITIONS}
    assert (reached, left) == (set(Stage), set(Stage) - {Stage.GIVEN_UP})


def test_limits_compare_tries_never_the_delivery_count() -> None:
    group = GroupDriver(records=10)
    for _ in range(20):
        group.join()
        group.next()
    group.pass_time(SESSION_MS + 1)
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 9, 21)], "not throttled: no try was made"
    group.pass_time(31_000)
    assert group.dump() == ["[0..9] AVAILABLE 21 1 2"], "not archived either"


def test_an_owner_whose_clock_is_behind_delays_no_record_beyond_its_backoff() -> None:
    group, plan = quarantined_plan()
    alone = group.next(plan).plan.plan_id
    group.start(alone)
    group.restart(alone)
    backoff_ms = group.partition().runs.first().run.delay_ms  # type: ignore[union-attr]
    group.now_ms -= 600_000
    group.crash()
    group.pass_time(0)
    group.join()
    assert not group.next(alone).plan.plan_id
    group.pass_time(backoff_ms)  # type: ignore[arg-type]
    assert group.next(alone).plan.plan_id
