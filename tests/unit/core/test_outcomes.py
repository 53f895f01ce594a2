"""A sink's outcomes take effect when the plan completes: accept, release with its delay, reject."""

from __future__ import annotations

from tests.support.group_driver import UNSET, acknowledged, fetched, ranges
from tests.support.sink_driver import RELEASE, batch, run_at, said


def test_by_default_a_querys_releases_wait_and_a_share_consumers_do_not() -> None:
    """A service is away for a minute: no record has used up its tries by then, with batches on end."""
    group, plan = batch(2, **UNSET)
    group.stage(said(0, 1, RELEASE))
    group.complete(plan)
    assert group.acquire(plan).plan.plan_id == ""
    waits_ms = (run_at(group, 0).not_before_ms or 0) - group.now_ms
    assert 8_000 <= waits_ms <= 12_000
    group.join("c1", query=False)
    group.pass_time(waits_ms)
    assert fetched(group, 10) == [(0, 1, 2)]
    assert acknowledged(group, 0, 1, 2, RELEASE) == {}
    assert fetched(group, 10) == [(0, 1, 3)], "as in Kafka"


def test_a_run_that_began_before_a_release_does_not_get_the_record() -> None:
    group, plan = batch(2)
    group.pass_time(1)
    began_ms = group.now_ms
    group.stage(said(0, 1, RELEASE))
    group.complete(plan)
    assert group.acquire(plan, began_ms=began_ms).plan.plan_id == "", "released at the moment at which it began"
    group.pass_time(10_000)
    assert group.acquire(plan, began_ms=began_ms).plan.plan_id == ""
    assert ranges(group.acquire(plan, began_ms=group.now_ms)) == [(0, 1, 2)]
