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

    def __repr__(self) -> str:
        return f"<News {self.count}>"

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Calls the listener with the groups of each change from now on; it must not block."""
        self._listeners.append(listener)

    def notify(self, groups: Collection[str] = ()) -> None:
        """Calls the listeners, and wakes all that wait. ``groups``: those that changed, or were loaded."""
        for listener in self._listeners:
            listener(groups)
        with self._told:
            self.count += 1
            self._told.notify_all()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until ``count`` is another than ``seen``; False: it is not within that time."""
        with self._told:
            return self._told.wait_for(lambda: self.count != seen, timeout_s)
