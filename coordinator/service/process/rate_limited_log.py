"""A log with a rate limit: each kind of event has one line a minute, with the count of those that were skipped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

INTERVAL_S = 60.0
"""Two lines of one kind are at least this many seconds apart."""
MOST_KINDS = 1_000
"""Up to this many kinds are remembered: kinds name groups and clients, and there may be any number of these."""


class RateLimitedLog:
    """Logs warnings by kind. Thread-safe. Beyond MOST_KINDS the kind that was logged longest ago is forgotten."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log the message, or count it if its kind was logged within the last INTERVAL_S."""
        now = self._clock()
        with self._lock:
            last, unsaid = self._said.get(kind, (now - INTERVAL_S, 0))
            if now - last < INTERVAL_S:
                self._said[kind] = (last, unsaid + 1)
                return
            self._said.pop(kind, None)
            self._said[kind] = (now, 0)
            if len(self._said) > MOST_KINDS:
                del self._said[next(iter(self._said))]
        self._log.warning("%s%s", message, f" (and {unsaid} more of this kind since the last line)" if unsaid else "")
