"""How long a call is tried: the time that passed while this process stood still is not the coordinator's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LONGEST_TRY_S = 60.0
"""A try takes less, unless this process was stopped in it, or its host suspended."""


class StopAtDeadline:
    """For tenacity: stop when it was tried for so many seconds. Of each try, and the pause before it, LONGEST_TRY_S
    count at most, so a driver that was stopped for an hour does not give up at the first error that it meets."""

    def __init__(self, timeout_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s, self._now_s = timeout_s, now_s
        self._looked_s, self._tried_s = now_s(), 0.0

    def __repr__(self) -> str:
        return f"<StopAtDeadline {self._tried_s:.1f} of {self._timeout_s:.1f} s>"

    def __call__(self, retry_state: Any) -> bool:
        now_s = self._now_s()
        self._tried_s += min(now_s - self._looked_s, LONGEST_TRY_S)
        self._looked_s = now_s
        return self._tried_s >= self._timeout_s
