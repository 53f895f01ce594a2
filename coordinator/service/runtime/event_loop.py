"""The event_loop thread: the only one that steps the runtime; and the clock that it goes by.

Requests come from any thread and wait for their answer. The thread sleeps until a request comes or a deadline is due;
while it does it looks every LISTENS_AGAIN_MS whether it was kept from running, and tells the runtime for how long.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.service.runtime.clock import LISTENS_AGAIN_MS, Clock, StallDetector
from coordinator.service.runtime.runtime import CoordinatorRuntime, Transaction

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
LONGEST_SLEEP_MS = 60_000
SHORTEST_SLEEP_MS = 10

_log = logging.getLogger(__name__)


class EventLoop:
    """Runs a runtime until it is closed."""

    def __init__(self, runtime: CoordinatorRuntime, clock: Clock | None = None) -> None:
        self.runtime = runtime
        self.clock = clock or Clock()
        self._attention = StallDetector()
        self._unheard_ms = 0
        self._awake = threading.Condition()
        self._closed = False
        self._stepping = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="share-event_loop", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<EventLoop {self.runtime!r}>"

    @property
    def group_count(self) -> int:
        """Groups that are served now."""
        return sum(group.exists for group in list(self.runtime.groups.values()))

    def call(self, group_id: str, transaction: Transaction[T], *, claim: bool = False, peek: bool = False) -> T:
        """The transaction's answer, once it is durable; its ShareGroupError; CoordinatorNotAvailable after a while. For
        ``claim`` and ``peek`` see :meth:`CoordinatorRuntime.submit`."""
        answer = self._submit(group_id, transaction, claim=claim, peek=peek)
        try:
            return answer.result(ANSWER_TIMEOUT_S)
        except FutureTimeoutError:
            answer.cancel()
            raise CoordinatorNotAvailable(
                group_id=group_id, reason=f"its state store ({self.runtime.store.name}) does not answer"
            ) from None

    def may_rest(self) -> bool:
        """No group of the runtime holds anything, waits for anything, or has a member."""
        with self._stepping:
            return self.runtime.may_rest(self.clock.now_ms())

    def has_letters(self, group_id: str) -> bool:
        """See :meth:`CoordinatorRuntime.has_letters`; for the thread that ``on_change`` is called in."""
        return self.runtime.has_letters(group_id)

    def close(self) -> None:
        """Finish what waits, refuse what comes, and let go of the store."""
        with self._awake:
            self._closed = True
            self._awake.notify()
        self._thread.join(ANSWER_TIMEOUT_S)
        self.runtime.store.close()

    # --- the thread

    def _submit(self, group_id: str, transaction: Transaction[T], *, claim: bool, peek: bool) -> Future[T]:
        with self._awake:
            if self._closed:
                raise CoordinatorNotAvailable(group_id=group_id, reason="it is leaving")
            answer = self.runtime.submit(group_id, transaction, claim=claim, peek=peek)
            self._awake.notify()
        return answer

    def _run(self) -> None:
        while self._wait():
            with self._stepping:
                try:
                    self._step()
                except Exception:  # noqa: BLE001 - an event_loop that ends would leave every caller waiting
                    _log.exception("round failed")
        with self._stepping:
            self._step()

    def _step(self) -> None:
        now_ms = self._look()
        stalled_ms, self._unheard_ms = self._unheard_ms, 0
        self.runtime.step(now_ms, stalled_ms)

    def _look(self) -> int:
        now_ms = self.clock.now_ms()
        self._unheard_ms += self._attention.look(now_ms)
        return now_ms

    def _wait(self) -> bool:
        """Until there is something to do; False at the end."""
        with self._awake:
            if self.runtime.has_waiting or self._closed:
                return not self._closed
            due_ms = self.runtime.next_deadline_ms()
            wake_ms = self._look() + LONGEST_SLEEP_MS if due_ms is None else due_ms
            at_most_ms = LONGEST_SLEEP_MS if due_ms is None else LISTENS_AGAIN_MS
            left_ms = wake_ms - self._look()
            while True:
                self._awake.wait(min(max(left_ms, SHORTEST_SLEEP_MS), at_most_ms) / 1000)
                left_ms = wake_ms - self._look()
                if left_ms <= 0 or self._unheard_ms or self.runtime.has_waiting or self._closed:
                    return not self._closed
