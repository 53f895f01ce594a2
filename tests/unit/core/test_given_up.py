"""Records that are given up at the delivery limit are counted by their reason, and an answer names some of them."""

from __future__ import annotations

import pytest

from coordinator.core.failed_deliveries import SAMPLE
from coordinator.protocol.messages import DescribeGroup, GivenUp, GroupDescription
from tests.support.group_driver import GroupDriver, from_snapshot
from tests.support.sink_driver import DLQ, EXPLICIT, RELEASE, batch, said

LIMIT_OF_TWO = {"share.delivery.count.limit": "2"}


def archived(group: GroupDriver) -> dict[str, int]:
    description = group.run(DescribeGroup(group_id="billing"))
    assert isinstance(description, GroupDescription)
    return description.partitions[0].archived


def second_delivery(**configs: str) -> tuple[GroupDriver, str]:
    """Ten records that m1's sink has left undecided once are delivered again, for the last time."""
    group, plan = batch(10, **EXPLICIT, **LIMIT_OF_TWO, **configs)
    group.silent()
    group.complete(plan)
    plan = group.acquire(plan).plan.plan_id
    group.start(plan)
    group.silent()
    return group, plan


def test_a_completion_names_the_records_that_no_sink_decided_at_the_limit() -> None:
    group, plan = second_delivery()
    done = group.complete(plan)
    assert done.given_up == (GivenUp(disposition="undecided", count=10, sample=(("orders", 0, 0, 9),)),)
    assert group.complete(plan).given_up == (), "asked again, it gives nothing up"


def test_an_answer_counts_all_records_and_names_the_first_ranges() -> None:
    group, plan = batch(60, **LIMIT_OF_TWO)
    released = range(0, 2 * (SAMPLE + 1), 2)
    group.stage(*(said(offset, offset, RELEASE) for offset in released))
    group.complete(plan)
    plan = group.acquire(plan).plan.plan_id
    group.start(plan)
    group.stage(*(said(offset, offset, RELEASE, 2) for offset in released))
    (given_up,) = group.complete(plan).given_up
    assert (given_up.disposition, given_up.count) == ("delivery_limit", SAMPLE + 1)
    assert given_up.sample == tuple(("orders", 0, offset, offset) for offset in released[:SAMPLE])


@pytest.mark.parametrize("configs", [{}, DLQ])
def test_the_count_by_reason_outlives_a_crash_and_a_snapshot(configs: dict[str, str]) -> None:
    group, plan = second_delivery(**configs)
    group.complete(plan)
    if configs:
        assert archived(group) == {}, "they are ARCHIVING until their dead letters are written"
        group.file(0, 9, count=2)
    group.crash()
    assert archived(group) == {"undecided": 10}
    from_snapshot(group)
    assert archived(group) == {"undecided": 10}
