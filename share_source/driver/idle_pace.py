"""How long a request for records waits at the coordinator: longer each time while the query is idle.

Rule: Spark asks a query's sources one after the other, so the wait is short again as soon as there was a batch, of
whatever source: Spark calls ``commit`` or ``partitions`` then, or comes back late.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST_MS = 100
"""The first request of an idle query waits this many milliseconds. Spark asks again at once, so without a wait it would
do nothing else."""
LONGEST_MS = 500
"""No request waits longer, in milliseconds: the query's other sources, and its end, wait for it."""
SOON_S = 0.1
"""A request that comes within this many seconds of the last answer shows that Spark had nothing to do: it pauses for 10
ms then. A batch takes longer, for its two log files alone."""


class IdlePace:
    """The wait of the next request, in milliseconds."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._next_ms = SHORTEST_MS
        self._answered_s = 0.0

    def __repr__(self) -> str:
        return f"<IdlePace {self._next_ms} ms>"

    @property
    def is_idle(self) -> bool:
        """Whether the last requests came soon after each other, and found nothing."""
        return self._next_ms > SHORTEST_MS

    def wait_ms(self) -> int:
        """How long a request sent now waits, in milliseconds."""
        if self._now_s() - self._answered_s > SOON_S:
            self.busy()
        return self._next_ms

    def nothing(self) -> None:
        """Record that the answer had no records."""
        self._answered_s, self._next_ms = self._now_s(), min(2 * self._next_ms, LONGEST_MS)

    def busy(self) -> None:
        """Record that there is a batch: the next wait is short."""
        self._next_ms = SHORTEST_MS
