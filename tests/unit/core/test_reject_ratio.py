"""Too many rejects stop the query (errors.deadletterqueue.max.reject.ratio): judged when a batch completes."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import TooManyRejects
from coordinator.protocol.messages import NextPlan
from coordinator.service.runtime import transactions
from tests.support.group_driver import GroupDriver, ranges
from tests.support.sink_driver import ACCEPT, DLQ, REJECT, batch, run_at, said, states
from tests.support.source_driver import facts, run_transaction

HALF = {**DLQ, "errors.deadletterqueue.max.reject.ratio": "0.5"}


def next_batch(group: GroupDriver, plan: str, records: int) -> str:
    """The batch is completed, and m1 has started the next one."""
    group.ends[0] += records
    plan = group.next(plan, limit=records).plan.plan_id
    group.start(plan)
    return plan


def window(group: GroupDriver) -> tuple[int, int]:
    return group.group.decided, group.group.rejected


def test_too_many_rejects_end_the_query_and_go_back_as_they_were() -> None:
    """The batch is in Spark's log, and its accepted records are in the output: they stay accepted."""
    group, plan = batch(200, **HALF)
    group.stage(said(0, 98, ACCEPT), said(99, 199, REJECT, dead_letter=True))
    asked = NextPlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan)
    with pytest.raises(TooManyRejects, match=r"group billing: 101 of the last 200 .* = 0\.5 allows"):
        run_transaction(group, transactions.next_plan(asked, facts(group)))
    assert states(group) == ["[99..199] AVAILABLE 1"]
    assert (run_at(group, 99).tries, window(group)) == (0, (99, 0))
    group.join()
    again = group.acquire(plan)
    assert ranges(again) == [(99, 199, 2)], "the query's next start"
    group.start(again.plan.plan_id)
    group.stage(said(99, 199, ACCEPT, 2))
    assert group.complete(again.plan.plan_id).too_many_rejects is None
    assert group.partition().start_offset == 200


@pytest.mark.parametrize(
    ("accepted", "rejected", "too_many"),
    [(100, 100, None), (99, 101, (200, 101)), (0, 99, None), (0, 100, (100, 100))],
    ids=["as many as the ratio", "one more", "of few records", "of a hundred"],
)
def test_rejects_above_the_ratio_of_a_hundred_records_are_too_many(
    accepted: int, rejected: int, too_many: tuple[int, int] | None
) -> None:
    group, plan = batch(accepted + rejected, **HALF)
    group.stage(said(accepted, accepted + rejected - 1, REJECT))
    assert group.complete(plan).too_many_rejects == too_many


def test_the_records_of_a_batch_count_in_any_order_and_without_rows() -> None:
    """In implicit mode a record without a row is accepted."""
    for parts in (("bad", "good"), ("good", "bad"), ("bad",)):
        group, plan = batch(1_200, **HALF)
        for part in parts:
            group.stage(said(0, 119, REJECT) if part == "bad" else said(120, 1_199, ACCEPT))
        done = group.complete(plan)
        assert (done.too_many_rejects, window(group)) == (None, (1_200, 120))


def test_the_window_is_halved_when_it_is_full() -> None:
    group = GroupDriver(records=10_000, **DLQ)
    group.join()
    plan = group.next(limit=None).plan.plan_id
    group.start(plan)
    group.stage(said(0, 5_999, ACCEPT), said(6_000, 9_999, REJECT))
    plan = next_batch(group, plan, 1)
    assert window(group) == (10_000, 4_000)
    group.stage(said(10_000, 10_000, REJECT))
    group.complete(plan)
    assert window(group) == (5_000, 2_000)
