"""The stall watch: one thread that checks, for all event loops that sleep, whether the process was stalled.

Rule: the thread checks only for a loop that sleeps and has nothing to do. A loop that runs a round, or that should have
woken up, makes its own check when it continues; that check measures the whole time since the last check for this loop.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from coordinator.service.process.clock import LISTENS_AGAIN_MS

_log = logging.getLogger(__name__)


class Sleeper(Protocol):
    """The interface of a thread for which the watch checks while the thread sleeps."""

    def look_in_sleep(self) -> None:
        """Called while the thread sleeps and could receive a request. Wake it if there is a reason; do not block."""


class StallWatch:
    """The watch. Its thread runs as long as there is a sleeper. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sleepers: set[Sleeper] = set()
        self._is_running = False

    def add(self, sleeper: Sleeper) -> None:
        with self._changed:
            if not self._is_running:
                threading.Thread(target=self._run, name="share-stalls", daemon=True).start()
                self._is_running = True
            self._sleepers.add(sleeper)

    def remove(self, sleeper: Sleeper) -> None:
        with self._changed:
            self._sleepers.discard(sleeper)
            if not self._sleepers:
                self._changed.notify()

    # --- the thread

    def _run(self) -> None:
        while sleepers := self._next():
            for sleeper in sleepers:
                try:
                    sleeper.look_in_sleep()
                except Exception:  # noqa: BLE001 - without this thread each pause of a loop would count as a stall
                    _log.exception("the check for %r failed", sleeper)

    def _next(self) -> set[Sleeper]:
        """Wait until the next check is due. Returns the sleepers; the thread ends if there are none."""
        with self._changed:
            self._changed.wait_for(lambda: not self._sleepers, LISTENS_AGAIN_MS / 1000)
            self._is_running = bool(self._sleepers)
            return set(self._sleepers)
