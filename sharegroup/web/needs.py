"""Why a person should look at a group.

Rule: losses come first, then what is stuck, then what is slow, then what nobody consumes. An abandoned group only
waits; a record that was given up is gone."""

from __future__ import annotations

from enum import IntEnum

from sharegroup.doctor.dead_letters_watch import WATCHED_S
from sharegroup.doctor.limits import HELD_LONG_MS
from sharegroup.durations import duration
from sharegroup.group_line import GroupLine

STANDS_S = 600.0
"""A group with lag counts as stalled after this many seconds without an acknowledgement, as in the alert."""
DEAD_LETTERS_STAND_S = WATCHED_S
"""If no dead letter is written for this many seconds, as for the doctor, the waiting ones are reported as stuck."""


class Need(IntEnum):
    """The kinds of needs, the worst first."""

    LOSS = 1
    STUCK = 2
    SLOW = 3
    ABANDONED = 4

    @property
    def word(self) -> str:
        return self.name.lower()


def attention(
    line: GroupLine, quarantined: int, stands_s: float, dead_letters_stand_s: float = 0.0, *, is_part: bool = False
) -> tuple[tuple[Need, str], ...]:
    """Returns why a person should look at the group, the worst reason first. ``stands_s``, ``dead_letters_stand_s``:
    seconds without an acknowledgement, and seconds in which none of the waiting dead letters was written. ``is_part``:
    not all runs were scanned for quarantined ones."""
    found = []
    if line.without_dead_letter:
        found.append((Need.LOSS, f"{line.without_dead_letter:,} given up without a dead letter"))
    if line.ending:
        found.append((Need.STUCK, f"{line.ending} keep{'s' if line.ending == 1 else ''} ending"))
    if line.dead_letter_topic_missing:
        found.append((Need.STUCK, "its dead letter topic is missing"))
    if line.archiving and dead_letters_stand_s >= DEAD_LETTERS_STAND_S:
        found.append((Need.STUCK, f"{line.archiving:,} dead letters wait"))
    if line.lag_to_do and line.members and stands_s > STANDS_S:
        found.append((Need.STUCK, f"stalled for {duration(int(stands_s * 1000))}"))
    if quarantined:
        found.append((Need.STUCK, f"{quarantined:,}{' or more' if is_part else ''} in quarantine"))
    if line.slowed:
        found.append((Need.SLOW, f"{line.slowed} slowed: sinks release"))
    if (line.oldest_ms or 0) > HELD_LONG_MS:
        found.append((Need.SLOW, f"held for {duration(line.oldest_ms or 0)}"))
    if line.lag_to_do and line.state == "Empty":
        found.append((Need.ABANDONED, "nobody consumes"))
    if line.lag_to_do and line.state == "Unknown":
        found.append((Need.ABANDONED, "no coordinator runs"))
    return tuple(found)
