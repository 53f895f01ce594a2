"""The clocks of a coordinator, and the detection of stalls: times in which it received nothing.

Rule: stalled time counts against no member. A process may be stopped at any point (SIGSTOP, a freezer, swap, a
suspended host, a long hold of the interpreter), and a round may take long, while members send requests."""

from __future__ import annotations

import time

LISTENS_AGAIN_MS = 250
"""Whether the process was stalled is checked at intervals of this many milliseconds, even if nothing is due: idle time
must not count as a stall, after which no group is claimed for a while."""
STALLED_MS = 500
"""A pause of up to this many milliseconds between two checks is no stall."""

# This clock runs while the process is stopped and, where the system has such a clock, while the machine is suspended.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """A monotonic time in seconds that runs on while the process is stopped."""
    return time.clock_gettime(_CLOCK)


class Clock:
    """A clock that starts at wall time and is monotonic then: stored times are wall times, and deadlines can't jump."""

    def __init__(self) -> None:
        self._anchor_s = time.time() - now_s()

    def now_ms(self) -> int:
        return int((self._anchor_s + now_s()) * 1000)


class StallDetector:
    """Measures the time between two checks of the thread that handles requests."""

    def __init__(self) -> None:
        self._looked_ms: int | None = None

    def look(self, now_ms: int) -> int:
        """Record that the thread handles requests now. Returns for how many milliseconds it was stalled since the last
        check. ``STALLED_MS`` of each pause do not count: if they did, no session would end where every round is
        slow."""
        before_ms = now_ms if self._looked_ms is None else self._looked_ms
        self._looked_ms = now_ms
        return max(0, now_ms - before_ms - STALLED_MS)
