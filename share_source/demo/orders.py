"""The orders: numbered from 0, in one partition of the topic ``orders``."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from share_source.demo.errors import DemoFailed

TOPIC = "orders"
PARTITION = 0
_FLUSH_WITHIN_S = 20.0


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
            order = {"order": number, "amount": 5 + number % 100}
            self._producer.produce(TOPIC, json.dumps(order), partition=PARTITION, on_delivery=self._delivered)
        self.count += orders
        if self._producer.flush(_FLUSH_WITHIN_S) or self._refused:
            raise DemoFailed(f"the orders did not all reach the embedded broker ({self._refused} refused)")

    def _delivered(self, error: Any, message: Any) -> None:
        self._refused += error is not None
