"""The breaker on releases: a query whose service is away acquires later and less, and uses up no tries meanwhile."""

from __future__ import annotations

import pytest

from coordinator.core.looks.description import describe_group
from coordinator.core.looks.measures import MeasureGroup
from coordinator.core.release_breaker import PROBE_RECORDS, SHORTEST_PAUSE_MS, TRIES_KEPT_MS, Breaker
from coordinator.protocol.messages import LeaveGroup
from coordinator.protocol.values import OutcomeRun
from tests.support.group_driver import UNSET, GroupDriver, from_snapshot, offsets, ranges
from tests.support.sink_driver import ACCEPT, DLQ, RELEASE, batch, said, states

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


def outage(group: GroupDriver, plan: str, ms: int, members: tuple[str, ...] = ("m1",), step_ms: int = 1_000) -> str:
    """The service is away for so long; every sink releases all that it gets. The last plan of the first member."""
    plans = dict.fromkeys(members, "") | {members[0]: plan}
    until_ms = group.now_ms + ms
    while group.now_ms < until_ms:
        for member in members:
            group.join(member, process="kept")
            plans[member] = deliver(group, plans[member], RELEASE, member)
        group.pass_time(step_ms)
    return plans[members[0]]


# --- the breaker: later acquisitions, fewer of them, tries kept


def test_an_outage_of_an_hour_uses_up_one_try() -> None:
    group, plan = opened()
    with group.unchecked():
        plan = outage(group, plan, 3_600_000)
        assert most_releases(group) == 1
        assert group.partition().archived_total == 0
        group.pass_time(300_000)
        group.join("m1", process="kept")
        plan = deliver(group, plan, ACCEPT)
        assert deliver(group, plan, ACCEPT) != plan
    assert group.partition().counts.accepted == 40
    assert group.group.members["m1"].breaker is None


def test_pauses_grow_as_the_backoff_of_a_release() -> None:
    group, plan = opened()
    for pause_ms in (10_000, 20_000, 40_000):
        assert breaker(group).until_ms - group.now_ms == pause_ms
        group.pass_time(pause_ms - 1)
        assert group.acquire(plan).plan.plan_id == ""
        group.pass_time(1)
        group.join("m1", process="kept")
        plan = deliver(group, plan, RELEASE)
    for _ in range(3):
        group.pass_time(300_000)
        group.join("m1", process="kept")
        plan = deliver(group, plan, RELEASE)
    assert breaker(group).until_ms - group.now_ms == 300_000


def test_while_it_is_open_a_plan_is_small_then_large_again() -> None:
    group, plan = opened(40)
    group.ends[0] = 1_040
    group.pass_time(FIRST_MS)
    reply = group.acquire(plan)
    assert ranges(reply) == [(0, 4, 2), (40, 44, 1)], "half of them came back, half are fresh"
    assert offsets(reply) == PROBE_RECORDS
    group.start(reply.plan.plan_id)
    assert offsets(group.next(reply.plan.plan_id)) == 1_030


def test_records_that_are_bad_for_good_hold_up_no_others() -> None:
    group, plan = opened(40)
    group.ends[0] = 60
    group.pass_time(FIRST_MS)
    reply = group.acquire(plan)
    group.start(reply.plan.plan_id)
    group.stage(said(0, 4, RELEASE, 2), said(40, 44, ACCEPT))
    group.complete(reply.plan.plan_id)
    assert group.group.members["m1"].breaker is None


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


def test_a_veto_of_an_earlier_attempt_says_nothing_of_the_service() -> None:
    group, plan = batch(40, **STEADY)
    group.stage(said(0, 39, RELEASE))
    group.restart(plan)
    group.stage(said(0, 39, ACCEPT, 2))
    group.complete(plan)
    assert states(group) == ["[0..39] AVAILABLE 2"]
    assert group.group.members["m1"].breaker is None


def test_rows_that_contradict_each_other_say_nothing_of_the_service() -> None:
    group, plan = batch(40, **STEADY)
    group.stage(OutcomeRun(0, 39, 1, RELEASE, divided=True))
    group.complete(plan)
    assert states(group) == ["[0..39] AVAILABLE 1"]
    assert group.group.members["m1"].breaker is None


def test_by_default_it_is_there() -> None:
    group, plan = batch(40, **UNSET)
    group.stage(said(0, 39, RELEASE))
    group.complete(plan)
    assert 8_000 <= breaker(group).until_ms - group.now_ms <= 12_000


# --- outcomes while it is open


def test_after_a_day_of_pauses_releases_use_up_tries_again() -> None:
    """Everything ends: a queue of nothing but records that no sink accepts is given up."""
    group, plan = opened(5, **DLQ)
    assert group.group.members["m1"].breaker == Breaker(5, 5), "too few to say anything yet"
    with group.unchecked():
        plan = outage(group, plan, TRIES_KEPT_MS // 2, step_ms=60_000)
        assert most_releases(group) == 2
        outage(group, plan, TRIES_KEPT_MS, step_ms=60_000)
    assert group.partition().archiving_count == 5


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


# --- several queries


def test_a_second_query_of_the_service_uses_up_no_further_try() -> None:
    members = tuple(f"m{number}" for number in range(1, 9))
    group, plan = opened()
    with group.unchecked():
        outage(group, plan, 600_000, members)
        assert most_releases(group) == 1
        assert group.partition().archived_total == 0
        assert breaker(group, "m2").paused_ms > SHORTEST_PAUSE_MS


# --- crashes, restarts, clocks


def test_it_survives_a_takeover_a_snapshot_and_a_restart_of_the_query() -> None:
    group, plan = opened(40)
    before = breaker(group)
    group.crash()
    group.join(process="m1-again")
    assert breaker(group) == before
    from_snapshot(group)
    group.join(process="m1-again")
    assert breaker(group) == before
    assert group.acquire(plan).plan.plan_id == ""
    group.pass_time(FIRST_MS)
    assert ranges(group.acquire(plan)) == [(0, 4, 2)]


def test_a_crash_before_the_append_judges_the_batch_later() -> None:
    group, plan = batch(40, **STEADY)
    group.stage(said(0, 39, RELEASE))
    log = list(group.log)
    group.complete(plan)
    group.log = log
    group.crash()
    group.join(process="m1-process-1")
    assert group.group.members["m1"].breaker is None
    group.complete(plan)
    assert breaker(group).pauses == 1
    assert most_releases(group) == 1


def test_a_pause_of_another_clock_is_over() -> None:
    group, plan = opened(40)
    group.now_ms -= 3_600_000
    group.crash()
    group.join(process="m1-again")
    group.ends[0] = 50
    assert ranges(group.acquire(plan)) == [(40, 49, 1)]
    deliver(group, plan, RELEASE)
    assert breaker(group).since_ms <= group.now_ms
