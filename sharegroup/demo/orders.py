"""The orders: numbered from 0, in one partition of the topic ``orders``, so that an order's number is its offset.

A few of each thousand are broken, as a faulty shop may write them (BROKEN)."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from confluent_kafka import Producer

from sharegroup.demo.processes import DemoFailed

TOPIC = "orders"
PARTITION = 0
BROKEN = {
    150: '{{"order": {number}, "amount": ',
    480: '{{"order": {number}, "amount": "a lot"}}',
    810: '<order number="{number}" amount="{amount}"/>',
}
"""Order number modulo 1,000 -> the text in place of the order."""
_FLUSH_WITHIN_S = 20.0
_BY_KEY = -1
"""librdkafka's number for a partition that the record's key decides."""


class Record(NamedTuple):
    """The Kafka record of an order."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


def is_broken(number: int) -> bool:
    """Whether the order with this number is broken, so that no query can read it."""
    return number % 1_000 in BROKEN


def record_of(number: int) -> Record:
    """Returns the record of the order with this number."""
    amount = 5 + number % 100
    text = json.dumps({"order": number, "amount": amount})
    if is_broken(number):
        text = BROKEN[number % 1_000].format(number=number, amount=amount)
    return Record(f"customer-{number % 97}".encode(), text.encode(), (("shop", b"web"),))


class Orders:
    """Puts orders into the topic; ``count`` of them so far. ``partition`` None: each order's key decides."""

    def __init__(self, bootstrap_servers: str, partition: int | None = PARTITION) -> None:
        # Idempotent: an order that is sent twice is in the log once, so the checks count deliveries only.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._partition = _BY_KEY if partition is None else partition
        self._refused = 0
        self.count = 0

    def __repr__(self) -> str:
        return f"<Orders {self.count}>"

    def place(self, orders: int) -> None:
        """Put this many more orders into the topic; returns when the broker has them. Raises DemoFailed if the broker
        did not take them all."""
        for number in range(self.count, self.count + orders):
            key, value, headers = record_of(number)
            self._producer.produce(
                TOPIC, value, key, self._partition, on_delivery=self._delivered, headers=list(headers)
            )
        self.count += orders
        if self._producer.flush(_FLUSH_WITHIN_S) or self._refused:
            raise DemoFailed(f"the orders did not all reach the embedded broker ({self._refused} refused)")

    def _delivered(self, error: Any, message: Any) -> None:
        self._refused += error is not None
