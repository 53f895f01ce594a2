"""Sets an event at SIGTERM and SIGINT, so that the process ends.

Rule: a thread sets the event, not a Python signal handler, which runs in the main thread between two of its steps.
While the main thread waits for the event, a signal that the kernel gave to another thread would not be handled. If the
main thread just begins to wait, it holds the lock that the handler needs. The process would then stay for ever (seen:
three of 600 with busy threads, and a standalone coordinator). The C part of a handler writes the signal's number to a
pipe, whichever thread received it, and the thread reads it there."""

from __future__ import annotations

import os
import signal
import threading

ENDING = (signal.SIGTERM, signal.SIGINT)


def set_by_signal(told: threading.Event) -> None:
    """Set the event at SIGTERM and SIGINT from now on. Only the main thread may call this, once in a process."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in ENDING:
        signal.signal(number, lambda *_: None)  # a handler of Python's, so that the number is written to the pipe
    threading.Thread(target=_wait, args=(reading, told), name="share-signals", daemon=True).start()


def _wait(reading: int, told: threading.Event) -> None:
    while os.read(reading, 1)[0] not in ENDING:
        pass
    told.set()
