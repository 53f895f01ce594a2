"""What a ShareConsumer is given of records that keep coming back: fewer each time, and alone at last."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AcquireForConsumer
from coordinator.core.record_state import RecordState
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Run
from coordinator.protocol.messages import PartitionBounds
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched


def came_back(tries: int, records: int, limit: int = 10, then: int = 0) -> GroupDriver:
    """So many records were given back so often; behind them are fresh ones, and ``then`` that came back once."""
    configs = {"share.delivery.count.limit": str(limit), "share.acquire.mode": "record_limit"}
    group = GroupDriver(records=100, **configs)
    group.join("c1", query=False)
    runs = [(0, records - 1, Run(RecordState.AVAILABLE, tries, releases=tries))]
    if then:
        runs.append((records, records + then - 1, Run(RecordState.AVAILABLE, 1, releases=1)))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=tuple(runs))])
    return group


@pytest.mark.parametrize(
    ("tries", "records", "given"),
    [
        (5, 64, 32),
        (6, 64, 16),
        (7, 64, 8),
        (8, 64, 4),
        (9, 64, 1),
        (5, 7, 3),
        (5, 2, 1),
        (5, 1, 1),
        (8, 3, 1),
        (9, 2, 1),
    ],
)
def test_from_half_of_the_tries_on_a_run_is_halved_each_time_and_nothing_else_is_given(
    tries: int, records: int, given: int
) -> None:
    group = came_back(tries, records, then=5)
    assert fetched(group, 100) == [(0, given - 1, tries + 1)]


@pytest.mark.parametrize(("tries", "limit"), [(4, 10), (2, 5), (1, 3), (1, 2)])
def test_before_that_fresh_records_come_with_it(tries: int, limit: int) -> None:
    assert fetched(came_back(tries, 10, limit), 20) == [(0, 9, tries + 1), (10, 19, 1)]


def test_a_run_that_is_throttled_is_not_given_behind_another() -> None:
    group = came_back(1, 4)
    throttled = Run(RecordState.AVAILABLE, 5, releases=5)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((4, 9, throttled),))])
    assert fetched(group, 100) == [(0, 3, 2)]
    assert fetched(group, 100) == [(4, 6, 6)]


@pytest.mark.parametrize(("asked", "given"), [(1, [(0, 0, 2)]), (4, [(0, 3, 2)]), (6, [(0, 3, 2), (4, 5, 1)])])
def test_no_more_is_given_than_asked_for(asked: int, given: list[tuple[int, int, int]]) -> None:
    assert fetched(came_back(1, 4), asked) == given


def test_a_limit_of_two_has_no_last_attempt_that_is_alone() -> None:
    group = came_back(2, 8, limit=3)
    assert fetched(group, 100) == [(0, 0, 3)], "a limit of three has"
    group = came_back(1, 8, limit=2)
    assert fetched(group, 8) == [(0, 7, 2)]
    group = came_back(2, 8, limit=2)
    assert fetched(group, 8) == [(0, 3, 3)], "the limit was lowered: halved, as any other"


def test_records_that_were_set_aside_together_are_given_one_by_one() -> None:
    group = GroupDriver(records=3)
    group.join("c1", query=False)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 2, aside),))])
    assert [fetched(group, 10) for _ in range(4)] == [[(0, 0, 6)], [(1, 1, 6)], [(2, 2, 6)], []]


def test_a_partition_that_is_not_the_groups_gives_nothing() -> None:
    group = came_back(1, 4)
    unknown = PartitionBounds(topic_id=TOPIC_ID, partition=9, log_start=0, end=10)
    command = AcquireForConsumer(
        group_id="billing", member_id="c1", member_epoch=1, max_records=4, bounds=(unknown, *group.bounds())
    )
    assert [p.partition for p in group.run(command).partitions] == [0]


def test_nothing_asked_for_is_nothing_given() -> None:
    assert fetched(came_back(1, 4), 0) == []


def one_aside(**configs: str) -> GroupDriver:
    """The first record is set aside, and nothing else came back."""
    group = GroupDriver(records=1, **configs)
    group.join("c1", query=False)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 0, aside),))])
    return group


def test_beyond_the_end_nothing_set_aside_is_given() -> None:
    group = one_aside()
    group.ends[0] = 0
    assert fetched(group, 10) == []
    group.ends[0] = 1
    assert fetched(group, 10) == [(0, 0, 6)]


@pytest.mark.parametrize(("held", "given"), [(99, [(0, 0, 6)]), (100, [])])
def test_a_record_that_was_set_aside_needs_room(held: int, given: list[tuple[int, int, int]]) -> None:
    group = one_aside(**{"share.partition.max.record.locks": "100"})
    group.ends[0] = held + 1
    assert fetched(group, held) == [(1, held, 1)]
    assert fetched(group, 10) == given


@pytest.mark.parametrize(("locks", "given"), [(101, 1), (102, 2), (103, 3)])
def test_the_lock_limit_holds_for_all_that_came_back_together(locks: int, given: int) -> None:
    group = GroupDriver(records=106, **{"share.partition.max.record.locks": str(locks)})
    group.join("c1", query=False)
    fetched(group, 100)
    runs = tuple((offset, offset, Run(RecordState.AVAILABLE, count)) for count, offset in enumerate(range(100, 106), 1))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
    assert fetched(group, 10) == [(100 + i, 100 + i, 2 + i) for i in range(given)]
    assert fetched(group, 10) == []


def test_a_fetch_that_is_full_takes_nothing_that_was_set_aside_from_the_next_partition() -> None:
    group = GroupDriver(records=5, partitions=2)
    group.join("c1", query=False)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=1, runs=((0, 0, aside),))])
    assert fetched(group, 5) == [(0, 4, 1)]
    assert group.partition(1).acquired_count == 0


def test_of_many_runs_that_came_back_the_first_are_given() -> None:
    group = GroupDriver(records=100, **{"share.acquire.mode": "record_limit"})
    group.join("c1", query=False)
    runs = tuple((offset, offset, Run(RecordState.AVAILABLE, 1, releases=offset % 2)) for offset in range(20))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
    assert fetched(group, 3) == [(0, 2, 2)]
