"""The demo's payment service: it is too busy for some orders, and gives one answer to one key."""

from pathlib import Path

import pytest

from sharegroup.demo.payments import BUSY, Payments

NEVER_BUSY, BUSY_ONCE, BUSY_TWICE = 71, 70, 270


@pytest.fixture
def payments(tmp_path: Path) -> Payments:
    return Payments(tmp_path)


def test_orders_paid_at_once_leave_nothing_stored(payments):
    assert payments.pay(NEVER_BUSY, "A-0")
    assert payments.asked() == {}


@pytest.mark.parametrize("order", [BUSY_ONCE, 1_000 + BUSY_ONCE, BUSY_TWICE])
def test_the_service_is_busy_for_the_number_of_keys_of_the_order(payments, order):
    answers = [payments.pay(order, f"A-{batch}") for batch in range(4)]
    assert answers.index(True) == BUSY[order % 1_000]
    assert all(answers[answers.index(True) :])


def test_a_repeated_key_gets_the_same_answer(payments):
    assert not payments.pay(BUSY_ONCE, "A-3")
    assert not payments.pay(BUSY_ONCE, "A-3")
    assert payments.pay(BUSY_ONCE, "B-7")
    assert not payments.pay(BUSY_ONCE, "A-3")
    assert payments.pay(BUSY_ONCE, "B-7")


def test_the_service_lists_each_asked_key_once(payments):
    for key in ("A-0", "A-0", "B-2"):
        payments.pay(BUSY_ONCE, key)
    first, second = payments.asked()[BUSY_ONCE]
    assert (first.key, first.is_paid, second.key, second.is_paid) == ("A-0", False, "B-2", True)
    assert first.at_s <= second.at_s
    assert payments.came_back() == 1


def test_another_process_gets_the_same_answer_for_a_key(payments, tmp_path):
    payments.pay(BUSY_TWICE, "A-0")
    assert not Payments(tmp_path).pay(BUSY_TWICE, "A-0")
    assert not Payments(tmp_path).pay(BUSY_TWICE, "A-1")
    assert payments.pay(BUSY_TWICE, "A-2")
