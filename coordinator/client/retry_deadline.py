"""The deadline of retries. Time during which this process was stopped does not count."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

MAX_ATTEMPT_S = 60.0
"""One attempt and its pause count up to this many seconds. They take longer only if this process, or its host, was
stopped."""


class StopAtDeadline:
    """A stop condition for tenacity: stops after ``timeout_s`` seconds of attempts. Each attempt with the pause before
    it counts up to MAX_ATTEMPT_S, so a driver that was stopped for an hour does not give up at its first error."""

    def __init__(self, timeout_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s, self._now_s = timeout_s, now_s
        self._last_s, self._tried_s = now_s(), 0.0

    def __call__(self, retry_state: Any) -> bool:
        now_s = self._now_s()
        self._tried_s += min(now_s - self._last_s, MAX_ATTEMPT_S)
        self._last_s = now_s
        return self._tried_s >= self._timeout_s
