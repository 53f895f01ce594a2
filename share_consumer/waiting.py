"""How the program's thread waits in a poll: until a reply comes, the time is over, or another thread wakes it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from threading import Condition
from typing import Any

from share_consumer.errors import WakeupException

SERVED_EVERY_S = 0.1
"""A waiting thread calls the program's callbacks every this many seconds."""


class Waiting:
    """The waits of one consumer. Thread-safe. ``serve`` calls the program's callbacks; None if it has none."""

    def __init__(self, serve: Callable[[], object] | None = None) -> None:
        self._serve = serve
        self._news = Condition()
        self._woken = False
        self._waits = False
        self.polled_s = 0.0

    def polls_within(self, seconds: float) -> bool:
        return self._waits or time.monotonic() - self.polled_s < seconds

    def begin(self) -> None:
        """Begin or continue a poll. Raises WakeupException if another thread has called :meth:`wakeup`."""
        self.polled_s = time.monotonic()
        with self._news:
            if self._woken:
                self._woken = False
                raise WakeupException()

    def wait(self, future: Future[Any], deadline_s: float | None) -> bool:
        """Wait for the future. Returns whether it is done. Raises as :meth:`begin`, and what a callback raises."""
        self._waits = True
        try:
            self.until(lambda: self._woken or future.done(), deadline_s)
        finally:
            self._waits = False
            self.polled_s = time.monotonic()
        self.begin()
        return future.done()

    def until(self, is_over: Callable[[], bool], deadline_s: float | None) -> None:
        """Wait until ``is_over()``, or until ``deadline_s``. :meth:`tell` has the condition checked again. The
        callbacks are served meanwhile, and at the end."""
        while True:
            left_s = inf if deadline_s is None else max(deadline_s - time.monotonic(), 0)
            wait_s = left_s if self._serve is None else min(left_s, SERVED_EVERY_S)
            with self._news:
                over = self._news.wait_for(is_over, None if wait_s == inf else wait_s)
            if self._serve is not None:
                self._serve()
            if over or wait_s == left_s:
                return

    def tell(self, _: object = None) -> None:
        """Have the waiting poll check its condition again."""
        with self._news:
            self._news.notify_all()

    def wakeup(self) -> None:
        """Make the current poll, or else the next one, raise WakeupException."""
        with self._news:
            self._woken = True
            self._news.notify_all()

    def forget_wakeup(self) -> None:
        with self._news:
            self._woken = False
