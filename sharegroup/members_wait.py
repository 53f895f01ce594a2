"""``sharegroup groups --wait``: repeats an action that the coordinator refuses since it has just loaded the group,
until the group's members have had time to report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from sharegroup.progress_bar import progress

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
    from coordinator.protocol.errors import MembersNotKnown

    began_s, longest_ms = time.monotonic(), 0
    with progress("waiting for members"):
        while True:
            try:
                return action()
            except MembersNotKnown as refusal:
                wait_ms, is_first = int(refusal.fields["wait_ms"]), not longest_ms
                longest_ms = max(longest_ms, wait_ms, 1)
                if (time.monotonic() - began_s) * 1000 > 2 * longest_ms:
                    raise
                if is_first:
                    group_id, seconds = refusal.fields["group_id"], -(-wait_ms // 1000)
                    click.echo(ASKED_AGAIN.format(seconds=seconds, group_id=group_id), err=True)
            time.sleep(min(wait_ms, LOOK_MS) / 1000)
