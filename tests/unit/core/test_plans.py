"""◆ Plans: durable, numbered, reclaimed by whoever carries the plan id, and refused by name when they are old."""

from __future__ import annotations

import pytest

from coordinator.core.commands import acquire_for_query
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import ForeignPlan, StalePlan
from tests.support.group_driver import SESSION_MS, GroupDriver, from_snapshot, ranges, started_plan


@pytest.mark.parametrize("number", ["j.1", "i.x", "i.", "1", "i.1.1"])
def test_a_plan_id_of_another_incarnation_is_refused(number: str) -> None:
    group, _ = started_plan()
    with pytest.raises(ForeignPlan) as refused:
        group.start(number)
    assert refused.value.fields == {"plan_id": number, "group_id": "billing", "incarnation": "i"}


def test_the_initial_offset_of_a_running_query_is_refused_by_name() -> None:
    group, plan = started_plan()
    group.complete(plan)
    with pytest.raises(StalePlan, match=r"Plan \(initial\) of member m1 .* last completed plan is i\.1"):
        group.acquire("")
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m1 is refused: it is completed"):
        group.start(plan)
    with pytest.raises(StalePlan, match=r"Plan i\.7 of member m1 .*\(that is i\.1\)"):
        group.start("i.7")
    group.join("m2")
    with pytest.raises(StalePlan, match=r"\(that is none\)"):
        group.start(plan, "m2")
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m2 .* last completed plan is none"):
        group.acquire(plan, "m2")


def test_an_incarnation_may_hold_dots() -> None:
    group = ShareGroup("billing")
    group.incarnation = "2026.1"
    assert group.plan_id(group.plan_id_text(7)) == 7
    assert (group.plan_id(""), group.plan_id_text(None)) == (None, "")


def successor_with_another_plan(plans: int = 1) -> tuple[GroupDriver, str, str]:
    """m1 completed i.1; its driver was given i.2 and stopped. Its successors were given others, and started none.
    The group, i.2, and the newest plan id."""
    group = GroupDriver(records=100)
    group.join()
    first = group.acquire(limit=60).plan.plan_id
    group.start(first)
    logged = newest = group.next(first).plan.plan_id
    for _ in range(plans):
        group.pass_time(SESSION_MS + 1)
        group.join("other")
        group.acquire(member="other", limit=None)
        group.pass_time(SESSION_MS + 1)
        group.join()
        newest = group.acquire(first, limit=30).plan.plan_id
    assert (first, logged) == ("i.1", "i.2") and group.group.members["m1"].newest is not None
    return group, logged, newest


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


def test_the_newest_superseded_plans_alone_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire_for_query, "SUPERSEDED_KEPT", 2)
    group, logged, _ = successor_with_another_plan(plans=3)
    with pytest.raises(StalePlan):
        group.start(logged)
    group.start("i.4")
