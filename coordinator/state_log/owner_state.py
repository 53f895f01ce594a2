"""The states of a group's owner on another host, as one coordinator knows it: what it has found out of the owner last.

A state is of one tenure: the next owner that the group's log names begins as LIVES. It says what happens to a request:

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

from enum import Enum


class OwnerState(Enum):
    """The states."""

    LIVES = "lives"
    QUIET = "quiet"
    SILENT = "silent"
    MOVED = "moved"


class OwnerEvent(Enum):
    """The findings; the value is the label in the docs' diagram."""

    ANSWER = "answers"
    PROCESS_SILENT = "its process is silent"
    PATIENCE_OVER = "does not answer for its patience"
    MOVE = "says that it has moved"


S, E = OwnerState, OwnerEvent

TRANSITIONS: dict[tuple[OwnerState, OwnerEvent], OwnerState] = {
    (S.LIVES, E.ANSWER): S.LIVES,
    (S.LIVES, E.PROCESS_SILENT): S.QUIET,
    (S.LIVES, E.PATIENCE_OVER): S.SILENT,
    (S.LIVES, E.MOVE): S.MOVED,
    (S.QUIET, E.ANSWER): S.LIVES,
    (S.QUIET, E.PROCESS_SILENT): S.QUIET,
    (S.QUIET, E.PATIENCE_OVER): S.SILENT,
    (S.QUIET, E.MOVE): S.MOVED,
    # what was found before is too old to take the group
    (S.SILENT, E.ANSWER): S.LIVES,
    (S.SILENT, E.PROCESS_SILENT): S.QUIET,
    (S.SILENT, E.PATIENCE_OVER): S.SILENT,
    (S.SILENT, E.MOVE): S.MOVED,
    (S.MOVED, E.ANSWER): S.LIVES,
    (S.MOVED, E.PROCESS_SILENT): S.QUIET,
    (S.MOVED, E.PATIENCE_OVER): S.SILENT,
    (S.MOVED, E.MOVE): S.MOVED,
}

FREE = frozenset({S.SILENT, S.MOVED})
"""The group may be taken."""
READ = FREE | {S.QUIET}
"""A look may read what the owner wrote."""
UNKNOWN = frozenset({S.QUIET, S.SILENT})
"""Nobody knows which members live."""
