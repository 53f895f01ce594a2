"""News of groups and logs: that groups have changed, or that a log has got longer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection


class News:
    """Notifies listeners of which groups have changed, and wakes the requests that wait for any news. Thread-safe."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._listeners: list[Callable[[Collection[str]], None]] = []
        self.count = 0
        """How often there were news."""

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call the listener with the groups of each change from now on. The listener must not block."""
        self._listeners.append(listener)

    def notify(self, groups: Collection[str] = ()) -> None:
        """Call the listeners, and wake all waiting requests. ``groups``: those that changed, or were loaded."""
        for listener in self._listeners:
            listener(groups)
        with self._told:
            self.count += 1
            self._told.notify_all()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until ``count`` differs from ``seen``. Returns False if it does not within that time."""
        with self._told:
            return self._told.wait_for(lambda: self.count != seen, timeout_s)
