"""How long a request for records waits at the coordinator: longer and longer while the query does nothing but ask.

Rule: Spark asks a query's sources one after the other, so the wait is short again as soon as there was a batch, of
whatever source: Spark calls ``commit`` or ``partitions`` then, or comes back late.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST_MS = 100
"""Milliseconds of the first wait. Spark asks again at once: without a wait it would do nothing else."""
LONGEST_MS = 500
"""Milliseconds of the longest wait: so long may the query's other sources, and its end, wait for ours."""
SOON_S = 0.1
"""Seconds within which Spark asks again if there was nothing to do for it; it pauses for 10 ms. A batch takes longer,
for its two log files alone."""


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
        """The milliseconds that a request waits which is sent now."""
        if self._now_s() - self._answered_s > SOON_S:
            self.busy()
        return self._next_ms

    def nothing(self) -> None:
        """Note that the request's answer has no records."""
        self._answered_s, self._next_ms = self._now_s(), min(2 * self._next_ms, LONGEST_MS)

    def busy(self) -> None:
        """Note that there is a batch: the next wait is short."""
        self._next_ms = SHORTEST_MS
