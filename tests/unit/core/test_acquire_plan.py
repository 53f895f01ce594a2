"""Acquiring a plan for a query: which partitions and records it takes, how many, and in which order."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched, offsets, ranges

RELEASE = 2


def scattered(records: int, **configs: str) -> GroupDriver:
    """Every other record was given back: as many runs as records."""
    group = GroupDriver(records=records, **configs)
    group.join("c1", query=False)
    fetched(group, records)
    for offset in range(0, records, 2):
        assert acknowledged(group, offset, offset, 1, RELEASE) == {}
    group.join()
    return group


def test_a_plan_has_no_more_ranges_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire_plan, "MAX_RANGES", 3)
    group = scattered(10)
    group.ends[0] = 20
    assert ranges(group.next()) == [(0, 0, 2), (2, 2, 2), (4, 4, 2)]
    fresh = GroupDriver(records=10, partitions=5)
    fresh.join()
    assert offsets(fresh.next()) == 30


def test_a_plan_takes_fresh_records_in_proportion_to_each_partitions_backlog() -> None:
    group = GroupDriver(partitions=2)
    group.ends = {0: 300, 1: 100}
    group.join()
    taken = group.next(limit=40)
    assert (ranges(taken, 0), ranges(taken, 1)) == ([(0, 29, 1)], [(0, 9, 1)])


@pytest.mark.parametrize("came_back", [10, 50])
def test_a_partition_without_room_does_not_hold_up_the_others(came_back: int) -> None:
    """The limit is lowered while as much is held, or more: what came back there waits, and the next partition gives."""
    group = GroupDriver(records=150, partitions=2)
    group.join("c1", query=False)
    for _ in group.ends:
        fetched(group, 150)
    acks = tuple(
        PartitionAcks(
            topic_id=TOPIC_ID, partition=p, batches=(AckBatch(first=0, last=last, delivery_count=1, types=(RELEASE,)),)
        )
        for p, last in ((0, came_back - 1), (1, 149))
    )
    group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=acks))
    group.run(AlterConfigs(configs={"share.partition.max.record.locks": "100"}))
    group.join()
    taken = group.next()
    assert (ranges(taken, 0), ranges(taken, 1)) == ([], [(0, 99, 2)])


def test_the_ranges_that_a_plan_still_holds_are_merged() -> None:
    group = GroupDriver(records=4)
    group.join("c1", query=False)
    fetched(group, 4)
    acknowledged(group, 0, 3, 1, RELEASE)
    group.ends[0] = 10
    group.join()
    taken = group.next()
    assert ranges(taken) == [(0, 3, 2), (4, 9, 1)]
    group.restart(taken.plan.plan_id)
    assert group.group.plans[2].ranges == ((TOPIC_ID, 0, ((0, 9),)),)
