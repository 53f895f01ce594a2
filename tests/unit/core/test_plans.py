"""◆ Plans: durable, numbered, reclaimed by whoever carries the plan id, and refused by name when they are old."""

from __future__ import annotations

import pytest

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import ForeignPlan, StalePlan
from tests.support.group_driver import (
    started_plan,
)


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
