"""The breaker on releases: a query whose service is away acquires later and less, and uses up no tries meanwhile."""

from __future__ import annotations

import pytest

from coordinator.core.looks.description import describe_group
from coordinator.core.looks.measures import MeasureGroup
from coordinator.core.release_breaker import SHORTEST_PAUSE_MS, Breaker
from coordinator.protocol.messages import LeaveGroup
from tests.support.group_driver import GroupDriver, ranges
from tests.support.sink_driver import RELEASE, batch, said

FIRST_MS = 10_000
STEADY = {"share.release.backoff.ms": str(FIRST_MS), "share.release.backoff.jitter": "0"}


def breaker(group: GroupDriver, member: str = "m1") -> Breaker:
    found = group.group.members[member].breaker
    assert found is not None
    return found


def opened(records: int = 40, **configs: str) -> tuple[GroupDriver, str]:
    """m1's sink released all records, so that its breaker is open; the group, and the completed plan's id."""
    group, plan = batch(records, **{**STEADY, **configs})
    group.stage(said(0, records - 1, RELEASE))
    group.complete(plan)
    return group, plan


def deliver(group: GroupDriver, start: str, outcome: int | None, member: str = "m1") -> str:
    """One batch of the member after the plan ``start``, whose sink decides all of its records so; the id of its plan,
    and ``start`` if there is none."""
    reply = group.acquire(start, member)
    plan = reply.plan.plan_id
    if not plan:
        return start
    group.start(plan, member)
    if outcome is not None:
        runs = [said(first, last, outcome, count) for first, last, count in ranges(reply)]
        group.stage(*runs)
    group.complete(plan, member)
    return plan


def most_releases(group: GroupDriver) -> int:
    return max((run.releases for _, _, run in group.partition().runs), default=0)


# --- when it opens, and when not


@pytest.mark.parametrize("gone", ["stopped", "nothing in flight"])
def test_a_query_that_acquires_nothing_is_not_described_as_slowed(gone: str) -> None:
    group, _ = opened(40)
    assert [slowed(group), group.run(MeasureGroup(group_id="billing")).slowed] == [["m1"], 1]
    if gone == "stopped":
        group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    else:
        group.move_log_start(group.partition().end_offset)
    assert group.group.members["m1"].breaker is not None
    assert [slowed(group), group.run(MeasureGroup(group_id="billing")).slowed] == [[], 0]


def slowed(group: GroupDriver) -> list[str]:
    return [member.member_id for member in describe_group(group.group).members if member.breaker is not None]


# --- outcomes while it is open


def test_no_release_uses_up_a_try_before_the_time_that_is_told() -> None:
    group, plan = opened(10)
    with group.unchecked():
        while most_releases(group) == 1:
            (member,) = describe_group(group.group).members
            assert member.breaker is not None
            told_ms = member.breaker.tries_kept_until_ms
            group.pass_time(max(0, member.breaker.until_ms - group.now_ms))
            group.join(process="kept")
            plan = deliver(group, plan, RELEASE)
    assert told_ms == group.now_ms, "the first plan of that time"


def test_short_pauses_end_the_keeping_of_tries_too() -> None:
    short = {"share.release.backoff.ms": "1", "share.release.backoff.max.ms": "1"}
    group, plan = opened(40, **short)
    group.pass_time(1)
    deliver(group, plan, RELEASE)
    assert breaker(group).paused_ms == 2 * SHORTEST_PAUSE_MS
