"""A query's plan moves as the table of plan states says, and a request that the table does not allow is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from coordinator.core.plan_state import TRANSITIONS, PlanEvent, PlanState, after
from coordinator.protocol.errors import NoPlanToDecide, StalePlan
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, GroupDriver

S, E = PlanState, PlanEvent
PLAN = 2
"""The plan under test; plan 1 is completed before it."""


def acquired() -> GroupDriver:
    group = GroupDriver(records=100)
    group.join()
    group.start(group.acquire(limit=10).plan.plan_id)
    group.next("i.1", limit=20)
    return group


def started() -> GroupDriver:
    group = acquired()
    group.start("i.2")
    return group


def completed() -> GroupDriver:
    group = started()
    group.complete("i.2")
    return group


def superseded() -> GroupDriver:
    """Another member takes what plan 2 held, so that m1's next process gets plan 4 in its place."""
    group = acquired()
    supersede(group)
    return group


def supersede(group: GroupDriver) -> None:
    group.pass_time(SESSION_MS + 1)
    other = f"other-{len(group.epochs)}"
    group.join(other)
    group.acquire(member=other, limit=None)
    group.pass_time(SESSION_MS + 1)
    group.join()
    group.acquire("i.1", limit=20)


def replaced() -> GroupDriver:
    group = superseded()
    group.complete("i.4")
    return group


SET_UPS: dict[PlanState, Callable[[], GroupDriver]] = {
    S.ACQUIRED: acquired,
    S.STARTED: started,
    S.COMPLETED: completed,
    S.SUPERSEDED: superseded,
    S.REPLACED: replaced,
}


def report_loss(group: GroupDriver) -> None:
    group.join()
    group.move_log_start(100)
    group.start("i.2")


REQUESTS: dict[PlanEvent, Callable[[GroupDriver], object]] = {
    E.START: lambda group: group.start("i.2"),
    E.REPORT_LOSS: report_loss,
    E.STAGE: lambda group: group.stage(OutcomeRun(10, 10, 1, AcknowledgeType.REJECT)),
    E.COMPLETE: lambda group: group.complete("i.2"),
    E.ACQUIRE_NEXT: lambda group: group.acquire("i.2"),
}
"""The events that are requests which name the plan, or rows of it."""


def state(group: GroupDriver, plan_id: int | None = PLAN) -> PlanState:
    return group.group.members["m1"].plan_state(plan_id)


@pytest.mark.parametrize("before", S, ids=lambda before: before.name)
def test_each_state_can_be_reached(before):
    assert state(SET_UPS[before]()) is before


@pytest.mark.parametrize(
    ("before", "event"),
    list(product(S, REQUESTS)),
    ids=lambda value: value.name if isinstance(value, PlanEvent | S) else "",
)
def test_a_request_moves_the_plan_along_the_transition_table_or_is_refused(before, event):
    group = SET_UPS[before]()
    expected = after(before, event)
    if expected is None:
        with pytest.raises((StalePlan, NoPlanToDecide)):
            REQUESTS[event](group)
        assert state(group) is before
    else:
        REQUESTS[event](group)
        assert state(group) is expected


def test_acquiring_again_leaves_the_plan_acquired_in_any_process():
    group = acquired()
    for event in (E.RETURN, E.RECLAIM):
        assert group.acquire("i.1").plan.plan_id == "i.2"
        assert state(group) is TRANSITIONS[S.ACQUIRED, event]
        group.join()


def test_a_plan_without_records_left_is_superseded_and_stays_superseded():
    group = acquired()
    supersede(group)
    assert state(group) is TRANSITIONS[S.ACQUIRED, E.SUPERSEDE]
    supersede(group)
    assert (state(group), state(group, 4)) == (TRANSITIONS[S.SUPERSEDED, E.SUPERSEDE], S.SUPERSEDED)


@pytest.mark.parametrize("before", [S.ACQUIRED, S.STARTED], ids=lambda before: before.name)
def test_the_end_of_a_session_leaves_the_plan_in_its_state(before):
    group = SET_UPS[before]()
    group.pass_time(SESSION_MS + 1)
    assert state(group) is TRANSITIONS[before, E.LOSE_LOCKS]


def test_starting_a_superseded_plan_replaces_the_newest_plan():
    group = superseded()
    group.start("i.2")
    assert (state(group), state(group, 4)) == (S.STARTED, TRANSITIONS[S.ACQUIRED, E.REPLACE])


@pytest.mark.parametrize("event", [E.START, E.REPORT_LOSS, E.COMPLETE], ids=lambda event: event.name)
def test_a_superseded_plan_is_replaced_once_the_newest_plan_is_started(event):
    group = superseded()
    if event is E.REPORT_LOSS:
        group.move_log_start(100)
    if event is E.COMPLETE:
        group.complete("i.4")
    else:
        group.start("i.4")
    assert state(group) is TRANSITIONS[S.SUPERSEDED, E.REPLACE]


def test_a_completed_plan_is_replaced_when_a_later_plan_is_completed():
    group = completed()
    group.next("i.2", limit=20)
    assert state(group) is S.COMPLETED
    group.complete("i.3")
    assert state(group) is TRANSITIONS[S.COMPLETED, E.REPLACE]


def test_no_event_leads_out_of_replaced():
    assert not [event for before, event in TRANSITIONS if before is S.REPLACED]


def test_no_plan_counts_as_completed_until_a_plan_is():
    group = GroupDriver()
    group.join()
    assert state(group, None) is S.COMPLETED
    group.next()
    group.complete("i.1")
    assert state(group, None) is S.REPLACED
