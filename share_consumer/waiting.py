"""How the program's thread waits in a poll: until an answer comes, its time is over, or another thread wakes it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from threading import Condition
from typing import Any

from share_consumer.errors import WakeupException

SERVED_EVERY_S = 0.1
"""A thread that waits calls the program's callbacks after this many seconds, again and again."""


class Waiting:
    """The waits of one consumer. Thread-safe."""

    def __init__(self, serve: Callable[[], object] | None = None) -> None:
        """``serve``: calls the program's callbacks; None: it has none."""
        self._serve = serve
        self._news = Condition()
        self._woken = False
        self._waits = False
        self.polled_s = 0.0

    def __repr__(self) -> str:
        return f"<Waiting {'in a poll' if self._waits else 'for a poll'}>"

    def polls_within(self, seconds: float) -> bool:
        """Whether the program is in a poll, or was within the last ``seconds``."""
        return self._waits or time.monotonic() - self.polled_s < seconds

    def begin(self) -> None:
        """A poll begins, or goes on.

        Raises:
            WakeupException: another thread called :meth:`wakeup`.
        """
        self.polled_s = time.monotonic()
        with self._news:
            if self._woken:
                self._woken = False
                raise WakeupException()

    def wait(self, future: Future[Any], deadline_s: float | None) -> bool:
        """Returns whether the future is done by then. Raises as :meth:`begin`, and what a callback raises."""
        self._waits = True
        try:
            self.until(lambda: self._woken or future.done(), deadline_s)
        finally:
            self._waits = False
            self.polled_s = time.monotonic()
        self.begin()
        return future.done()

    def until(self, is_over: Callable[[], bool], deadline_s: float | None) -> None:
        """Wait for that, of which :meth:`tell` tells, until then at most. Callbacks are served meanwhile, and at the
        end."""
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
        """Wake the poll: a future that it may wait for is done."""
        with self._news:
            self._news.notify_all()

    def wakeup(self) -> None:
        """Have the poll that runs now, or else the next one, raise WakeupException."""
        with self._news:
            self._woken = True
            self._news.notify_all()

    def forget_wakeup(self) -> None:
        """Clear a wakeup that no poll has noticed."""
        with self._news:
            self._woken = False
