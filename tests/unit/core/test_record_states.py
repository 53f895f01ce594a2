"""The states of a record: every move that an event may make, and the protocol's numbers."""

from __future__ import annotations

from itertools import product

import pytest

from coordinator.core.record_state import Event, RecordState, move
from coordinator.protocol.errors import InvalidRecordState
from coordinator.protocol.values import AcknowledgeType

S, E = RecordState, Event
MOVES = {
    (S.AVAILABLE, E.ACQUIRE): S.ACQUIRED,
    (S.ACQUIRED, E.ACCEPT): S.ACKNOWLEDGED,
    (S.ACQUIRED, E.RELEASE): S.AVAILABLE,
    (S.ACQUIRED, E.REJECT): S.ARCHIVING,
    (S.ACQUIRED, E.GAP): S.ARCHIVED,
    (S.ACQUIRED, E.LOSE_LOCK): S.AVAILABLE,
    (S.ACQUIRED, E.LIMIT): S.ARCHIVING,
    (S.ACQUIRED, E.RENEW): S.ACQUIRED,
    (S.ARCHIVING, E.WRITE_DEAD_LETTER): S.ARCHIVED,
    (S.AVAILABLE, E.LOG_START): S.ARCHIVED,
    (S.ACQUIRED, E.LOG_START): S.ARCHIVED,
    # of records in progress
    (S.ACQUIRED, E.PROGRESS): S.IN_PROGRESS,
    (S.IN_PROGRESS, E.PROGRESS): S.IN_PROGRESS,
    (S.IN_PROGRESS, E.ACCEPT): S.ACKNOWLEDGED,
    (S.IN_PROGRESS, E.RELEASE): S.AVAILABLE,
    (S.IN_PROGRESS, E.REJECT): S.ARCHIVING,
    (S.IN_PROGRESS, E.GAP): S.ARCHIVED,
    (S.IN_PROGRESS, E.LOSE_LOCK): S.AVAILABLE,
    (S.IN_PROGRESS, E.LIMIT): S.ARCHIVING,
    (S.IN_PROGRESS, E.LOG_START): S.ARCHIVED,
    # of queries
    (S.AVAILABLE, E.RELEASE): S.AVAILABLE,
    (S.AVAILABLE, E.REJECT): S.ARCHIVING,
    (S.ACQUIRED, E.COMPLETE): S.ACKNOWLEDGED,
    (S.AVAILABLE, E.COMPLETE): S.ACKNOWLEDGED,
    (S.ACQUIRED, E.RECLAIM): S.ACQUIRED,
    (S.AVAILABLE, E.RECLAIM): S.ACQUIRED,
    (S.ACQUIRED, E.CUT): S.AVAILABLE,
    (S.AVAILABLE, E.CUT): S.AVAILABLE,
    (S.ACQUIRED, E.QUARANTINE): S.AVAILABLE,
    (S.AVAILABLE, E.QUARANTINE): S.AVAILABLE,
    (S.ACQUIRED, E.FAIL_TRIAL): S.ARCHIVING,
    (S.AVAILABLE, E.FAIL_TRIAL): S.ARCHIVING,
    (S.AVAILABLE, E.MISSING): S.ARCHIVED,
    (S.AVAILABLE, E.EXPIRE): S.ARCHIVING,
}
"""Archived is reached by way of ARCHIVING, in one step where no dead letter is wanted (KIP-1191). Moves of queries are
ours: a query whose lock ran out, and whose records no member took, completes or reclaims its batch all the same. A
record in progress is not renewed: signals extend its lock (KAFKA-20458)."""


def test_a_record_moves_only_along_the_allowed_transitions() -> None:
    """KIP-932, In-flight records: from Available a ShareConsumer can only acquire a record; from Acquired it is
    acknowledged, available again, or archived; nothing leaves the last two. Every other move is refused by name."""
    for state, event in product(RecordState, Event):
        if (state, event) in MOVES:
            assert move(state, event) == MOVES[state, event]
        else:
            with pytest.raises(InvalidRecordState, match=f"{state.name} can't {event.value}"):
                move(state, event)


def test_states_and_acknowledge_types_have_the_protocols_numbers() -> None:
    """KIP-932, Share-group state records and ShareAcknowledge API: the bytes by which states and types are known."""
    assert {state.name: int(state) for state in RecordState} == {
        "AVAILABLE": 0,
        "ACQUIRED": 1,
        "ACKNOWLEDGED": 2,
        "ARCHIVING": 3,
        "ARCHIVED": 4,
        "IN_PROGRESS": 5,
    }
    assert [(t.name, int(t)) for t in AcknowledgeType][:4] == [("GAP", 0), ("ACCEPT", 1), ("RELEASE", 2), ("REJECT", 3)]
