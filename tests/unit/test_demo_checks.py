"""The demo's checks: they pass on the outcome that the story promises, and the right one fails on each doctored one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sharegroup.demo.checks import Outcome, check
from sharegroup.demo.dead_letters import DeadLetter
from sharegroup.demo.orders import Record
from sharegroup.demo.payments import Asked
from sharegroup.demo.traces import BatchOutput, Bill, KilledBatch

BATCH = 10
KILLED = ("A", 1)
BROKEN = 14
BROKEN_AND_REPLAYED = 22
BUSY = 17
BUSY_AND_REPLAYED = 28
IN_REPLAY = [order for order in range(20, 30) if order not in (BROKEN_AND_REPLAYED, BUSY_AND_REPLAYED)]

BILLED_OR_DEAD = "every order is billed once, or is a dead letter; none is both, none is lost"
SHARED = "both queries had a share of the partition"
TASKS = "more tasks than partitions read at a time"
DEAD_LETTERS = "each broken order is in the dead letter topic as it was, with its reason"
AGAIN = "each order that was to be tried again came back, after its backoff"
MIDDLE = "the kill hit the middle of a batch"
REPLAYED = "the killed batch was replayed as it was"
COUNTS = 'deliveryCount is 1, and 1 more for the replay and for each "try again"'
LAG = "the group's lag is 0"
ARCHIVED = "the group archived the dead letters, and nothing else"


def bill(order: int, delivery_count: int = 1) -> Bill:
    return Bill(order=order, partition=0, offset=order, delivery_count=delivery_count)


def output(query: str, batch_id: int, first: int, back: tuple[Bill, ...] = (), tasks: int = 4) -> BatchOutput:
    """Ten orders, less those that were rejected or released in it, and those that had come back."""
    count = 2 if (query, batch_id) == KILLED else 1
    not_billed = (BROKEN, BROKEN_AND_REPLAYED, BUSY, BUSY_AND_REPLAYED)
    bills = tuple(bill(order, count) for order in range(first, first + BATCH) if order not in not_billed)
    return BatchOutput(query, batch_id, tasks, bills + back)


def record(order: int) -> Record:
    return Record(b"customer", b'{"order": %d' % order, (("shop", b"web"),))


def letter(order: int, delivery_count: int = 1) -> DeadLetter:
    reason = f"from_json can't read {record(order).value.decode()}"
    return DeadLetter("orders", order, delivery_count, reason, record(order))


def good() -> Outcome:
    """Forty orders in four batches; batch 1 of query A, orders 20 to 29, was killed when 20 and 21 were written.

    Of the broken ones, one was in the killed batch, which wrote its dead letter twice. Of those that were told to try
    again, one was told so twice, and one was in the killed batch.
    """
    return Outcome(
        orders=4 * BATCH,
        broken={BROKEN: record(BROKEN), BROKEN_AND_REPLAYED: record(BROKEN_AND_REPLAYED)},
        busy={BUSY: 2, BUSY_AND_REPLAYED: 1},
        queries=("A", "B"),
        outputs=(
            output("A", 0, 0),
            output("A", 1, 20),
            output("B", 0, 10),
            output("B", 1, 30, back=(bill(BUSY_AND_REPLAYED, 3),)),
            BatchOutput("B", 2, 1, (bill(BUSY, 3),)),
        ),
        killed=KilledBatch(
            query="A",
            batch_id=1,
            planned=frozenset((0, offset) for offset in range(20, 30)),
            written=tuple(bill(order) for order in range(20, 22)),
            committed=False,
        ),
        dead_letters=(letter(BROKEN), letter(BROKEN_AND_REPLAYED), letter(BROKEN_AND_REPLAYED, 2)),
        asked={
            BUSY: (Asked("B-0", 1.0, False), Asked("B-1", 1.6, False), Asked("B-2", 2.7, True)),
            BUSY_AND_REPLAYED: (Asked("A-1", 3.0, False), Asked("B-1", 3.5, True)),
        },
        lag=0,
        archived=2,
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


def with_asked(outcome: Outcome, order: int, asked: tuple[Asked, ...]) -> Outcome:
    """The outcome where the payment service heard something else of an order."""
    return replace(outcome, asked={**outcome.asked, order: asked})


def test_all_pass_on_the_promised_outcome():
    assert failed(good()) == set()
    assert len(check(good())) == 10


def test_a_lost_order_is_found_and_named():
    outcome = with_bills(good(), "B", 0, bills_of("B", 0)[1:])
    assert failed(outcome) == {BILLED_OR_DEAD}
    assert "lost: 10" in finding(outcome, BILLED_OR_DEAD)


def test_an_order_that_is_twice_in_one_batch_is_found():
    outcome = with_bills(good(), "B", 0, [*bills_of("B", 0), bill(10)])
    assert failed(outcome) == {BILLED_OR_DEAD}
    assert "billed more than once: 10" in finding(outcome, BILLED_OR_DEAD)


def test_an_order_that_went_to_both_queries_is_found():
    assert failed(with_bills(good(), "B", 0, [*bills_of("B", 0), bill(0)])) == {BILLED_OR_DEAD}


def test_an_order_that_was_never_placed_is_found():
    outcome = with_bills(good(), "B", 1, [*bills_of("B", 1), bill(40)])
    assert failed(outcome) == {BILLED_OR_DEAD}
    assert "never ordered: 40" in finding(outcome, BILLED_OR_DEAD)


def test_many_lost_orders_are_counted_and_not_all_named():
    text = finding(with_bills(good(), "B", 0, []), BILLED_OR_DEAD)
    assert text == "lost: 10, 11, 12, 13, 15, … (8 in all)"


def test_an_order_that_is_billed_and_a_dead_letter_is_found():
    outcome = with_bills(good(), "B", 0, [*bills_of("B", 0), bill(BROKEN)])
    assert failed(outcome) == {BILLED_OR_DEAD}
    assert f"both: {BROKEN}" in finding(outcome, BILLED_OR_DEAD)


def test_an_order_that_is_neither_billed_nor_a_dead_letter_is_lost():
    outcome = replace(good(), dead_letters=good().dead_letters[1:], archived=1)
    assert failed(outcome) == {BILLED_OR_DEAD, DEAD_LETTERS}
    assert f"lost: {BROKEN}" in finding(outcome, BILLED_OR_DEAD)
    assert f"no dead letter: {BROKEN}" in finding(outcome, DEAD_LETTERS)


def test_a_dead_letter_of_a_good_order_is_found():
    outcome = replace(good(), dead_letters=(*good().dead_letters, letter(3)), archived=3)
    assert failed(outcome) == {BILLED_OR_DEAD, DEAD_LETTERS}
    assert "not broken: 3" in finding(outcome, DEAD_LETTERS)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda record: record._replace(key=None), id="its key"),
        pytest.param(lambda record: record._replace(value=b"{}"), id="its value"),
        pytest.param(lambda record: record._replace(headers=()), id="its headers"),
    ],
)
def test_a_dead_letter_that_is_not_the_original_is_found(change: Callable[[Record], Record]):
    changed = letter(BROKEN)._replace(record=change(record(BROKEN)))
    outcome = replace(good(), dead_letters=(changed, *good().dead_letters[1:]))
    assert failed(outcome) == {DEAD_LETTERS}
    assert f"not as it was: {BROKEN}" in finding(outcome, DEAD_LETTERS)


def test_a_second_dead_letter_of_an_order_has_to_be_right_too():
    changed = letter(BROKEN_AND_REPLAYED)._replace(topic="others")
    assert failed(replace(good(), dead_letters=(*good().dead_letters, changed))) == {DEAD_LETTERS}


def test_a_dead_letter_with_another_reason_is_found():
    changed = letter(BROKEN)._replace(reason="Offset rejected by client.")
    outcome = replace(good(), dead_letters=(changed, *good().dead_letters[1:]))
    assert failed(outcome) == {DEAD_LETTERS}
    assert f"without its reason: {BROKEN}" in finding(outcome, DEAD_LETTERS)


def test_an_order_that_did_not_come_back_is_found():
    outcome = with_asked(good(), BUSY, good().asked[BUSY][:2])
    assert failed(outcome) == {AGAIN}
    assert f"not asked again: {BUSY}" in finding(outcome, AGAIN)


def test_an_order_that_came_back_too_often_is_found():
    outcome = with_asked(good(), BUSY, (*good().asked[BUSY], Asked("B-3", 9.0, True)))
    assert failed(outcome) == {AGAIN}


@pytest.mark.parametrize(
    ("first_s", "second_s"), [pytest.param(0.3, 1.1, id="the first time"), pytest.param(0.5, 0.7, id="the second time")]
)
def test_an_order_that_came_back_before_its_backoff_was_over_is_found(first_s: float, second_s: float):
    times = (1.0, 1.0 + first_s, 1.0 + first_s + second_s)
    asked = tuple(each._replace(at_s=at_s) for each, at_s in zip(good().asked[BUSY], times, strict=True))
    outcome = with_asked(good(), BUSY, asked)
    assert failed(outcome) == {AGAIN}
    assert f"too soon: {BUSY}" in finding(outcome, AGAIN)


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
        pytest.param([bill(order, 2) for order in IN_REPLAY[:-1]], id="an order less"),
        pytest.param([bill(order, 2) for order in [*IN_REPLAY, 30]], id="an order more"),
        pytest.param([bill(order, 2) for order in [*IN_REPLAY[:-1], 30]], id="another order"),
        pytest.param([bill(order, 2) for order in [*IN_REPLAY, 29]], id="an order twice"),
        pytest.param([bill(order, 2) for order in [*IN_REPLAY, BROKEN_AND_REPLAYED]], id="a rejected order"),
        pytest.param([bill(order, 2) for order in [*IN_REPLAY, BUSY_AND_REPLAYED]], id="a released order"),
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


def test_an_order_that_came_back_and_counts_as_delivered_once_is_found():
    assert failed(with_bills(good(), "B", 2, [bill(BUSY)])) == {COUNTS}


@pytest.mark.parametrize("lag", [1, None])
def test_a_lag_that_is_not_0_or_not_known_is_found(lag):
    assert failed(replace(good(), lag=lag)) == {LAG}


@pytest.mark.parametrize("archived", [1, 3])
def test_an_archived_order_without_a_dead_letter_is_found_and_vice_versa(archived: int):
    assert failed(replace(good(), archived=archived)) == {ARCHIVED}


def finding(outcome: Outcome, promise: str) -> str:
    (found,) = (each for each in check(outcome) if each.promise == promise)
    return found.finding
