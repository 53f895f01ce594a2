"""``sharegroup groups --wait``: repeats an action that the coordinator refuses since it has just loaded the group,
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
"""Two requests are up to this many milliseconds apart, since a member may report or leave early."""
ASKED_AGAIN = "Waiting for members of {group_id} that may be there: {seconds} s, twice as long at most (--wait)."


def asked(options: Mapping[str, Any], action: Callable[[], T]) -> T:
    """Returns the result of the action. With --wait, repeats the action while it raises MembersNotKnown, for up to
    twice the longest time that a refusal names, since the group may be loaded again meanwhile. Raises MembersNotKnown
    without --wait, or after that time."""
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
    """The waiting times that the refusals of one action name."""

    def __init__(self) -> None:
        self._longest_ms = 0

    def is_over(self, state: tenacity.RetryCallState) -> bool:
        self._longest_ms = max(self._longest_ms, _wait_ms(state))
        return (state.seconds_since_start or 0.0) * 1000 > 2 * self._longest_ms

    def pause_s(self, state: tenacity.RetryCallState) -> float:
        return min(_wait_ms(state), LOOK_MS) / 1000

    def tell(self, state: tenacity.RetryCallState) -> None:
        """Print once, on standard error, how long the command may wait."""
        if state.attempt_number == 1:
            seconds = -(-_wait_ms(state) // 1000)
            click.echo(ASKED_AGAIN.format(seconds=seconds, group_id=_refusal(state).fields["group_id"]), err=True)


def _refusal(state: tenacity.RetryCallState) -> Any:
    return state.outcome and state.outcome.exception()


def _wait_ms(state: tenacity.RetryCallState) -> int:
    return int(_refusal(state).fields["wait_ms"])
