"""The clocks of a coordinator, and how much of the time it heard nobody.

Rule: time in which nobody was heard is nobody's silence. A process may be stopped at any point (SIGSTOP, a freezer,
swap, a suspended host, a long hold of the interpreter), and a round may take long; members sent requests meanwhile.
"""

from __future__ import annotations

import time

LISTENS_AGAIN_MS = 250
"""How often the event_loop looks whether it still runs, while a session or a lock may end."""
STALLED_MS = 500
"""A look that comes so late, or earlier, counts as time in which members were heard."""

# Goes on while the process is stopped, and where the system has such a clock also while the machine is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """A monotonic time that does not stand still with the process."""
    return time.clock_gettime(_CLOCK)


class Clock:
    """Wall time at the start, monotonic from there: durable times are wall times, and deadlines can't jump."""

    def __init__(self) -> None:
        self._anchor_s = time.time() - now_s()

    def now_ms(self) -> int:
        return int((self._anchor_s + now_s()) * 1000)


class StallDetector:
    """Measures the time between two looks of the one who listens."""

    def __init__(self) -> None:
        self._looked_ms: int | None = None

    def look(self, now_ms: int) -> int:
        """Somebody listens now. Returns for how many ms nobody did, since the last look: all but ``STALLED_MS``, so
        that time passes for those who are gone also where every round is slow."""
        before_ms = now_ms if self._looked_ms is None else self._looked_ms
        self._looked_ms = now_ms
        return max(0, now_ms - before_ms - STALLED_MS)
