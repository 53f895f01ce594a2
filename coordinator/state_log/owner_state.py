"""The states of a group's owner on another host, as one coordinator knows it: what it has found out of the owner last.

What is found last counts, whatever was found before. A state is of one tenure: the next owner that the group's log
names begins as LIVES. The state says what happens to a request:

* LIVES: the owner answers it. One that has answered before is asked at once; if it then leaves a question unanswered,
  the log is read again, and the owner that the log names is waited for as long as its patience.
* QUIET: the owner's process was found SILENT, for another group or some time ago. A look reads what the owner wrote;
  all else is as in LIVES.
* SILENT: the owner has left a question unanswered for its patience. This process may take the group; a look reads what
  the owner wrote.
* MOVED: the owner has said that it does not serve the group. As SILENT, but the group is at rest, and nobody's.

SILENT and MOVED let a process take the group only if the owner has written nothing into the group's log since before
it was asked, and only for a while; QUIET lets looks read for a while. Then the owner is asked again. A group whose
owner is QUIET or SILENT is described as UNKNOWN: nobody knows which of its members live.
"""

from __future__ import annotations

from enum import Enum, auto


class OwnerState(Enum):
    """The states."""

    LIVES = auto()
    QUIET = auto()
    SILENT = auto()
    MOVED = auto()


FREE = frozenset({OwnerState.SILENT, OwnerState.MOVED})
"""The group may be taken."""
READ = FREE | {OwnerState.QUIET}
"""A look may read what the owner wrote."""
UNKNOWN = frozenset({OwnerState.QUIET, OwnerState.SILENT})
"""Nobody knows which members live."""
