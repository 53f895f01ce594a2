"""Logs an outage with a line at its start, a line each minute, and a line at its end, however many requests fail."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

FIRST_LINE_AFTER_S = 3.0
"""An outage is logged after this many seconds: a restart of a coordinator, or another leader of a partition, takes
less."""
INTERVAL_S = 60.0


class Outage:
    """The log of one party's outages. Thread-safe. ``what``: the party; ``hint``: what callers do meanwhile."""

    def __init__(
        self, log: logging.Logger, what: str, hint: str = "", *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._what, self._hint, self._clock = log, what, hint, clock
        self._lock = threading.Lock()
        self._unanswered: set[str] = set()
        self._answered_s: dict[str, float] = {}
        self._began_s = 0.0
        self._logged_s: float | None = None

    def __repr__(self) -> str:
        return f"<Outage {self._what} {'over' if not self._unanswered else sorted(self._unanswered)}>"

    @property
    def lasts_s(self) -> float:
        """Seconds since the outage began; 0 if there is none."""
        with self._lock:
            return self._clock() - self._began_s if self._unanswered else 0.0

    def failed(self, kind: str, since_s: float, reason: object) -> None:
        """Apply the failure of a request of this kind, first sent at ``since_s`` by the clock. An outage begins after
        the last answer: another request may have got it."""
        with self._lock:
            if not self._unanswered:
                self._began_s, self._logged_s = max(since_s, self._answered_s.get(kind, since_s)), None
            self._unanswered.add(kind)
            now_s = self._clock()
            lasts_s = now_s - self._began_s
            if lasts_s < FIRST_LINE_AFTER_S or (self._logged_s is not None and now_s - self._logged_s < INTERVAL_S):
                return
            self._logged_s = now_s
        self._log.warning("%s: no answer for %.0f s%s: %s", self._what, lasts_s, self._hint, reason)

    def answered(self, kind: str) -> None:
        """Apply the answer to a request of this kind. The outage ends once every kind that failed was answered."""
        if kind not in self._unanswered:
            return
        with self._lock:
            self._unanswered.discard(kind)
            self._answered_s[kind] = self._clock()
            if self._unanswered or self._logged_s is None:
                return
            lasts_s = self._clock() - self._began_s
            self._logged_s = None
        self._log.warning("%s: answers again after %.0f s", self._what, lasts_s)

    def forget(self, kind: str) -> None:
        """Nobody waits for an answer of this kind any more. An outage in which nobody waits is over, without a last
        line."""
        with self._lock:
            self._unanswered.discard(kind)
            self._answered_s.pop(kind, None)
