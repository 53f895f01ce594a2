"""A payment service that is too busy at times, as those that a query calls over a network are.

It stands in files, so that the demo can look at what it was asked. Rule: to one key it gives one answer (an idempotency
key, as such services have it): a batch that is replayed after a crash asks with the key that it had, and hears what it
heard before.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

BUSY = {70: 1, 270: 2, 470: 1, 670: 2, 870: 1}
"""Number of an order modulo 1,000 -> how many keys hear "try again" before it is paid; all others are paid at once."""


class Asked(NamedTuple):
    """A question about an order: the key that came with it, when it first came (monotonic seconds), the answer."""

    key: str
    at_s: float
    is_paid: bool


def times_busy(order: int) -> int:
    """How often "try again" is the answer for this order."""
    return BUSY.get(order % 1_000, 0)


class Payments:
    """The service. ``folder`` keeps what it was asked about the orders that it was too busy for."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def __repr__(self) -> str:
        return f"<Payments {self._folder}>"

    def pay(self, order: int, key: str) -> bool:
        """Whether the order is paid; False: try again later, with another key."""
        busy = times_busy(order)
        if not busy:
            return True
        before = self._asked(order)
        for asked in before:
            if asked.key == key:
                return asked.is_paid
        is_paid = len(before) >= busy
        with (self._folder / str(order)).open("a", encoding="utf-8") as file:
            file.write(f"{key} {time.monotonic()} {int(is_paid)}\n")
        return is_paid

    def asked(self) -> dict[int, tuple[Asked, ...]]:
        """What was asked about each of the orders that it was too busy for, each key once, in order."""
        return {int(path.name): self._asked(int(path.name)) for path in self._folder.iterdir()}

    def came_back(self) -> int:
        """How many orders it was asked about again."""
        return sum(len(asked) > 1 for asked in self.asked().values())

    def _asked(self, order: int) -> tuple[Asked, ...]:
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / str(order)).read_text(encoding="utf-8").splitlines()
            return tuple(Asked(key, float(at_s), paid == "1") for key, at_s, paid in map(str.split, lines))
        return ()
