"""``sharegroup groups --wait``: repeats an action that is refused because the coordinator has just loaded the group,
until the group's members have had time to report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sharegroup.progress_bar import progress

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")

LOOK_MS = 1_000
"""Two requests are up to this many milliseconds apart: a member may report, or leave, before its time is over."""
ASKED_AGAIN = "Waiting for members of {group_id} that may be there: {seconds} s, twice as long at most (--wait)."


def asked(options: Mapping[str, Any], action: Callable[[], T]) -> T:
    """The result of the action. With the option --wait the action is repeated while it raises MembersNotKnown, for
    twice the longest time that a refusal names: the group may be loaded anew in between.

    Raises:
        MembersNotKnown: there is no --wait, or the time is over.
    """
    if not options["wait"]:
        return action()
    import tenacity

    from coordinator.protocol.errors import MembersNotKnown

    waiting = _Waiting()
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(MembersNotKnown),
        stop=waiting.is_over,
        wait=waiting.pause_s,
        before_sleep=waiting.tell,
        reraise=True,
    )
    with progress("waiting for members"):
        return retrying(action)


class _Waiting:
    """How long the refusals of one action ask to wait."""

    def __init__(self) -> None:
        self._longest_ms = 0

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        self._longest_ms = max(self._longest_ms, _wait_ms(state))
        return (state.seconds_since_start or 0.0) * 1000 > 2 * self._longest_ms

    def pause_s(self, state: tenacity.RetryCallState) -> float:
        return min(_wait_ms(state), LOOK_MS) / 1000

    def tell(self, state: tenacity.RetryCallState) -> None:
        """Print on standard error, once, how long the command may wait."""
        if state.attempt_number == 1:
            seconds = -(-_wait_ms(state) // 1000)
            click.echo(ASKED_AGAIN.format(seconds=seconds, group_id=_refusal(state).fields["group_id"]), err=True)


def _refusal(state: tenacity.RetryCallState) -> Any:
    """The error with which an attempt was refused."""
    return state.outcome and state.outcome.exception()


def _wait_ms(state: tenacity.RetryCallState) -> int:
    return int(_refusal(state).fields["wait_ms"])
