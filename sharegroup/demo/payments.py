"""A fake payment service that is sometimes too busy, like a service that a query calls over a network.

It keeps its requests in files, which the demo reads. Rule: it gives one answer to one idempotency key. A batch that is
replayed after a crash sends the same key again, and gets the same answer."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import NamedTuple

BUSY = {70: 1, 270: 2, 470: 1, 670: 2, 870: 1}
"""Order number modulo 1,000 -> to how many keys the service answers "try again"; all other orders are paid at once."""


class Asked(NamedTuple):
    """A request to pay an order: its key, when it first came (monotonic seconds), and the answer."""

    key: str
    at_s: float
    is_paid: bool


def times_busy(order: int) -> int:
    """Returns how often the service answers "try again" for this order."""
    return BUSY.get(order % 1_000, 0)


class Payments:
    """The service. ``folder``: where it keeps the requests for the orders that it is too busy for."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def pay(self, order: int, key: str) -> bool:
        """Pay an order. Returns whether it is paid; if not, try again later with another key."""
        if not times_busy(order):
            return True
        before = self._asked(order)
        for asked in before:
            if asked.key == key:
                return asked.is_paid
        is_paid = len(before) >= times_busy(order)
        with (self._folder / str(order)).open("a", encoding="utf-8") as file:
            file.write(f"{key} {time.monotonic()} {int(is_paid)}\n")
        return is_paid

    def asked(self) -> dict[int, tuple[Asked, ...]]:
        """Returns the requests for each order that the service was too busy for, each key once, in order."""
        return {int(path.name): self._asked(int(path.name)) for path in self._folder.iterdir()}

    def _asked(self, order: int) -> tuple[Asked, ...]:
        with contextlib.suppress(FileNotFoundError):
            lines = (self._folder / str(order)).read_text(encoding="utf-8").splitlines()
            return tuple(Asked(key, float(at_s), paid == "1") for key, at_s, paid in map(str.split, lines))
        return ()
