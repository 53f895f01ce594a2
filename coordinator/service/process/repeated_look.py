"""Calls a function again and again, in a thread of its own, which alone does what follows from the call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from coordinator.protocol.repeated_lines import LogOnce

_log = logging.getLogger(__name__)


class RepeatedLook:
    """Calls ``look`` every ``interval_ms``, and at once after :meth:`look_soon`, until it is closed. ``at_what``: what
    it looks at, for the log line of a failure. Thread-safe."""

    def __init__(self, look: Callable[[], None], at_what: str, *, interval_ms: int) -> None:
        self._look, self._at_what, self._interval_s = look, at_what, interval_ms / 1000
        self._once = LogOnce(_log)
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"share-look {at_what}", daemon=True)
        self._thread.start()

    def look_soon(self) -> None:
        self._asked.set()

    def close(self, timeout_s: float) -> None:
        """Ends the thread, and waits up to ``timeout_s`` for a look that is running."""
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
            except Exception as error:  # noqa: BLE001 - the next look does not depend on it
                self._once.warn(type(error).__name__, f"{self._at_what} can't be checked: {error}")
