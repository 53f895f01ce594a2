"""The demo's parts: its checks pass on the promised outcome, and the right one fails on each doctored one; its payment
service gives one answer to one key."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sharegroup.demo.checks import Outcome, check
from sharegroup.demo.dead_letters import DeadLetter
from sharegroup.demo.group import GroupState
from sharegroup.demo.orders import is_broken, record_of
from sharegroup.demo.payments import BUSY, Asked, Payments, times_busy
from sharegroup.demo.query import Bill, KilledBatch

NEVER_BUSY, BUSY_ONCE, BUSY_TWICE, REFUSED = 71, 70, 270, 470
BROKEN, BROKEN_AND_REPLAYED, REPLAYED = 150, 480, 400
ORDERS, BATCH = 1_000, 250
LATE = {
    70: ("A-0", "B-2"),
    270: ("A-1", "B-1", "B-2"),
    470: ("A-1", "B-2"),
    670: ("B-1", "B-2", "B-3"),
    870: ("B-1", "B-2"),
}


def bill(order: int, query: str, batch_id: int, delivery_count: int = 1, task: int = 0) -> Bill:
    return Bill(query, batch_id, f"part-{task}", order, 0, order, delivery_count)


def good() -> Outcome:
    """A thousand orders in four batches, and those that came back in one more; batch 1 of query A, orders 250 to 499,
    was killed when 250 and 251 were written. It wrote its dead letter twice, and was refused the orders 270 and 470."""
    batches = {("A", 0): 0, ("A", 1): 250, ("B", 0): 500, ("B", 1): 750}
    bills = [
        bill(order, query, batch_id, 1 + ((query, batch_id) == ("A", 1)), order % 4)
        for (query, batch_id), first in batches.items()
        for order in range(first, first + BATCH)
        if not is_broken(order) and not times_busy(order)
    ]
    back = [bill(order, "B", 2, 1 + times_busy(order) + (250 <= order < 500)) for order in LATE]
    broken = [*filter(is_broken, range(ORDERS)), BROKEN_AND_REPLAYED]
    return Outcome(
        orders=ORDERS,
        queries=("A", "B"),
        bills=(*bills, *back),
        killed=KilledBatch("A", 1, frozenset((0, offset) for offset in range(250, 500)), (bill(250, "A", 1),), False),
        dead_letters=tuple(map(letter, broken)),
        asked={order: asked_at(keys, 1.0, 1.6, 2.7) for order, keys in LATE.items()},
        group=GroupState(members=2, lag=0, archived=3),
    )


def letter(order: int) -> DeadLetter:
    return DeadLetter("orders", order, f"from_json can't read {record_of(order).value.decode()}", record_of(order))


def asked_at(keys: tuple[str, ...], *times_s: float) -> tuple[Asked, ...]:
    return tuple(
        Asked(key, at_s, is_paid=key == keys[-1]) for key, at_s in zip(keys, times_s[: len(keys)], strict=True)
    )


def changed_bill(order: int, **changes: Any) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(
        outcome, bills=tuple(each._replace(**changes) if each.order == order else each for each in outcome.bills)
    )


def more_bills(*bills: Bill) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(outcome, bills=(*outcome.bills, *bills))


def without_bill(order: int) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(outcome, bills=tuple(each for each in outcome.bills if each.order != order))


def letters(change: Callable[[tuple[DeadLetter, ...]], Any]) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(outcome, dead_letters=tuple(change(outcome.dead_letters)))


def group(*state: Any) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(outcome, group=GroupState(*state))


def asked(order: int, requests: tuple[Asked, ...]) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(outcome, asked={**outcome.asked, order: requests})


def killed(**changes: Any) -> Callable[[Outcome], Outcome]:
    return lambda outcome: replace(outcome, killed=outcome.killed._replace(**changes))


def failed(outcome: Outcome) -> set[str]:
    """The first words of the promises that were broken."""
    return {" ".join(each.promise.split()[:3]) for each in check(outcome) if not each.passed}


ORDER_ONCE, DEAD_LETTERS, AGAIN = "every order is", "each broken order", "each order that"
MIDDLE, REPLAY, COUNTS = "the kill hit", "the killed batch", "deliveryCount is 1,"
LAG, ARCHIVED, SHARED, TASKS = "the group's lag", "the group archived", "both queries had", "more tasks than"


def test_all_ten_checks_pass_on_the_promised_outcome():
    assert failed(good()) == set()
    assert len(check(good())) == 10


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        pytest.param(without_bill(500), {ORDER_ONCE}, id="a lost order"),
        pytest.param(more_bills(bill(500, "B", 0)), {ORDER_ONCE}, id="an order twice in one batch"),
        pytest.param(more_bills(bill(500, "A", 0)), {ORDER_ONCE}, id="an order billed by both queries"),
        pytest.param(more_bills(bill(ORDERS, "B", 1)), {ORDER_ONCE}, id="an order that nobody placed"),
        pytest.param(more_bills(bill(BROKEN, "B", 0)), {ORDER_ONCE}, id="a bill of a dead letter"),
        pytest.param(letters(lambda found: found[1:]), {ORDER_ONCE, DEAD_LETTERS, ARCHIVED}, id="a lost dead letter"),
        pytest.param(
            letters(lambda found: (*found, letter(3))),
            {ORDER_ONCE, DEAD_LETTERS, ARCHIVED},
            id="a dead letter of a good order",
        ),
        *(
            pytest.param(letters(lambda found, other=other: (*found[1:], other)), {DEAD_LETTERS}, id=what)
            for what, other in {
                "another record": letter(BROKEN)._replace(record=record_of(3)),
                "another reason": letter(BROKEN)._replace(reason="rejected"),
            }.items()
        ),
        pytest.param(
            letters(lambda found: (*found[:-1], letter(BROKEN_AND_REPLAYED)._replace(topic="others"))),
            {DEAD_LETTERS},
            id="a second dead letter that differs",
        ),
        pytest.param(asked(BUSY_TWICE, asked_at(("B-1", "B-2"), 1.0, 1.6)), {AGAIN, REPLAY}, id="back too rarely"),
        pytest.param(asked(NEVER_BUSY, asked_at(("A-0", "B-2"), 1.0, 1.6)), {AGAIN}, id="back without a release"),
        pytest.param(asked(BUSY_ONCE, asked_at(LATE[70], 1.0, 1.3)), {AGAIN}, id="back too soon"),
        pytest.param(asked(BUSY_TWICE, asked_at(LATE[270], 1.0, 1.5, 2.2)), {AGAIN}, id="back too soon again"),
        pytest.param(
            lambda outcome: replace(outcome, bills=tuple(each._replace(task="part-0") for each in outcome.bills)),
            {TASKS},
            id="as many tasks as partitions",
        ),
        pytest.param(killed(committed=True), {MIDDLE}, id="a kill after the commit"),
        pytest.param(killed(written=()), {MIDDLE}, id="a kill before the first order was written"),
        pytest.param(killed(written=(bill(9, "A", 1),)), {REPLAY}, id="another order was written before the kill"),
        pytest.param(without_bill(REPLAYED), {ORDER_ONCE, REPLAY}, id="a replay with an order less"),
        pytest.param(changed_bill(REPLAYED, batch_id=0), {REPLAY}, id="an order in another batch"),
        pytest.param(changed_bill(REPLAYED, offset=9), {REPLAY}, id="an order at another offset"),
        pytest.param(more_bills(bill(REPLAYED, "A", 1, 2)), {ORDER_ONCE, REPLAY}, id="a replay with an order twice"),
        pytest.param(changed_bill(REFUSED, query="A", batch_id=1), {REPLAY}, id="a released order in the replay"),
        pytest.param(changed_bill(REPLAYED, delivery_count=1), {COUNTS}, id="a replayed order that counts once"),
        pytest.param(changed_bill(500, delivery_count=2), {COUNTS}, id="another order that counts twice"),
        pytest.param(changed_bill(BUSY_TWICE, delivery_count=1), {COUNTS}, id="a late order that counts once"),
        pytest.param(group(2, 1, 3), {LAG}, id="lag"),
        pytest.param(group(2, None, 3), {LAG}, id="unknown lag"),
        pytest.param(group(2, 0, 4), {ARCHIVED}, id="one more archived"),
    ],
)
def test_each_doctored_outcome_fails_its_check(change: Callable[[Outcome], Outcome], broken: set[str]):
    assert failed(change(good())) == broken


def test_a_query_without_a_share_is_found():
    alone = replace(good(), bills=tuple(good().of_query("A")))
    assert SHARED in failed(alone)


def test_many_wrong_orders_are_counted_and_not_all_named():
    finding = check(replace(good(), bills=tuple(good().of_query("A"))))[0].finding
    assert finding.endswith("; wrong: 70, 270, 470, 500, 501, … (502 in all)")


@pytest.mark.parametrize("order", [NEVER_BUSY, BUSY_ONCE, 1_000 + BUSY_ONCE, BUSY_TWICE])
def test_the_service_is_busy_for_the_number_of_keys_of_the_order(tmp_path: Path, order: int):
    answers = [Payments(tmp_path).pay(order, f"A-{batch}") for batch in range(4)]
    assert answers.index(True) == BUSY.get(order % 1_000, 0)
    assert all(answers[answers.index(True) :])


def test_a_repeated_key_gets_the_same_answer_and_is_listed_once(tmp_path: Path):
    keys = ("A-3", "A-3", "B-7", "A-3", "B-7")
    assert [Payments(tmp_path).pay(BUSY_ONCE, key) for key in keys] == [False, False, True, False, True]
    Payments(tmp_path).pay(NEVER_BUSY, "A-3")
    ((order, (first, second)),) = Payments(tmp_path).asked().items()
    assert (order, first.key, first.is_paid, second.key, second.is_paid) == (BUSY_ONCE, "A-3", False, "B-7", True)
    assert first.at_s <= second.at_s
