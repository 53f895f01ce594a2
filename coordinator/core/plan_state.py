"""The state machine of a query's plan: which events each state allows, and the state after each event.

A plan is ACQUIRED when its ranges are durable, and STARTED when its delivery is durably marked as begun: from then on a
replay of its batch counts as a failure. It is COMPLETED when Spark has committed the batch. A later process of the same
query reclaims the plan from ACQUIRED or STARTED under the same plan id.

A plan that was never started, and of which nothing is left to read, is SUPERSEDED by the query's next plan. A driver
that was paused meanwhile may still write the superseded plan to Spark's log. So that plan may still be started, empty,
until somebody begins to read the next plan; then the next plan is REPLACED. A REPLACED plan never comes back: each
request that names it is refused. The group stores nothing of a REPLACED plan, so every unknown plan id counts as
REPLACED.

:meth:`coordinator.core.members.Member.plan_state` derives the state from what a member stores. A ShareConsumer's
acquisition has no such states: its records are acknowledged one by one.
"""

from __future__ import annotations

from enum import Enum


class PlanState(Enum):
    """The states of a query's plan."""

    __hash__ = object.__hash__  # Enum's own is Python code

    ACQUIRED = "acquired"
    STARTED = "started"
    COMPLETED = "completed"
    SUPERSEDED = "superseded"
    REPLACED = "replaced"


class PlanEvent(Enum):
    """Events of a query's plan; the value is the label in the docs' diagram.

    Commands ask :func:`after` about six events, and are refused if the table lacks the event: RETURN (whenever a plan
    is acquired again), START, REPORT_LOSS, STAGE, COMPLETE and ACQUIRE_NEXT. The others follow from log records and
    can't be refused; tests compare them with the table:

    - RECLAIM and SUPERSEDE: a RETURN gives a later process the plan (PlanStarted), or another one (PlanAcquired).
    - LOSE_LOCKS: a session ends (SessionEnded).
    - REPLACE: another plan is started or completed (PlanStarted, PlanCompleted).
    """

    __hash__ = object.__hash__

    RETURN = "acquire again"
    RECLAIM = "reclaim"
    SUPERSEDE = "nothing left to read"
    START = "start"
    REPORT_LOSS = "data loss at start"
    STAGE = "stage outcomes"
    LOSE_LOCKS = "session ends"
    COMPLETE = "complete"
    ACQUIRE_NEXT = "acquire next"
    REPLACE = "another plan replaces it"


S, E = PlanState, PlanEvent

TRANSITIONS: dict[tuple[PlanState, PlanEvent], PlanState] = {
    # the query asks for a plan, and has a plan that nobody began to read
    (S.ACQUIRED, E.RETURN): S.ACQUIRED,
    (S.ACQUIRED, E.RECLAIM): S.ACQUIRED,
    (S.ACQUIRED, E.SUPERSEDE): S.SUPERSEDED,
    (S.SUPERSEDED, E.SUPERSEDE): S.SUPERSEDED,
    # Spark asks for the tasks of the batch, for the first time or for a replay; if that fails for lost data, nothing is
    # read, so no delivery has begun
    (S.ACQUIRED, E.START): S.STARTED,
    (S.STARTED, E.START): S.STARTED,
    (S.SUPERSEDED, E.START): S.STARTED,
    (S.ACQUIRED, E.REPORT_LOSS): S.ACQUIRED,
    (S.STARTED, E.REPORT_LOSS): S.ACQUIRED,
    (S.SUPERSEDED, E.REPORT_LOSS): S.ACQUIRED,
    # a sink's rows
    (S.STARTED, E.STAGE): S.STARTED,
    # the query is away, and may come back to its plan
    (S.ACQUIRED, E.LOSE_LOCKS): S.ACQUIRED,
    (S.STARTED, E.LOSE_LOCKS): S.STARTED,
    # Spark has committed the batch, which it may do without reading it; completing twice is harmless
    (S.ACQUIRED, E.COMPLETE): S.COMPLETED,
    (S.STARTED, E.COMPLETE): S.COMPLETED,
    (S.COMPLETED, E.COMPLETE): S.COMPLETED,
    (S.COMPLETED, E.ACQUIRE_NEXT): S.COMPLETED,
    # a superseded plan was started instead; the plan after it was started, reported a loss, or was completed; a later
    # plan was completed
    (S.ACQUIRED, E.REPLACE): S.REPLACED,
    (S.SUPERSEDED, E.REPLACE): S.REPLACED,
    (S.COMPLETED, E.REPLACE): S.REPLACED,
}


def after(state: PlanState, event: PlanEvent) -> PlanState | None:
    """Returns the state after ``event``; None if a plan in ``state`` does not allow the event: refuse the command
    then."""
    return TRANSITIONS.get((state, event))
