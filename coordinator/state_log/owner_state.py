"""The states of a group's owner on another host, as this coordinator knows them.

The last finding counts, whatever was found before. A state belongs to one tenure: the next owner that the group's log
names begins as LIVES. The state decides about each request:

* LIVES: the request is sent to the owner. An owner that has answered before is asked at once. If it then leaves a
  question unanswered, the log is read again, and the owner that the log names has its patience to answer.
* QUIET: the owner's process was SILENT about another group, or some time ago. A look reads what the owner wrote; every
  other request is treated as in LIVES.
* SILENT: the owner has left a question unanswered for its patience. This process may take the group; a look reads what
  the owner wrote.
* MOVED: the owner has said that it does not serve the group. Requests are treated as in SILENT, but nobody owns the
  group, and it is at rest.

In SILENT and MOVED a process takes the group only if the owner has written nothing into the group's log since before
it was asked. SILENT, MOVED and QUIET hold for a while; then the owner is asked again. A group whose owner is QUIET or
SILENT is described as UNKNOWN, since nobody knows which of its members live."""

from __future__ import annotations

from enum import Enum, auto


class OwnerState(Enum):
    """The states of an owner."""

    LIVES = auto()
    QUIET = auto()
    SILENT = auto()
    MOVED = auto()


FREE = frozenset({OwnerState.SILENT, OwnerState.MOVED})
"""In these states the group may be taken."""
READ = FREE | {OwnerState.QUIET}
"""In these states a look may read what the owner wrote."""
UNKNOWN = frozenset({OwnerState.QUIET, OwnerState.SILENT})
"""In these states nobody knows which members live."""
