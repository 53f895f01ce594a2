"""A group's limits: what its window of a second may hold, and what is told. tests/scenarios has their rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.config.group_keys import IN_FLIGHT, PAUSED, RATE
from coordinator.core.commands import (
    AcquireForConsumer,
    AlterConfigs,
    InitializePartitions,
    PartitionBounds,
    PartitionStart,
    TopicWithId,
)
from coordinator.core.flow import Flow, flow_of
from coordinator.core.log_records import ConfigsAltered
from coordinator.core.recent_acquisitions import SECOND_MS, STEP_MS, RecentAcquisitions
from coordinator.core.record_codec import decode_record
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import GroupDriver
from tests.support.quarantine import quarantined_record


@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.one_of(st.integers(0, 30), st.integers(0, 1_500)), st.integers(1, 320)), max_size=200),
)
def test_a_second_has_no_more_than_the_rate_and_no_less(most: int, asked: list[tuple[int, int]]) -> None:
    """Against a plain list: what a step of 10 ms may cost is all that is refused too long."""
    recent, acquired, now_ms = RecentAcquisitions(), list[tuple[int, int]](), 1_000_000

    def within(ms: int) -> int:
        return sum(records for at_ms, records in acquired if at_ms > now_ms - ms)

    for pause_ms, wanted in asked:
        now_ms += pause_ms
        left, retry_ms = recent.left(most, now_ms)
        assert most - within(SECOND_MS + STEP_MS) <= left <= most - within(SECOND_MS)
        if not left:
            assert recent.left(most, now_ms + retry_ms - 1)[0] == 0 < recent.left(most, now_ms + retry_ms)[0]
        elif records := min(wanted, left):
            recent.add(now_ms, records)
            acquired.append((now_ms, records))


def test_the_window_is_closed_for_a_second_after_a_load() -> None:
    recent = RecentAcquisitions()
    recent.fill(1_000_000)
    assert [recent.left(5, ms) for ms in (1_000_000, 1_000_999, 1_001_000)] == [(0, 1_000), (0, 1), (5, 0)]


def test_a_second_s_acquisitions_take_bounded_room_and_older_ones_none() -> None:
    recent = RecentAcquisitions()
    recent.add(0, 5)
    for at_ms in range(SECOND_MS, 2 * SECOND_MS):
        recent.add(at_ms, 1)
    assert (
        repr(recent) == f"<RecentAcquisitions {[(at + STEP_MS - 1, STEP_MS) for at in range(1_000, 2_000, STEP_MS)]}>"
    )
    recent.add(2_999, 1)
    assert repr(recent) == "<RecentAcquisitions [(2999, 1)]>"


def test_the_smaller_of_what_two_limits_leave_may_be_acquired() -> None:
    group = GroupDriver(records=100, **{RATE: "5", IN_FLIGHT: "8"})
    group.join("a")
    assert flow_of(group.group, group.now_ms) == Flow(5)
    plan = group.next(member="a", limit=4).plan.plan_id
    assert flow_of(group.group, group.now_ms) == Flow(1)
    group.run(AlterConfigs(configs={RATE: "4"}))
    assert flow_of(group.group, group.now_ms) == Flow(0, RATE, SECOND_MS)
    group.run(AlterConfigs(configs={RATE: "1000", IN_FLIGHT: "5"}))
    assert flow_of(group.group, group.now_ms) == Flow(1)
    group.run(AlterConfigs(configs={IN_FLIGHT: "4"}))
    assert flow_of(group.group, group.now_ms) == Flow(0, IN_FLIGHT)
    group.complete(plan, "a")
    assert flow_of(group.group, group.now_ms) == Flow(4)


def asked(group: GroupDriver, member: str, *more: PartitionBounds) -> str:
    """What is in the way of a ShareConsumer that acquires nothing."""
    ask = {"group_id": "billing", "member_id": member, "member_epoch": group.epochs[member], "max_records": 4}
    return group.run(AcquireForConsumer(**ask, bounds=(*group.bounds(), *more))).limited_by


def test_a_pause_is_told_once_a_released_record_is_due() -> None:
    group = GroupDriver(records=1)
    group.join("a")
    group.join("c", query=False)
    group.start(plan := group.next(member="a").plan.plan_id, "a")
    group.stage(OutcomeRun(0, 0, 1, AcknowledgeType.RELEASE, delay_ms=10_000))
    group.complete(plan, "a")
    group.run(AlterConfigs(configs={PAUSED: "orders"}))
    assert (group.acquire(plan, "a").limited_by, asked(group, "c")) == ("", "")
    group.pass_time(10_000)
    assert (group.acquire(plan, "a").limited_by, asked(group, "c")) == (PAUSED, PAUSED)
    run_began_ms = group.now_ms - 1
    assert group.acquire(plan, "a", began_ms=run_began_ms).limited_by == "", "an AvailableNow run does not get it"


def test_a_pause_is_told_where_only_a_quarantined_record_is_left() -> None:
    group, _ = quarantined_record(2, records=1)
    group.join("c", query=False)
    group.run(AlterConfigs(configs={PAUSED: "orders"}))
    assert asked(group, "c") == PAUSED


def test_a_pause_is_told_only_where_its_topic_has_records() -> None:
    """The record of the other topic waits for its holder."""
    group = GroupDriver(records=10, **{"share.order": "partition", PAUSED: "clicks"})
    starts = (PartitionStart(topic_id="C", partition=0, start_offset=0),)
    group.run(InitializePartitions(topics=(TopicWithId(topic="clicks", topic_id="C"),), starts=starts))
    group.join("a", query=False)
    group.join("b", query=False)
    assert asked(group, "a") == ""
    told = [asked(group, "b", PartitionBounds(topic_id="C", partition=0, log_start=0, end=end)) for end in (0, 1)]
    assert told == ["", PAUSED]


def test_a_rate_is_told_though_the_first_record_waits() -> None:
    """An AvailableNow run would end without the other records."""
    group = GroupDriver(records=2, **{RATE: "1", "share.release.backoff.ms": "60000"})
    group.join("a")
    group.start(plan := group.next(member="a").plan.plan_id, "a")
    group.stage(OutcomeRun(0, 0, 1, AcknowledgeType.RELEASE))
    group.complete(plan, "a")
    reply = group.acquire(plan, "a")
    assert (reply.limited_by, reply.retry_ms) == (RATE, SECOND_MS)


def test_no_log_record_says_that_a_group_has_limits() -> None:
    """So an earlier version reads the log of a group with limits, and without them the log is as before."""
    logs = []
    for limits in ({}, {RATE: "1000", IN_FLIGHT: "1000", PAUSED: "clicks"}):
        group = GroupDriver(records=10, **limits)
        group.join("a")
        group.complete(group.next(member="a").plan.plan_id, "a")
        logs.append([data for data in group.log if not isinstance(decode_record(data), ConfigsAltered)])
    assert logs[0] == logs[1]
