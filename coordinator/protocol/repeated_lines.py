"""Log lines about what repeats: a line once until something changes, or once a minute; lines about an outage when it
begins, each minute, and when it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

INTERVAL_S = 60.0
"""Two lines about one event, or about one outage, are at least this many seconds apart."""
FIRST_LINE_AFTER_S = 3.0
"""An outage is logged after this many seconds: a coordinator's restart, or a partition's new leader, takes less."""
MOST_KEYS = 10_000
"""Up to this many keys are remembered: keys name groups and clients, and there may be any number of these. The key that
was used longest ago is forgotten, so its next line is logged."""


class LogOnce:
    """Leaves out the lines that would repeat others of ``log``. Thread-safe."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.log, self._clock = log, clock
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return LogOnce, (self.log,)  # Spark pickles a query's reader: a copy knows no line

    def warn(self, key: str, message: str) -> None:
        """Log the message, or count it if the key has had a line within the last INTERVAL_S."""
        left_out = self.left_out(key)
        if left_out is not None:
            more = f" (and {left_out} more of this kind since the last line)" if left_out else ""
            self.log.warning("%s%s", message, more)

    def left_out(self, key: str) -> int | None:
        """Returns how many lines of the key were left out since its last line. None: leave this one out, too, because
        the last line is not yet INTERVAL_S old."""
        now_s = self._clock()
        with self._lock:
            line_s, left_out = self._known.get(key, (now_s - INTERVAL_S, 0))
            is_due = now_s - line_s >= INTERVAL_S
            self._remember(key, (now_s, 0) if is_due else (line_s, left_out + 1))
        return left_out if is_due else None

    def changes(self, key: str, value: object) -> bool:
        """Remember the value. Returns whether it differs from the key's last one, which is empty at first: all empty
        values are equal."""
        with self._lock:
            before = self._known.get(key)
            self._remember(key, value)
        return (before or None) != (value or None)

    def _remember(self, key: str, value: object) -> None:
        self._known.pop(key, None)
        if value:
            self._known[key] = value
        if len(self._known) > MOST_KEYS:
            del self._known[next(iter(self._known))]


class Outage:
    """Logs the outages of one service, such as a coordinator. Thread-safe. ``what``: the service, in the lines;
    ``hint``: the words of the lines for what callers do until it answers."""

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
        """Record that a request of this kind failed, which was first sent at ``since_s`` by the clock. If the same kind
        was answered since then, the outage counts from that answer."""
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
        """Record the answer to a request of this kind. The outage ends once every kind that failed was answered."""
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
        """Record that nobody waits for an answer of this kind any more. An outage in which nobody waits ends without a
        last line."""
        with self._lock:
            self._unanswered.discard(kind)
            self._answered_s.pop(kind, None)
