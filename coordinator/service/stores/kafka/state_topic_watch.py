"""Looks whether the state topic is still the one that it was: groups of a topic that is gone must not be served from
memory, which nobody else will ever have.

Rule: what follows from it happens in this thread alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class StateTopicWatch:
    """Calls ``look`` every so often, and soon after :meth:`look_soon`, until it is closed."""

    def __init__(self, look: Callable[[], None], *, interval_ms: int) -> None:
        self._look, self._interval_s = look, interval_ms / 1000
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="share-state-topic", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<StateTopicWatch every {self._interval_s:g} s>"

    def look_soon(self) -> None:
        """A store has missed the topic; from any thread."""
        self._asked.set()

    def close(self, timeout_s: float) -> None:
        """Wait so long for a look that is under way."""
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
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look has nothing to do with it
                _log.warning("the state topic can't be looked at: %s", error)
