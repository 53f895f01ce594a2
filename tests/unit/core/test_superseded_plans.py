"""◆ A plan that was given up and then found in Spark's log is started empty: a driver that had been stopped logged it
after its successor had asked for the next one. What nobody ever read is in nobody's way."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import StalePlan
from tests.support.group_driver import from_snapshot, ranges
from tests.support.superseded_plans import successor_with_another_plan


def test_a_superseded_plan_starts_empty_and_its_successor_is_returned() -> None:
    group, logged, newest = successor_with_another_plan()
    assert newest == "i.4" and group.dump() == ["[60..99] ACQUIRED 3 0 4"], "at most what was asked for, in whole runs"
    group.join()
    taken = group.start(logged)
    assert (taken.plan.plan_id, taken.plan.partitions, taken.data_loss) == (logged, (), ())
    assert group.dump() == ["[60..99] AVAILABLE 3 0 -"], "its count unchanged, no failure"
    assert not {2, 4} & set(group.group.plans), "nobody carries either"
    assert ranges(group.next(logged, limit=None)) == [(60, 99, 4)]
    assert group.group.last_plan_id == 5, "numbers never fall"


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


def test_the_last_hundred_superseded_plans_are_known() -> None:
    group, logged, _ = successor_with_another_plan(plans=101)
    with pytest.raises(StalePlan):
        group.start(logged)
    group.start("i.4")


def test_a_deleted_topic_of_a_superseded_plan_is_a_loss() -> None:
    group, logged, _ = successor_with_another_plan()
    member = group.group.members["m1"]
    assert group.group.plan_partitions(member, logged) == {("T", 0)}, "what the service has to ask the broker for"
    told = group.start(logged, deleted_topic_ids=frozenset({"T"}))
    assert [(o.first, o.last) for o in told.data_loss] == [(60, 99)]
    assert group.partition().archived_total == 40
