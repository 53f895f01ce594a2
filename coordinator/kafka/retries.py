"""Retries of calls, to the brokers and to coordinators: until a deadline, or after given pauses, with tenacity."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_chain, wait_fixed, wait_none
from tenacity.retry import retry_base
from tenacity.wait import wait_base

MAX_ATTEMPT_S = 60.0
"""One attempt and its pause count up to this many seconds. They take longer only if this process was stopped."""


def retry_until(
    timeout_s: float, pause: wait_base, condition: retry_base | Callable[[RetryCallState], bool], least: int = 1
) -> Retrying:
    """Retries while ``condition`` holds for the error or the result of an attempt. The attempts end when the next one
    would begin ``timeout_s`` seconds after the first, or later: then the last error is raised, or the last result
    returned. ``pause`` must not be random, because it is computed before it begins. ``least`` attempts are made also
    after the deadline."""

    def too_late(state: RetryCallState) -> bool:
        return state.attempt_number >= least and (state.seconds_since_start or 0.0) + pause(state) >= timeout_s

    return Retrying(stop=too_late, wait=pause, retry=condition, retry_error_callback=_last)


def retry_after(pauses_s: Iterable[float], condition: retry_base) -> Retrying:
    """Retries while ``condition`` holds for the error or the result of an attempt, once after each of ``pauses_s``,
    however long an attempt takes. Then the last error is raised, or the last result returned."""
    pauses = [wait_fixed(pause_s) for pause_s in pauses_s]
    return Retrying(
        stop=stop_after_attempt(1 + len(pauses)),
        wait=wait_chain(*pauses, wait_none()),
        retry=condition,
        retry_error_callback=_last,
    )


def _last(state: RetryCallState) -> Any:
    return state.outcome.result() if state.outcome is not None else None


class StopAtDeadline:
    """A stop condition for tenacity: stops after ``timeout_s`` seconds of attempts. Each attempt with the pause before
    it counts up to MAX_ATTEMPT_S, so a driver that was stopped for an hour does not end its retries at its first
    error."""

    def __init__(self, timeout_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s, self._now_s = timeout_s, now_s
        self._last_s, self._tried_s = now_s(), 0.0

    def __call__(self, retry_state: Any) -> bool:
        now_s = self._now_s()
        self._tried_s += min(now_s - self._last_s, MAX_ATTEMPT_S)
        self._last_s = now_s
        return self._tried_s >= self._timeout_s
