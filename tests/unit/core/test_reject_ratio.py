"""Too many rejects stop the query (errors.deadletterqueue.max.reject.ratio): judged when a batch completes."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import TooManyRejects
from coordinator.protocol.messages import NextPlan
from coordinator.service.runtime import transactions
from tests.support.group_driver import GroupDriver, from_snapshot, ranges
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states
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


def test_as_many_rejects_as_the_ratio_are_allowed() -> None:
    group, plan = batch(200, **HALF)
    group.stage(said(0, 99, ACCEPT), said(100, 199, REJECT))
    assert group.complete(plan).too_many_rejects is None
    assert states(group) == ["[100..199] ARCHIVING 1"]
    assert window(group) == (200, 100)


def test_a_ratio_of_few_records_does_not_count() -> None:
    group, plan = batch(99, **HALF)
    group.stage(said(0, 98, REJECT))
    assert group.complete(plan).too_many_rejects is None
    plan = next_batch(group, plan, 1)
    group.stage(said(99, 99, REJECT))
    assert group.complete(plan).too_many_rejects == (100, 100)


def test_the_records_of_a_batch_count_in_any_order_and_without_rows() -> None:
    """In implicit mode a record without a row is accepted."""
    for parts in (("bad", "good"), ("good", "bad"), ("bad",)):
        group, plan = batch(1_200, **HALF)
        for part in parts:
            group.stage(said(0, 119, REJECT) if part == "bad" else said(120, 1_199, ACCEPT))
        done = group.complete(plan)
        assert (done.too_many_rejects, window(group)) == (None, (1_200, 120))


def test_released_records_are_not_decided() -> None:
    group, plan = batch(200, **HALF)
    group.stage(said(0, 59, REJECT), said(60, 109, ACCEPT), said(110, 199, RELEASE))
    assert group.complete(plan).too_many_rejects == (110, 60)
    assert states(group) == ["[0..59] AVAILABLE 1", "[60..109] ACKNOWLEDGED 1", "[110..199] AVAILABLE 1"]
    assert (run_at(group, 0).releases, run_at(group, 110).releases) == (0, 1)


def test_a_query_without_a_sink_does_not_count() -> None:
    group, plan = batch(200, **HALF)
    group.complete(plan)
    assert window(group) == (0, 0)


def test_rejects_of_the_driver_do_not_count() -> None:
    """The driver rejects what nobody can read: here all but the last ten records of a plain query's batch."""
    group, plan = batch(200, **HALF)
    group.restart(plan)
    group.stage(said(0, 189, REJECT, 2), unreadable=True, fail_on_stale=True)
    assert group.complete(plan).too_many_rejects is None
    assert states(group) == ["[0..189] ARCHIVING 2", "[190..199] ACKNOWLEDGED 2"]
    assert window(group) == (0, 0)


def test_rejects_of_the_driver_are_no_sinks_attempt() -> None:
    """Two processes die between the driver's scan and the sink; the last one's sink accepts all others."""
    group, plan = batch(10, **EXPLICIT)
    for count in (2, 3, 4):
        group.restart(plan)
        group.stage(said(0, 1, REJECT, count), unreadable=True, fail_on_stale=True)
        from_snapshot(group)
    group.stage(said(2, 9, ACCEPT, 4))
    assert group.complete(plan).outcomes == {"accepted": 8, "rejected": 2}


def test_rejects_of_the_driver_are_no_sink() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.restart(plan)
    group.stage(said(0, 1, REJECT, 2), unreadable=True)
    from_snapshot(group)
    assert group.complete(plan).undecided


def test_an_unreadable_record_is_rejected_whatever_an_earlier_attempt_said() -> None:
    group, plan = batch(2, **DLQ)
    group.stage(said(0, 1, ACCEPT))
    group.restart(plan)
    group.stage(said(0, 0, REJECT, 2), unreadable=True)
    group.stage(said(1, 1, ACCEPT, 2))
    group.complete(plan)
    assert states(group) == ["[0..0] ARCHIVING 2", "[1..1] ACKNOWLEDGED 2"]


def test_rejected_records_below_the_log_start_cannot_come_back() -> None:
    group, plan = batch(200, **HALF)
    group.stage(said(0, 199, REJECT))
    group.move_log_start(50)
    assert group.complete(plan).too_many_rejects == (150, 150)
    assert states(group) == ["[0..49] ARCHIVING 1", "[50..199] AVAILABLE 1"]


def test_the_window_outlives_a_crash_and_a_snapshot() -> None:
    group, plan = batch(90, **HALF)
    group.stage(said(0, 89, REJECT))
    group.complete(plan)
    group.crash()
    from_snapshot(group)
    group.join()
    assert window(group) == (90, 90)
    plan = next_batch(group, plan, 10)
    group.stage(said(90, 99, REJECT))
    assert group.complete(plan).too_many_rejects == (100, 100)


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


def test_the_breaker_is_off_by_default() -> None:
    group, plan = batch(1_000, **DLQ)
    group.stage(said(0, 999, REJECT))
    assert group.complete(plan).too_many_rejects is None
