"""The check of confluent_kafka.ShareConsumer that only one thread at a time uses the consumer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import ConcurrentModificationException, IllegalStateException

from coordinator.client.forks import check_process


class SingleThread:
    """Lets one thread at a time in, in the process that made it. Once ``closed`` is set, no thread may enter. Raises
    UsedAfterFork where no ShareConsumer works."""

    def __init__(self) -> None:
        check_process()
        self._pid = os.getpid()
        self._entering = threading.Lock()
        self._inside: int | None = None
        self.closed = False

    @contextmanager
    def enter(self) -> Iterator[None]:
        """A context manager around each method of the consumer: no other thread can enter until the method ends.

        Raises:
            UsedAfterFork: this process is a fork of the one that made the consumer.
            IllegalStateException: the consumer is closed, or the consumer's callback or a signal handler makes the
                call.
            ConcurrentModificationException: another thread is inside."""
        self.check_process()
        if self.closed:
            raise IllegalStateException("Share consumer closed")
        me = threading.get_ident()
        entered = False
        try:
            with self._entering:
                if self._inside == me:
                    raise IllegalStateException(
                        "Share consumer methods are not accessible from user-defined acknowledgement commit callback, "
                        "nor from a signal handler that interrupts one of them: call wakeup() there, which ends the "
                        "poll with WakeupException, and close() after it"
                    )
                if self._inside is not None:
                    raise ConcurrentModificationException(
                        "Share consumer is not safe for multi-threaded access. "
                        f"currentThread(id: {me}) otherThread(id: {self._inside})"
                    )
                entered = True  # before the next line: Ctrl+C may come between the two
                self._inside = me
            yield
        finally:
            if entered:
                self._inside = None

    def check_process(self) -> None:
        """Raises UsedAfterFork in a fork of the process that made the consumer."""
        check_process(self._pid)
