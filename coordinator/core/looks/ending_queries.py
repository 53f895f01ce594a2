"""Which queries a person should see that ended, or that keep ending (:mod:`coordinator.core.endings`)."""

from __future__ import annotations

from coordinator.core.members import Member
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import QueryEnding

TOLD_AGAIN, TOLD_WITHOUT_A_WORD = 2, 3
"""While a newer process runs, an ending is shown from TOLD_AGAIN ends on if the last one had a named error, else from
TOLD_WITHOUT_A_WORD ends on: a restart by hand also ends a process without an error."""
TOLD_MS = 24 * 3_600_000
"""A query that has no session is shown for this many milliseconds after its end: it may be gone for good."""


def shown(group: ShareGroup, member: Member, now_ms: int) -> QueryEnding | None:
    """The member's ending, if a person should see it: no process runs, or processes ended again and again, and the
    newest one has a batch that it has not completed."""
    ending = member.ending
    if ending is None:
        return None
    session_ms = group.config.share_session_timeout_ms
    has_session = member.active and member.member_id not in group.unheard
    runs = has_session and (member.member_epoch > ending.counted_epoch or now_ms - ending.last_ms > session_ms)
    times = ending.times + (not runs and ending.epoch > ending.counted_epoch)  # a task's error was the process's last
    if runs:
        least = TOLD_AGAIN if ending.error else TOLD_WITHOUT_A_WORD
        if times < least or member.pending is None or not group.has_records_in_flight:
            return None
    elif not times or now_ms - ending.last_ms > TOLD_MS or not (ending.error or times >= TOLD_WITHOUT_A_WORD):
        return None
    return QueryEnding(
        times=times,
        first_ms=ending.first_ms or ending.last_ms,
        last_ms=ending.last_ms,
        error=ending.error,
        text=ending.text,
        runs=runs,
    )
