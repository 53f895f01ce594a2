"""◆ A plan that was given up and then found in Spark's log is started empty: a driver that had been stopped logged it
after its successor had asked for the next one. What nobody ever read is in nobody's way."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import StalePlan
from tests.support.group_driver import from_snapshot, ranges
from tests.support.superseded_plans import successor_with_another_plan


def test_a_superseded_plan_outlives_the_coordinator() -> None:
    group, logged, _ = successor_with_another_plan(plans=2)
    from_snapshot(group)
    group.restart(logged)
    from_snapshot(group)
    group.crash()
    assert ranges(group.restart(logged)) == []
    assert ranges(group.next(logged, limit=None)) == [(60, 99, 6)]


def test_of_two_drivers_on_one_checkpoint_the_first_to_start_wins() -> None:
    group, logged, newest = successor_with_another_plan()
    group.start(newest)
    with pytest.raises(StalePlan):
        group.start(logged)
    group, logged, newest = successor_with_another_plan()
    group.start(logged)
    with pytest.raises(StalePlan):
        group.start(newest)
    following = group.next(logged).plan.plan_id
    for refused in (logged, newest):
        with pytest.raises(StalePlan):
            group.start(refused)
    group.start(following)
