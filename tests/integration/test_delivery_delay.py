"""share.delivery.delay.ms on a broker: by its time index, no record is delivered before it is old enough."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from sharegroup import ShareConsumer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000


class Delayed:
    """A topic whose records are delivered after an hour, and a ShareConsumer of it."""

    def __init__(self, bootstrap: str, orders: str, group: str, **config: str) -> None:
        self._producer, self._orders = Producer({"bootstrap.servers": bootstrap}), orders
        delay = {"share.delivery.delay.ms": HOUR_MS, "share.auto.offset.reset": "earliest"}
        self.consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **delay, **config})
        self.consumer.subscribe([orders])
        self.got: list[int] = []

    def produce(self, *ages_ms: int) -> None:
        now_ms, refused = int(time.time() * 1000), []
        for age_ms in ages_ms:
            self._producer.produce(
                self._orders,
                b"x",
                partition=0,
                timestamp=now_ms - age_ms,
                on_delivery=lambda error, _: refused.append(error),
            )
        self._producer.flush()
        assert not any(refused), refused

    def polled(self, seconds: float = 0.5) -> list[int]:
        self.got += [message.offset() for message in self.consumer.poll(seconds)]
        return self.got


@pytest.fixture
def delayed(kafka, topic, unique) -> Iterator[Delayed]:
    # Since Kafka 4.0 a broker refuses records that are more than an hour ahead of it, unless the topic says otherwise.
    orders = topic("orders", message_timestamp_after_max_ms=2**62)
    world = Delayed(kafka.bootstrap, orders, unique("group"))
    yield world
    world.consumer.close()


def test_a_record_is_delivered_once_it_is_old_enough(delayed):
    delayed.produce(HOUR_MS + 60_000, HOUR_MS - 3_000, 0)
    wait_until(lambda: delayed.polled() == [0, 1], what="the old one, and the one that becomes old enough")
    assert delayed.polled(1.5) == [0, 1], "the last one is not"


@pytest.mark.parametrize(
    ("ages_ms", "delivered"),
    [
        pytest.param((2 * HOUR_MS, 0, 2 * HOUR_MS), [0], id="an old record behind a young one waits for that one"),
        pytest.param((2 * HOUR_MS, -HOUR_MS, 2 * HOUR_MS), [0], id="so it does behind a record of the future"),
        pytest.param((2 * HOUR_MS, -(10**15)), [0], id="a timestamp in microseconds is far in the future"),
        pytest.param((2 * HOUR_MS, 2 * HOUR_MS, 0), [0, 1], id="records of the same age are delivered together"),
    ],
)
def test_timestamps_out_of_order_deliver_nothing_early(delayed, ages_ms, delivered):
    delayed.produce(*ages_ms)
    wait_until(lambda: delayed.polled() == delivered, what="what is old enough")
    assert delayed.polled(1.5) == delivered
