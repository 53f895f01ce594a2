"""Notices within seconds that the brokers or a coordinator do not answer.

Rule: the page says so at once, and shows the last known state, without waiting until a call has failed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from coordinator.protocol import errors

_log = logging.getLogger(__name__)

UNANSWERED = (errors.BrokerNotReachable, errors.CoordinatorNotAvailable, errors.CoordinatorUnreachable)
"""The errors of a call that nobody answered."""
LATE_S = 3.0
"""A coordinator that has not answered the page's own calls for this many seconds is reported."""
EVERY_S = 1.0
"""The brokers are asked again after this many seconds."""


class Waiting:
    """Since when calls have had no answer. Only one thread may make the calls."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A context for a call. An error that a coordinator sent counts as an answer."""
        if self._since_s is None:
            self._since_s = time.time()
        try:
            yield
        except UNANSWERED:
            raise
        except errors.ShareGroupError:
            self._since_s = None
            raise
        self._since_s = None

    def late_since_s(self) -> float | None:
        """Returns the time of the first call without an answer, in seconds since 1970; None if all are
        answered in time."""
        since_s = self._since_s
        return since_s if since_s is not None and time.time() - since_s >= LATE_S else None


class Outages:
    """Notices what does not answer. ``do_brokers_answer`` asks; ``changed`` is called when an outage begins or ends."""

    def __init__(
        self, cluster: str, do_brokers_answer: Callable[[], bool], waiting: Waiting, changed: Callable[[], None]
    ) -> None:
        self._cluster, self._do_brokers_answer = cluster, do_brokers_answer
        self._waiting, self._changed = waiting, changed
        self._brokers_since_s: float | None = None
        self._text = ""
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, name="web-outages", daemon=True) for run in (self._ask, self._run)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5)

    def text(self) -> str:
        """Returns sentences about what does not answer; empty if all answer."""
        return self._text

    def ask_brokers(self) -> None:
        began_s = time.time()
        if self._do_brokers_answer():
            self._brokers_since_s = None
        elif self._brokers_since_s is None:
            self._brokers_since_s = began_s

    def look(self) -> None:
        """Report an outage that has begun or ended."""
        brokers_s, coordinator_s = self._brokers_since_s, self._waiting.late_since_s()
        said = []
        if brokers_s is not None:
            said.append(f"The Kafka brokers ({self._cluster}) have not answered since {_clock(brokers_s)}.")
        if coordinator_s is not None:
            said.append(f"The groups' coordinator has not answered since {_clock(coordinator_s)}.")
        text = " ".join([*said, "The page shows the last known state."] if said else [])
        if text != self._text:
            self._text = text
            if text:
                _log.warning("%s", text)
            self._changed()

    def _ask(self) -> None:
        while not self._ended.wait(EVERY_S):
            self.ask_brokers()

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S / 2):
            self.look()


def _clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%H:%M:%S UTC")
