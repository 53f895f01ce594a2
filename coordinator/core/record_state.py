"""The state machine of a record: every change of a record's state is in the table of this module.

A record of a share partition is AVAILABLE until a member acquires it. While ACQUIRED, one member holds it, under a lock
that lives for a while (a ShareConsumer's) or as long as its member's session (a query's). It leaves ACQUIRED by an
outcome (accept, release, reject, gap), by losing its lock, or by isolation, which returns records of a batch that keeps
failing. A ShareConsumer's record is IN_PROGRESS from the first signal that its work on the record goes on
(KAFKA-20458): its lock then ends after some time without a signal. ACKNOWLEDGED and ARCHIVED are terminal. A record
that is given up is ARCHIVING until its dead letter is written; without a dead letter topic that step follows at once
(KIP-1191).

A run that lost its lock keeps its plan id. The member that comes back to this plan may still give the run any outcome.
That is why these moves also start from AVAILABLE. Once the run no longer carries the plan's id, the member can't.

Every change of state goes through :func:`move`; a move that is not in the table raises and changes nothing. How a
record's state couples with plans, isolation and sessions stands in :mod:`coordinator.core.share_group`.

AVAILABLE is one state for Kafka, and four for an acquisition (the indexes of :class:`~coordinator.core.runs.RunMap`):
*ready*; *delayed* until ``not_before_ms``; *quarantined*, and acquired only alone; quarantined and *backing off* until
``not_before_ms``. A record that lost its lock may be in any of the four, and still carries its plan's id. Records that
were never acquired are AVAILABLE as well, and have no run.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from coordinator.protocol.errors import InvalidRecordState


class RecordState(IntEnum):
    """Delivery states with the bytes that KIP-932, KIP-1191 and KAFKA-20458 give them."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4
    IN_PROGRESS = 5


class Event(Enum):
    """Events of a record; the value is the label in the docs' diagram."""

    __hash__ = object.__hash__  # Enum's own is slow Python code, and each change of a run looks up its event

    ACQUIRE = "acquire"
    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    GAP = "gap"
    RENEW = "renew"
    PROGRESS = "progress"
    LOSE_LOCK = "lose lock"
    LIMIT = "delivery limit"
    RECLAIM = "reclaim"
    CUT = "cut"
    QUARANTINE = "quarantine"
    FAIL_TRIAL = "fail trial"
    COMPLETE = "complete"
    LOG_START = "log start moved"
    MISSING = "not in the log"
    EXPIRE = "older than its ttl"
    WRITE_DEAD_LETTER = "dead letter written"


S, E = RecordState, Event

TRANSITIONS: dict[tuple[RecordState, Event], RecordState] = {
    # a member takes the record
    (S.AVAILABLE, E.ACQUIRE): S.ACQUIRED,
    # its holder decides
    (S.ACQUIRED, E.ACCEPT): S.ACKNOWLEDGED,
    (S.ACQUIRED, E.RELEASE): S.AVAILABLE,
    (S.ACQUIRED, E.REJECT): S.ARCHIVING,
    (S.ACQUIRED, E.GAP): S.ARCHIVED,
    (S.ACQUIRED, E.RENEW): S.ACQUIRED,
    # its holder says that it works on the record, and then decides; renewals are for records without such signals
    (S.ACQUIRED, E.PROGRESS): S.IN_PROGRESS,
    (S.IN_PROGRESS, E.PROGRESS): S.IN_PROGRESS,
    (S.IN_PROGRESS, E.ACCEPT): S.ACKNOWLEDGED,
    (S.IN_PROGRESS, E.RELEASE): S.AVAILABLE,
    (S.IN_PROGRESS, E.REJECT): S.ARCHIVING,
    (S.IN_PROGRESS, E.GAP): S.ARCHIVED,
    # its holder is gone
    (S.ACQUIRED, E.LOSE_LOCK): S.AVAILABLE,
    (S.ACQUIRED, E.LIMIT): S.ARCHIVING,
    (S.IN_PROGRESS, E.LOSE_LOCK): S.AVAILABLE,
    (S.IN_PROGRESS, E.LIMIT): S.ARCHIVING,
    # a query comes back to its plan, within its session or after it
    (S.ACQUIRED, E.RECLAIM): S.ACQUIRED,
    (S.AVAILABLE, E.RECLAIM): S.ACQUIRED,
    (S.ACQUIRED, E.CUT): S.AVAILABLE,
    (S.AVAILABLE, E.CUT): S.AVAILABLE,
    (S.ACQUIRED, E.QUARANTINE): S.AVAILABLE,
    (S.AVAILABLE, E.QUARANTINE): S.AVAILABLE,
    (S.ACQUIRED, E.FAIL_TRIAL): S.ARCHIVING,
    (S.AVAILABLE, E.FAIL_TRIAL): S.ARCHIVING,
    (S.ACQUIRED, E.COMPLETE): S.ACKNOWLEDGED,
    (S.AVAILABLE, E.COMPLETE): S.ACKNOWLEDGED,
    (S.AVAILABLE, E.RELEASE): S.AVAILABLE,
    (S.AVAILABLE, E.REJECT): S.ARCHIVING,
    # it waited for too long
    (S.AVAILABLE, E.EXPIRE): S.ARCHIVING,
    # its dead letter
    (S.ARCHIVING, E.WRITE_DEAD_LETTER): S.ARCHIVED,
    # the log never had it, or moved away under it
    (S.AVAILABLE, E.MISSING): S.ARCHIVED,
    (S.AVAILABLE, E.LOG_START): S.ARCHIVED,
    (S.ACQUIRED, E.LOG_START): S.ARCHIVED,
    (S.IN_PROGRESS, E.LOG_START): S.ARCHIVED,
}

TERMINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})
HELD = frozenset({S.ACQUIRED, S.IN_PROGRESS})
"""The states of a record that a member holds, under a lock."""


def move(state: RecordState, event: Event) -> RecordState:
    """The state after ``event``.

    Raises:
        InvalidRecordState: the event can't happen to a record in ``state``.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidRecordState(what=f"a record in state {RecordState(state).name} can't {event.value}") from None
