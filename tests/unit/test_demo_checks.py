"""The demo's checks: they pass on the outcome that the story promises, and the right one fails on each doctored one."""

from dataclasses import replace

import pytest

from share_source.demo.checks import Outcome, check
from share_source.demo.traces import BatchOutput, Bill, KilledBatch

BATCH = 10
KILLED = ("A", 1)

EXACTLY_ONCE = "every order is in the output exactly once"
SHARED = "both queries had a share of the partition"
TASKS = "more tasks than partitions read at a time"
MIDDLE = "the kill hit the middle of a batch"
REPLAYED = "the killed batch was replayed as it was"
COUNTS = "deliveryCount is 2 for the replayed orders"
LAG = "the group's lag is 0"
ARCHIVED = "no order was archived"


def bill(order: int, delivery_count: int = 1) -> Bill:
    return Bill(order=order, partition=0, offset=order, delivery_count=delivery_count)


def output(query: str, batch_id: int, first: int, tasks: int = 4) -> BatchOutput:
    count = 2 if (query, batch_id) == KILLED else 1
    return BatchOutput(query, batch_id, tasks, tuple(bill(order, count) for order in range(first, first + BATCH)))


def good() -> Outcome:
    """Forty orders in four batches; batch 1 of query A, orders 20 to 29, was killed when 20 to 24 were written."""
    return Outcome(
        orders=4 * BATCH,
        queries=("A", "B"),
        outputs=(output("A", 0, 0), output("A", 1, 20), output("B", 0, 10), output("B", 1, 30)),
        killed=KilledBatch(
            query="A",
            batch_id=1,
            planned=frozenset((0, offset) for offset in range(20, 30)),
            written=tuple(bill(order) for order in range(20, 25)),
            committed=False,
        ),
        lag=0,
        archived=0,
    )


def failed(outcome: Outcome) -> set[str]:
    return {each.promise for each in check(outcome) if not each.passed}


def with_bills(outcome: Outcome, query: str, batch_id: int, bills: list[Bill]) -> Outcome:
    """The outcome with other lines in one batch's output."""
    return replace(
        outcome,
        outputs=tuple(
            replace(each, bills=tuple(bills)) if (each.query, each.batch_id) == (query, batch_id) else each
            for each in outcome.outputs
        ),
    )


def bills_of(query: str, batch_id: int) -> list[Bill]:
    (found,) = (each for each in good().outputs if (each.query, each.batch_id) == (query, batch_id))
    return list(found.bills)


def test_all_pass_on_the_promised_outcome():
    assert failed(good()) == set()
    assert len(check(good())) == 8


def test_a_lost_order_is_found_and_named():
    outcome = with_bills(good(), "B", 0, bills_of("B", 0)[1:])
    assert failed(outcome) == {EXACTLY_ONCE}
    assert "lost: 10" in finding(outcome, EXACTLY_ONCE)


def test_an_order_that_is_twice_in_one_batch_is_found():
    outcome = with_bills(good(), "B", 0, [*bills_of("B", 0), bill(10)])
    assert failed(outcome) == {EXACTLY_ONCE}
    assert "more than once: 10" in finding(outcome, EXACTLY_ONCE)


def test_an_order_that_went_to_both_queries_is_found():
    assert failed(with_bills(good(), "B", 0, [*bills_of("B", 0), bill(0)])) == {EXACTLY_ONCE}


def test_an_order_that_nobody_placed_is_found():
    outcome = with_bills(good(), "B", 1, [*bills_of("B", 1), bill(40)])
    assert failed(outcome) == {EXACTLY_ONCE}
    assert "never ordered: 40" in finding(outcome, EXACTLY_ONCE)


def test_many_lost_orders_are_counted_and_not_all_named():
    text = finding(with_bills(good(), "B", 0, []), EXACTLY_ONCE)
    assert text == "lost: 10, 11, 12, 13, 14, … (10 in all)"


def test_a_query_without_a_share_is_found():
    outcome = good()
    alone = tuple(each for each in outcome.outputs if each.query == "A")
    assert SHARED in failed(replace(outcome, outputs=alone))


def test_as_many_tasks_as_partitions_are_not_enough():
    outcome = good()
    assert failed(replace(outcome, outputs=tuple(replace(each, tasks=1) for each in outcome.outputs))) == {TASKS}


def test_a_kill_that_came_after_the_commit_is_found():
    outcome = good()
    assert failed(replace(outcome, killed=replace(outcome.killed, committed=True))) == {MIDDLE}


def test_a_kill_before_the_first_order_was_written_is_found():
    outcome = good()
    assert failed(replace(outcome, killed=replace(outcome.killed, written=()))) == {MIDDLE}


@pytest.mark.parametrize(
    "bills",
    [
        pytest.param([bill(order, 2) for order in range(20, 29)], id="an order less"),
        pytest.param([bill(order, 2) for order in range(20, 31)], id="an order more"),
        pytest.param([bill(order, 2) for order in [*range(20, 29), 30]], id="another order"),
        pytest.param([bill(order, 2) for order in [*range(20, 30), 29]], id="an order twice"),
        pytest.param([], id="nothing"),
    ],
)
def test_a_replay_of_something_else_is_found(bills):
    assert REPLAYED in failed(with_bills(good(), *KILLED, bills))


def test_another_order_at_the_same_offset_is_no_replay():
    changed = [bill._replace(order=99) if bill.offset == 20 else bill for bill in bills_of(*KILLED)]
    assert REPLAYED in failed(with_bills(good(), *KILLED, changed))


def test_a_replayed_order_that_counts_as_delivered_once_is_found():
    bills = [bill._replace(delivery_count=1) if bill.order == 27 else bill for bill in bills_of(*KILLED)]
    outcome = with_bills(good(), *KILLED, bills)
    assert failed(outcome) == {COUNTS}
    assert "27" in finding(outcome, COUNTS)


def test_another_order_that_counts_as_delivered_twice_is_found():
    bills = [bill._replace(delivery_count=2) if bill.order == 10 else bill for bill in bills_of("B", 0)]
    assert failed(with_bills(good(), "B", 0, bills)) == {COUNTS}


@pytest.mark.parametrize("lag", [1, None])
def test_a_lag_that_is_not_0_or_not_known_is_found(lag):
    assert failed(replace(good(), lag=lag)) == {LAG}


def test_an_archived_order_is_found():
    assert failed(replace(good(), archived=1)) == {ARCHIVED}


def finding(outcome: Outcome, promise: str) -> str:
    (found,) = (each for each in check(outcome) if each.promise == promise)
    return found.finding
