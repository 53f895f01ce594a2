"""Waiting for a condition, never for a time."""

import inspect
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGER, LONGEST_PAUSE_S = 1.2, 0.15
"""Each pause is 1.2 times as long as the one before, up to 0.15 s: a long wait leaves the machine to others."""


def wait_until(condition: Callable[[], T], *, timeout_s: float = 120, interval_s: float = 0.05, what: str = "") -> T:
    """Return the condition's first true answer; AssertionError when there is none in time, which names ``what``, or
    else the condition's code, and the machine's load. The time is for a loaded machine, and costs nothing where the
    condition comes true."""
    deadline = time.monotonic() + timeout_s
    pause, pause_s = threading.Event(), interval_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            load = f"at a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
            raise AssertionError(f"not within {timeout_s:g} s, {load}: {what or _code(condition)}")
        pause.wait(pause_s)
        pause_s = max(interval_s, min(pause_s * LONGER, LONGEST_PAUSE_S))


def _code(condition: Callable[[], object]) -> str:
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)
