"""A log in which a flood is one line: each kind of event at most once a minute, with how many more there were."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

INTERVAL_S = 60.0
MOST_KINDS = 1_000
"""Kinds name groups and clients, of which there may be any number."""


class RateLimitedLog:
    """Thread-safe. Of more than MOST_KINDS the one that was logged longest ago is forgotten."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}

    def say(self, kind: str, message: str) -> None:
        """Log it, unless its kind was logged within the last minute: then it is counted."""
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
