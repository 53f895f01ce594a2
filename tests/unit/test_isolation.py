"""Poison isolation: the slices, and that nobody waits for ever."""

from __future__ import annotations

import pytest

from coordinator.core.isolation import integer_root, slice_size, solo_backoff_ms
from tests.support.group_driver import GroupDriver, ranges


def test_the_slices_of_the_default_limit() -> None:
    assert [slice_size(c, 5, 100_000) for c in range(1, 7)] == [None, None, 2_154, 46, 1, 1]


def test_a_limit_of_two_has_no_slices() -> None:
    assert [slice_size(c, 2, 100_000) for c in (1, 2, 3)] == [None, None, None]


@pytest.mark.parametrize("limit", range(3, 11))
def test_slices_shrink_to_one(limit: int) -> None:
    sizes = [size for c in range(1, limit + 1) if (size := slice_size(c, limit, 100_000)) is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1


def test_roots_are_exact() -> None:
    assert integer_root(10**30, 3) == 10**10
    assert integer_root(10**30 - 1, 3) == 10**10 - 1


def test_backoff_doubles_up_to_thirty_seconds() -> None:
    assert [solo_backoff_ms(failures, 5) // 1_000 for failures in (6, 7, 8, 9, 10, 11, 99)] == [1, 2, 4, 8, 16, 30, 30]


def test_what_was_set_aside_is_delivered_in_a_stream_that_never_rests() -> None:
    group = GroupDriver(records=1_000_000, **{"share.delivery.count.limit": "2"})
    group.join()
    plan = group.next(limit=3).plan.plan_id
    group.use(plan)
    for _ in range(3):
        group.restart(plan)
    assert group.dump() == ["[0..2] AVAILABLE 2 2 -"], "the whole batch is set aside"
    alone = set()
    for _ in range(10):
        taken = group.next(plan, limit=100)
        plan = taken.plan.plan_id
        group.use(plan)
        if ranges(taken)[0][0] < 3:
            assert ranges(taken)[0][0] == ranges(taken)[0][1]
            alone.add(ranges(taken)[0][0])
    assert alone == {0, 1, 2}
    assert group.partition().end_offset > 300, "and the others go on meanwhile"
