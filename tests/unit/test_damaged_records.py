"""A replayed plan without the records that can't be read."""

from __future__ import annotations

import pytest

from coordinator.protocol.damaged_batch import Damage
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.values import AcquiredRange
from share_source import damaged_records
from share_source.damaged_records import MOST_OFFSETS, damaged_offsets, without
from share_source.offset_ranges import PartitionRanges
from share_source.range_reader import ReadTask

FOUND = {("orders", 0): [Damage(20, 29, -199, "changed on the disk")]}


def plan(*ranges: tuple[int, int, int]) -> PartitionPlan:
    return PartitionPlan(
        topic="orders", topic_id="T", partition=0, ranges=tuple(AcquiredRange(*each) for each in ranges)
    )


def task(*ranges: tuple[int, int, int]) -> ReadTask:
    part = PartitionRanges("orders", 0, tuple(AcquiredRange(*each) for each in ranges))
    return ReadTask(partitions=(part,), kafka_config={})


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ([(0, 49, 2)], [(0, 19, 2), (30, 49, 2)]),
        ([(20, 29, 2)], []),
        ([(0, 19, 2), (30, 49, 3)], [(0, 19, 2), (30, 49, 3)]),
        ([(0, 22, 2), (27, 49, 3)], [(0, 19, 2), (30, 49, 3)]),
    ],
)
def test_tasks_read_what_lies_beside_the_damage(ranges, kept) -> None:
    assert without([plan(*ranges)], FOUND) == ((plan(*kept),) if kept else ())


@pytest.mark.parametrize(
    ("ranges", "found"),
    [([(0, 49, 2)], FOUND), ([(0, 49, 1)], {}), ([(0, MOST_OFFSETS - 1, 2)], FOUND), ([(0, MOST_OFFSETS, 2)], {})],
    ids=["replayed", "first delivery", "the most", "too many"],
)
def test_only_a_replay_that_is_not_too_large_is_looked_through(monkeypatch, ranges, found) -> None:
    monkeypatch.setattr(damaged_records, "pass_through", lambda asked, _: {} if asked.fail_on_damage else FOUND)
    assert damaged_offsets(task(*ranges)) == found


def test_a_driver_that_cannot_read_leaves_it_to_the_tasks(monkeypatch) -> None:
    def away(*_: object) -> None:
        raise BrokerNotReachable(addresses="none", timeout_ms=1, reason="away")

    monkeypatch.setattr(damaged_records, "pass_through", away)
    assert damaged_offsets(task((0, 9, 2))) == {}
