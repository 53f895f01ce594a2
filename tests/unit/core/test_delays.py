"""Records that are not available before a time."""

from __future__ import annotations

from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched, ranges


def partition(*runs: tuple[int, int, Run]) -> SharePartition:
    made = SharePartition(SharePartitionKey(TOPIC_ID, 0), 0)
    made.apply(runs)
    return made


def test_a_delayed_record_waits_until_its_time() -> None:
    """No command delays a record yet (releases with a delay will); the window knows them."""
    free = Run(RecordState.AVAILABLE, 1)
    delayed = partition((0, 4, free), (5, 9, free._replace(not_before_ms=500)))
    assert delayed.waits(499)
    assert not delayed.waits(500)
    aside = partition(
        (0, 0, free._replace(quarantined=True, not_before_ms=500)), (1, 1, free._replace(quarantined=True))
    )
    assert aside.waits(499)
    assert not aside.waits(500)
    assert not partition((0, 9, free)).waits(0)
    assert not partition((0, 0, free._replace(quarantined=True))).waits(0), "quarantined, and not yet tried alone"


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


def test_a_delayed_run_is_acquired_at_its_time() -> None:
    for query in (True, False):
        group = GroupDriver(records=4)
        group.join("m1", query=query)
        delayed = Run(RecordState.AVAILABLE, 1, not_before_ms=group.now_ms + 500)
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 3, delayed),))])
        for waited_ms, taken in ((499, []), (1, [(0, 3, 2)])):
            group.now_ms += waited_ms
            assert (ranges(group.next()) if query else fetched(group, 10, "m1")) == taken
