"""The stall watch: one thread that looks for all sleeping event loops of the process whether the process stands still.

Rule: the thread only looks for a loop that sleeps and has nothing to do. A loop that works, or that should have woken
up, looks for itself once it goes on, and then finds the whole time since it was last looked for.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from coordinator.service.process.clock import LISTENS_AGAIN_MS

_log = logging.getLogger(__name__)


class Sleeper(Protocol):
    """The interface of a thread that is looked for while it sleeps."""

    def look_in_sleep(self) -> None:
        """Note that the thread would hear a request now, and wake it if there is a reason. Must not block for long."""


class StallWatch:
    """The watch, whose thread runs for as long as somebody is looked for. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sleepers: set[Sleeper] = set()
        self._is_running = False

    def __repr__(self) -> str:
        return f"<StallWatch sleepers={len(self._sleepers)}>"

    def add(self, sleeper: Sleeper) -> None:
        """Look for this one, too, every LISTENS_AGAIN_MS."""
        with self._changed:
            if not self._is_running:
                threading.Thread(target=self._run, name="share-stalls", daemon=True).start()
                self._is_running = True
            self._sleepers.add(sleeper)

    def remove(self, sleeper: Sleeper) -> None:
        """Look for this one no more."""
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
                    _log.exception("looking for %r failed", sleeper)

    def _next(self) -> set[Sleeper]:
        """Wait until the next look is due, and return the sleepers; none: the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._sleepers, LISTENS_AGAIN_MS / 1000)
            self._is_running = bool(self._sleepers)
            return set(self._sleepers)
