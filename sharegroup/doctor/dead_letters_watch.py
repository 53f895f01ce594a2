"""Watches whether dead letters are being written. If they are, waiting ones are no finding."""

from __future__ import annotations

import time
from collections.abc import Callable

from coordinator.protocol.messages import GroupDescription

WATCHED_S = 5.0
"""If no dead letter is written for this many seconds, the doctor reports the waiting ones as not written."""
_PAUSE_S = 0.5


def watch_dead_letters(
    look: Callable[[], GroupDescription], pause: Callable[[float], None] = time.sleep
) -> tuple[GroupDescription, bool]:
    """Returns the newest description of the group, and whether dead letters wait of which none was written for
    WATCHED_S. Returns early if none wait, or once one is written."""
    description = first = look()
    for _ in range(round(WATCHED_S / _PAUSE_S)):
        if not any(partition.archiving for partition in description.partitions):
            return description, False
        pause(_PAUSE_S)
        description = look()
        if _written(first, description):
            return description, False
    return description, any(partition.archiving for partition in description.partitions)


def _written(before: GroupDescription, after: GroupDescription) -> bool:
    """Whether a dead letter was written between the two readings, which archives its record."""
    counts = {(p.topic_id, p.partition): (p.archiving, p.archived_total) for p in before.partitions}
    return any(
        p.archiving < counts.get((p.topic_id, p.partition), (0, 0))[0]
        or p.archived_total > counts.get((p.topic_id, p.partition), (0, p.archived_total))[1]
        for p in after.partitions
    )
