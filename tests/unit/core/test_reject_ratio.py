"""Too many rejects stop the query (errors.deadletterqueue.max.reject.ratio)."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import TooManyRejects
from tests.support.group_driver import GroupDriver, from_snapshot
from tests.support.sink_driver import ACCEPT, DLQ, REJECT, batch, said

HALF = {**DLQ, "errors.deadletterqueue.max.reject.ratio": "0.5"}


def test_too_many_rejects_are_refused_by_name_and_nothing_is_staged() -> None:
    group, plan = batch(200, **HALF)
    with pytest.raises(TooManyRejects, match=r"group billing: 101 of the last 200 .* = 0\.5 allows"):
        group.stage(said(0, 98, ACCEPT), said(99, 199, REJECT))
    group.complete(plan)
    assert group.partition().start_offset == 200
    assert (group.group.decided, group.group.rejected) == (0, 0)


def test_as_many_rejects_as_the_ratio_are_allowed() -> None:
    group, _ = batch(200, **HALF)
    assert group.stage(said(0, 99, ACCEPT), said(100, 199, REJECT)).staged == 200


def test_a_ratio_of_few_records_does_not_count() -> None:
    group, _ = batch(200, **HALF)
    assert group.stage(said(0, 98, REJECT)).staged == 99
    with pytest.raises(TooManyRejects):
        group.stage(said(99, 99, REJECT))
    assert group.stage(said(99, 197, ACCEPT)).staged == 99, "what rejects nothing passes"
    assert (group.group.decided, group.group.rejected) == (198, 99)
    with pytest.raises(TooManyRejects):
        group.stage(said(198, 199, REJECT))


def test_the_window_outlives_a_crash_and_a_snapshot() -> None:
    group, _ = batch(200, **HALF)
    group.stage(said(0, 89, REJECT))
    group.crash()
    from_snapshot(group)
    assert (group.group.decided, group.group.rejected) == (90, 90)
    with pytest.raises(TooManyRejects):
        group.stage(said(90, 99, REJECT))


def test_old_records_leave_the_window() -> None:
    group = GroupDriver(records=100_000, **HALF)
    group.join()
    plan = group.next(limit=None).plan.plan_id
    group.start(plan)
    group.stage(said(0, 39_999, ACCEPT))
    assert group.group.decided <= 10_000
    for first in (40_000, 42_000, 44_000, 46_000):
        group.stage(said(first, first + 1_999, REJECT))
        if group.group.rejected > 0.4 * group.group.decided:
            break
    with pytest.raises(TooManyRejects):
        group.stage(said(50_000, 59_999, REJECT))


def test_the_window_is_halved_when_it_is_full() -> None:
    group = GroupDriver(records=10_001, **DLQ)
    group.join()
    group.start(group.next(limit=None).plan.plan_id)
    group.stage(said(0, 5_999, ACCEPT), said(6_000, 9_999, REJECT))
    assert (group.group.decided, group.group.rejected) == (10_000, 4_000)
    group.stage(said(10_000, 10_000, REJECT))
    assert (group.group.decided, group.group.rejected) == (5_000, 2_000)


def test_the_breaker_is_off_by_default() -> None:
    group, _ = batch(1_000, **DLQ)
    assert group.stage(said(0, 999, REJECT)).staged == 1_000
