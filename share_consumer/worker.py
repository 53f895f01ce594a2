"""A thread that runs the calls of one ShareConsumer in order. The program's own thread can stop waiting for a call at a
timeout, a wakeup or Ctrl+C."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IllegalStateException

Answer = TypeVar("Answer")


class Worker:
    """One daemon thread, from the first call to ``close``. It keeps no program running that ends without close()."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._entering = threading.Lock()
        self._closed = False

    def submit(self, function: Callable[[], Answer], answer: Future[Answer] | None = None) -> Future[Answer]:
        """Run the function after the calls before it. Returns the future of its result: ``answer``, or a new one. A
        future that is cancelled before its call begins has no result; after ``close`` it has IllegalStateException."""
        future: Future[Answer] = Future() if answer is None else answer
        with self._entering:
            if self._closed:
                future.set_exception(IllegalStateException("Share consumer closed"))
                return future
            if self._thread is None:  # before the call is queued: a thread that can't be started must leave no call
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            self._calls.put((future, function))
        return future

    def close(self) -> None:
        with self._entering:
            self._closed = True
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    answer = function()
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)
                else:
                    future.set_result(answer)
                    del answer
            del call, future, function  # a future holds records, and the next call may come much later
