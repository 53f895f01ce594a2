"""Signals of a query's tasks: seen beside the plan that they work on, and nothing else follows from them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.commands.report_progress import MOST_HOST_BYTES
from coordinator.core.replays.member_replay import MOST_TASKS
from coordinator.protocol.admin_messages import ListInFlight, ListPlans, PlanInFlight
from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, InvalidRequest, UnknownMemberId
from coordinator.protocol.messages import ReportProgress
from coordinator.protocol.values import MOST_HINT_BYTES
from tests.support.group_driver import SESSION_MS, GroupDriver, durable_state

LOOK = {"group_id": "billing"}


@pytest.fixture
def group() -> GroupDriver:
    """m1 has a batch of ten records, whose delivery has begun."""
    group = GroupDriver(records=100)
    group.join()
    group.acquire(limit=10)
    group.start("i.1")
    return group


def say(group: GroupDriver, hint: str | None = None, *, task: int = 7, plan: str = "i.1", **fields: Any) -> None:
    who = {"member_id": "m1", "member_epoch": group.epochs["m1"], "host": "host-1", **fields}
    group.run(ReportProgress(**LOOK, **who, plan_id=plan, task=task, hint=hint))


def plan_of(group: GroupDriver) -> PlanInFlight:
    (plan,) = group.run(ListPlans(**LOOK)).plans
    assert isinstance(plan, PlanInFlight)
    return plan


def test_signals_are_seen_beside_the_plan_the_newest_first(group: GroupDriver) -> None:
    began_ms = group.now_ms
    say(group, "page 1", task=7)
    group.pass_time(1_000)
    say(group, "page 5", task=8)
    say(group, "page 2", task=7)
    found = [(task.task, task.host, task.hint, task.first_ms, task.last_ms) for task in plan_of(group).tasks]
    assert found == [
        (7, "host-1", "page 2", began_ms, began_ms + 1_000),
        (8, "host-1", "page 5", began_ms + 1_000, began_ms + 1_000),
    ]
    assert plan_of(group).tasks_total == 2


def test_a_signal_without_a_hint_keeps_the_hint_before(group: GroupDriver) -> None:
    say(group, "page 1")
    say(group)
    say(group, task=8)
    assert [task.hint for task in plan_of(group).tasks] == ["", "page 1"]


def test_runs_in_flight_have_the_newest_signal(group: GroupDriver) -> None:
    say(group, "page 1", task=7)
    group.pass_time(1_000)
    say(group, "page 5", task=8)
    (run,) = group.run(ListInFlight(**LOOK)).runs
    assert (run.hint, run.first_signal_ms, run.last_signal_ms) == ("page 5", group.now_ms, group.now_ms)


def test_a_batch_with_new_signals_is_not_shown_as_stale(group: GroupDriver) -> None:
    group.pass_time(10_000)
    stale = ListInFlight(**LOOK, progress_staleness_ms=5_000)
    assert len(group.run(stale).runs) == 1
    say(group)
    assert group.run(stale).runs == ()


def test_signals_change_nothing_that_is_durable_and_hold_nothing(group: GroupDriver) -> None:
    before, appended = durable_state(group.group), len(group.log)
    group.pass_time(SESSION_MS)
    say(group, "page 1")
    assert (durable_state(group.group), len(group.log)) == (before, appended)
    group.pass_time(1)
    assert group.group.sessions == {}, "the session ends as without the signal"
    (run,) = group.run(ListInFlight(**LOOK)).runs
    assert (run.state, run.hint) == ("AVAILABLE", "")


def test_another_coordinator_begins_without_the_signals(group: GroupDriver) -> None:
    say(group, "page 1")
    group.crash()
    assert plan_of(group).tasks == ()


def test_a_replay_begins_without_the_signals_of_the_attempt_before(group: GroupDriver) -> None:
    say(group, "page 1")
    group.join()
    group.start("i.1")
    assert plan_of(group).tasks == ()
    say(group, "page 2")
    assert [task.hint for task in plan_of(group).tasks] == ["page 2"]


def test_a_completed_plan_takes_and_shows_no_signal(group: GroupDriver) -> None:
    say(group, "page 1")
    group.complete("i.1")
    assert plan_of(group).tasks == ()
    say(group, "page 2")
    assert plan_of(group).tasks == ()
    group.acquire("i.1", limit=10)
    say(group, "page 3", plan="i.1")
    assert plan_of(group).tasks == (), "the signal is of the plan before"


def test_a_plan_keeps_the_signals_of_a_bounded_number_of_tasks(group: GroupDriver) -> None:
    for task in range(MOST_TASKS + 50):
        say(group, task=task)
    plan = plan_of(group)
    assert (plan.tasks_total, len(plan.tasks), plan.tasks[0].task) == (MOST_TASKS, 10, MOST_TASKS + 49)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"member_epoch": 7}, FencedMemberEpoch, "m1"),
        ({"member_id": "m2"}, UnknownMemberId, "m2"),
        ({"plan": "other.1"}, ForeignPlan, "other"),
        ({"hint": "é" * (MOST_HINT_BYTES // 2 + 1)}, InvalidRequest, f"^The hint .* than {MOST_HINT_BYTES} bytes"),
        ({"host": "h" * (MOST_HOST_BYTES + 1)}, InvalidRequest, f"^The host .* than {MOST_HOST_BYTES} bytes"),
    ],
)
def test_a_foreign_or_too_long_signal_is_refused(
    group: GroupDriver, fields: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        say(group, **fields)
    assert plan_of(group).tasks == ()


def test_the_longest_hint_and_host_are_shown_whole(group: GroupDriver) -> None:
    hint, host = "é" * (MOST_HINT_BYTES // 2), "h" * MOST_HOST_BYTES
    say(group, hint, host=host)
    assert [(task.hint, task.host) for task in plan_of(group).tasks] == [(hint, host)]
