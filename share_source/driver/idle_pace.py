"""How long a request for records waits at the coordinator: longer each time while the query is idle.

Rule: Spark asks the sources of a query one after the other, so the wait becomes short again after a batch of any
source. Such a batch shows itself by a call of ``commit`` or ``partitions``, or by a late next request."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORTEST_MS = 100
"""The first request of an idle query waits this many milliseconds. Without a wait the query would do nothing but ask,
since Spark asks again at once."""
LONGEST_MS = 500
"""No request waits longer than this many milliseconds, since the query's other sources and its end wait for it."""
SOON_S = 0.1
"""A request within this many seconds of the last reply shows that Spark was idle: it pauses for 10 ms then. A batch
takes longer, if only to write its two log files."""


class IdlePace:
    """The wait of the next request, in milliseconds."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._next_ms = SHORTEST_MS
        self._answered_s = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether the last requests came in quick succession, and found nothing."""
        return self._next_ms > SHORTEST_MS

    def wait_ms(self) -> int:
        if self._now_s() - self._answered_s > SOON_S:
            self.busy()
        return self._next_ms

    def nothing(self) -> None:
        """Record a reply without records."""
        self._answered_s, self._next_ms = self._now_s(), min(2 * self._next_ms, LONGEST_MS)

    def busy(self) -> None:
        """Record a batch: the next wait is short."""
        self._next_ms = SHORTEST_MS
