"""Checks whether the state topic still exists under its id. Groups of a deleted topic must not be served from memory:
no other coordinator could ever load them.

Rule: the check, and everything that follows from it, runs in this thread alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordinator.service.process.rate_limited_log import RateLimitedLog

_log = logging.getLogger(__name__)


class StateTopicWatch:
    """Calls ``look`` every ``interval_ms``, and at once after :meth:`check_soon`, until it is closed."""

    def __init__(self, look: Callable[[], None], *, interval_ms: int) -> None:
        self._look, self._interval_s = look, interval_ms / 1000
        self._rate_limited = RateLimitedLog(_log)
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="share-state-topic", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<StateTopicWatch every {self._interval_s:g} s>"

    def check_soon(self) -> None:
        """Asks for a check at once, since a store did not find the topic. Any thread may call it."""
        self._asked.set()

    def close(self, timeout_s: float) -> None:
        """Ends the thread, and waits up to ``timeout_s`` for a check that is running."""
        self._closed = True
        self._asked.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            self._asked.wait(self._interval_s)
            self._asked.clear()
            if self._closed:
                return
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - the next check does not depend on it
                self._rate_limited.warn(type(error).__name__, f"the state topic can't be checked: {error}")
