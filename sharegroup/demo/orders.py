"""The orders: numbered from 0, in one partition of the topic ``orders``, so that an order's number is its offset.

Of each thousand a few are broken, as a shop with a mistake in it may write them (BROKEN).
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from confluent_kafka import Producer

from sharegroup.demo.errors import DemoFailed

TOPIC = "orders"
PARTITION = 0
BROKEN = {
    150: '{{"order": {number}, "amount": ',
    480: '{{"order": {number}, "amount": "a lot"}}',
    810: '<order number="{number}" amount="{amount}"/>',
}
"""Number modulo 1,000 -> what stands in the place of the order."""
_FLUSH_WITHIN_S = 20.0


class Record(NamedTuple):
    """What the topic holds of an order."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...]


def is_broken(number: int) -> bool:
    """Whether the order with this number is no order that a query can read."""
    return number % 1_000 in BROKEN


def record_of(number: int) -> Record:
    """The record of the order with this number."""
    amount = 5 + number % 100
    text = json.dumps({"order": number, "amount": amount})
    if is_broken(number):
        text = BROKEN[number % 1_000].format(number=number, amount=amount)
    return Record(f"customer-{number % 97}".encode(), text.encode(), (("shop", b"web"),))


class Orders:
    """Puts orders into the topic; ``count`` of them so far."""

    def __init__(self, bootstrap_servers: str) -> None:
        # Idempotent: an order that is sent again is in the log once, so that the checks count deliveries alone.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        self._refused = 0
        self.count = 0

    def __repr__(self) -> str:
        return f"<Orders {self.count}>"

    def place(self, orders: int) -> None:
        """Put so many more into the topic; returns when the broker has them."""
        for number in range(self.count, self.count + orders):
            key, value, headers = record_of(number)
            self._producer.produce(TOPIC, value, key, PARTITION, on_delivery=self._delivered, headers=list(headers))
        self.count += orders
        if self._producer.flush(_FLUSH_WITHIN_S) or self._refused:
            raise DemoFailed(f"the orders did not all reach the embedded broker ({self._refused} refused)")

    def _delivered(self, error: Any, message: Any) -> None:
        self._refused += error is not None
