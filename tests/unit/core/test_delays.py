"""Records that are not available before a time."""

from __future__ import annotations

from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched, ranges


def test_a_delayed_record_is_acquired_at_its_time_in_offset_order() -> None:
    for query in (True, False):
        group = GroupDriver(records=10)
        group.join("m1", query=query)
        free = Run(RecordState.AVAILABLE, 1)
        runs = ((0, 3, free), (4, 5, free._replace(not_before_ms=group.now_ms + 500)), (6, 9, free))
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
        assert not group.group.may_rest(group.now_ms)
        group.now_ms += 500
        first = ranges(group.next()) if query else fetched(group, 10, "m1")
        assert first == [(0, 9, 2)], "neighbours of equal count are one range"


def test_a_delayed_record_is_not_acquired_before_its_time() -> None:
    for query in (True, False):
        group = GroupDriver(records=210)
        group.join("m1", query=query)
        free = Run(RecordState.AVAILABLE, 1)
        due, delayed = (free._replace(not_before_ms=group.now_ms + wait_ms) for wait_ms in (0, 1))
        runs = ((0, 199, free), (200, 203, delayed), (204, 209, due))
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
        assert (ranges(group.next()) if query else fetched(group, 500, "m1")) == [(0, 199, 2), (204, 209, 2)]


def test_a_reclaim_ends_the_delay() -> None:
    group = GroupDriver(records=4)
    group.join()
    plan = group.next().plan.plan_id
    group.join()
    delayed = Run(RecordState.AVAILABLE, 1, plan_id=1, not_before_ms=group.now_ms + 500)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 3, delayed),))])
    assert ranges(group.start(plan)) == [(0, 3, 2)]
    assert [run.not_before_ms for _, _, run in group.partition().runs] == [None]
