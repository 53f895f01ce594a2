"""A group's limits: what its window of a second may hold, and what is told. tests/scenarios has their rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.log_records import ConfigsAltered
from coordinator.core.recent_acquisitions import SECOND_MS, STEP_MS, RecentAcquisitions
from coordinator.core.record_codec import decode_record
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import GroupDriver

RATE = "share.max.records.per.second"


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
    for limits in ({}, {RATE: "1000", "share.max.in.flight.records": "1000", "share.paused.topics": "clicks"}):
        group = GroupDriver(records=10, **limits)
        group.join("a")
        group.complete(group.next(member="a").plan.plan_id, "a")
        logs.append([data for data in group.log if not isinstance(decode_record(data), ConfigsAltered)])
    assert logs[0] == logs[1]
