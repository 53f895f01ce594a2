"""Waiting for a condition, never for a time."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, timeout_s: float = 120, interval_s: float = 0.05, what: str = "") -> T:
    """Return the condition's first true answer; AssertionError when there is none in time. The time is for a
    loaded machine, and costs nothing where the condition comes true."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        pause.wait(interval_s)
