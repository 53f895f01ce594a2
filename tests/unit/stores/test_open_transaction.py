"""When a coordinator ends the transaction that blocks the reads of a state partition."""

from types import SimpleNamespace

import pytest

from coordinator.service.stores.kafka import hanging_transaction
from coordinator.service.stores.kafka.hanging_transaction import OpenTransaction
from coordinator.service.stores.kafka.log_reader import ReadBlocked

WRITE_TIMEOUT_S = 5
PATIENCE_S = 2 * WRITE_TIMEOUT_S + 10
"""The test waits this many seconds: Kafka ends a coordinator's transaction after the first part, and checks every ten
seconds."""


class World:
    """A partition with transactions that hang at ``open_at``, and a clock."""

    def __init__(self, patch, open_at, end):
        self.open_at, self.end, self.now_s, self.ended, self.fails = list(open_at), end, 1_000.0, [], False
        topic = SimpleNamespace(write_timeout_ms=WRITE_TIMEOUT_S * 1_000, name="state", offset=self.offset)
        patch.setattr(hanging_transaction, "now_s", lambda: self.now_s)
        patch.setattr(hanging_transaction, "end_transaction", self.end_transaction)
        patch.setattr(hanging_transaction.random, "random", lambda: 0.0)
        self.transaction = OpenTransaction(topic, 0)

    def offset(self, partition, at, *, read_committed=False):
        return min([self.end, *self.open_at]) if read_committed else self.end

    def end_transaction(self, topic, partition, offset):
        self.ended.append(offset)
        if not self.fails:
            self.open_at.remove(offset)
        return not self.fails

    def after(self, seconds):
        """The transactions that are ended then."""
        self.now_s, self.ended = self.now_s + seconds, []
        self.transaction.end_if_hanging()
        return self.ended


@pytest.fixture
def world(monkeypatch):
    """Two transactions hang, and a read to the end was blocked for a second."""
    world = World(monkeypatch, [7, 9], 12)
    world.transaction.blocked(ReadBlocked(7, 12, 1.0))
    return world


def test_transactions_are_ended_when_kafka_would_have_ended_them(world):
    assert world.after(PATIENCE_S - 1) == []
    assert world.after(0.1) == [7, 9], "the second one has been open for as long"
    assert world.transaction.offset() is None


def test_an_end_that_failed_is_tried_again_after_as_long(world):
    world.fails = True
    assert world.after(PATIENCE_S) == [7]
    assert world.after(PATIENCE_S) == []
    world.fails = False
    assert world.after(0.1) == [7, 9]


def test_a_transaction_that_ended_by_itself_is_left_alone(world):
    world.open_at.clear()
    assert world.after(1_000) == []
    world.open_at.append(11)
    assert world.after(1_000) == [], "no read was blocked by this one"


def test_nothing_is_open_where_the_log_has_lost_its_end(world):
    world.open_at.clear()
    world.end = 7
    assert world.transaction.offset() is None
    assert world.after(1_000) == []


def test_coordinators_spread_over_ten_seconds(world, monkeypatch):
    monkeypatch.setattr(hanging_transaction.random, "random", lambda: 1.0)
    other = OpenTransaction(world.transaction._topic, 0)
    other.blocked(ReadBlocked(7, 12, 1.0))
    world.now_s += PATIENCE_S + 9
    other.end_if_hanging()
    assert world.ended == []
    world.now_s += 0.1
    other.end_if_hanging()
    assert world.ended == [7, 9]
