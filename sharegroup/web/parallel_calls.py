"""Makes several calls to coordinators at once: a page makes many calls, and each waits for a round of its coordinator.

Rule: the calls of all pages share a fixed number of threads, so that they never fill a coordinator's round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

CALL_THREADS = 16
_threads = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="web-calls")


def in_parallel(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Returns the answers of the calls, in their order. A call must not use this function itself. If calls fail, raises
    the first one's error once all have ended."""
    asked = [_threads.submit(call) for call in calls]
    errors = [each.exception() for each in asked]
    for error in errors:
        if error is not None:
            raise error
    return [each.result() for each in asked]
