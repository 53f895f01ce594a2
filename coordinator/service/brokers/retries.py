"""Retries of calls to the brokers until a deadline, with tenacity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenacity import RetryCallState, Retrying
from tenacity.retry import retry_base
from tenacity.wait import wait_base


def retry_until(
    timeout_s: float,
    pause: wait_base,
    condition: retry_base,
    before_pause: Callable[[RetryCallState], None] | None = None,
) -> Retrying:
    """Retries while ``condition`` holds for the error or the result of an attempt. The attempts end when the next one
    would begin ``timeout_s`` seconds after the first, or later: then the last error is raised, or the last result
    returned. ``pause`` is a wait without chance, since it is computed before it begins."""

    def too_late(state: RetryCallState) -> bool:
        return (state.seconds_since_start or 0.0) + pause(state) >= timeout_s

    def last(state: RetryCallState) -> Any:
        return state.outcome.result() if state.outcome is not None else None

    return Retrying(stop=too_late, wait=pause, retry=condition, before_sleep=before_pause, retry_error_callback=last)
