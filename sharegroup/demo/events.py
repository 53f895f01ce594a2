"""Tells what happened to two orders: the first that becomes a dead letter, and the first that is delivered again.

Rule: each event is told once, as soon as it is visible; the story does not wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.markup import escape

from sharegroup.demo.checks import key_of
from sharegroup.demo.dead_letters import TOPIC, DeadLetters
from sharegroup.demo.payments import Payments
from sharegroup.demo.query import Query
from sharegroup.demo.screen import Screen
from sharegroup.demo.traces import Bill


class OrderEvents:
    """Tells the events on the screen."""

    def __init__(self, screen: Screen, queries: Sequence[Query], dead_letters: DeadLetters, payments: Payments) -> None:
        self._screen = screen
        self._queries = queries
        self._dead_letters = dead_letters
        self._payments = payments
        self._pending = [self._dead, self._back]

    def __repr__(self) -> str:
        return f"<OrderEvents pending={len(self._pending)}>"

    def tell(self) -> None:
        """Tell the events that became visible since the last call."""
        for event in tuple(self._pending):
            if text := event():
                self._screen.say(text)
                self._pending.remove(event)

    def _dead(self) -> str:
        for dead_letter in self._dead_letters.look():
            return (
                f"Order {dead_letter.order} is broken JSON, so its query [bold]rejects[/] it. It is in the dead letter "
                f"topic [bold]{TOPIC}[/] now, with the reason: {escape(dead_letter.reason)}"
            )
        return ""

    def _back(self) -> str:
        for bill, wait_s in self._billed_late():
            return (
                f'Order {bill.order} was delivered again: the payment service had answered "try again", and its query '
                f"had [bold]released[/] it, with a backoff. It came after {math.floor(wait_s * 10) / 10} s, with "
                f"deliveryCount {bill.delivery_count}, and is billed."
            )
        return ""

    def _billed_late(self) -> Iterator[tuple[Bill, float]]:
        """Orders that were paid after a release, in batches that are done, and how long they waited, in seconds."""
        for order, asked in self._payments.asked().items():
            if len(asked) > 1 and asked[-1].is_paid:
                bill = self._bill(order, asked[-1].key)
                if bill is not None:
                    yield bill, asked[-1].at_s - asked[-2].at_s

    def _bill(self, order: int, key: str) -> Bill | None:
        for query in self._queries:
            for batch_id in query.traces.committed():
                if key_of(query.name, batch_id) == key:
                    return query.traces.bill(batch_id, order)
        return None
