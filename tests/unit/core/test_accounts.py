"""Each offset from a share partition's first start offset to its end is accounted for: done, archived, removed by
Kafka, skipped by a reset, or still there."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.failed_deliveries import removed
from coordinator.core.left_out import count
from coordinator.core.log_records import PartitionInitialized
from coordinator.core.looks.description import describe_counts
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import Disposition
from tests.support import group_driver
from tests.support.group_driver import GroupDriver, acknowledged, fetched, started_plan


def consumer(**configs: str) -> GroupDriver:
    """A group of a ShareConsumer that holds the first ten of 100 records."""
    group = GroupDriver(records=100, **configs)
    group.join("c1", query=False)
    fetched(group, 10)
    return group


def acknowledge(group: GroupDriver, first: int, last: int, kind: int) -> None:
    assert not acknowledged(group, first, last, 1, kind)


def accounts(group: GroupDriver) -> dict[str, int]:
    """The counts that are not 0, after a check that they account for all offsets, also after a load."""
    partition = group.partition()
    assert partition.unaccounted == 0
    names = ("accepted", "removed", "deleted", "skipped", "repeated")
    again = ShareGroup("billing")
    for record in snapshot_of(group.group):
        replay(again, record)
    loaded = again.partitions[partition.key]
    for each in ("counts", "unaccounted", "first_offset"):
        assert getattr(loaded, each) == getattr(partition, each), each
    described = describe_counts(group.group)
    assert [getattr(described, name) for name in names] == [getattr(partition.counts, name) for name in names]
    return {name: number for name in names if (number := getattr(partition.counts, name))}


def test_done_records_are_accounted_for_by_what_became_of_them() -> None:
    group = consumer()
    acknowledge(group, 0, 3, 1)
    acknowledge(group, 4, 6, 3)
    acknowledge(group, 9, 9, 1)
    assert accounts(group) == {"accepted": 5}
    partition = group.partition()
    counts = partition.counts
    assert counts.archived[Disposition.REJECTED] == counts.without_dead_letter[Disposition.REJECTED] == 3


def test_what_kafka_removed_is_named_with_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    group = consumer()
    acknowledge(group, 0, 4, 2)
    named: list[Any] = []

    def noting(to: ShareGroup, record: Any) -> None:
        named.extend(removed(to, [record]) if to is group.group else ())
        replay(to, record)

    monkeypatch.setattr(group_driver, "replay", noting)
    group.move_log_start(30)
    assert count(named) == 20
    acknowledge(group, 5, 9, 2)
    assert sum(each.last - each.first + 1 for each in named[1:]) == 5


def test_a_run_across_the_log_start_is_counted_in_two_parts() -> None:
    """A plan holds records across the log start, and its start finds that Kafka has removed more of them."""
    group, plan = started_plan(10)
    group.move_log_start(4)
    group.log_starts[0] = 6
    group.restart(plan, fail_on_data_loss=False)
    counts = accounts(group)
    assert (counts["removed"], group.partition().counts.archived[Disposition.NONE]) == (6, 0)


def test_a_snapshot_of_before_there_were_counts_is_balanced() -> None:
    group = ShareGroup("billing")
    replay(group, PartitionInitialized(topic_id="t", partition=0, start_offset=50, end_offset=50, archived=(2, 3)))
    (partition,) = group.partitions.values()
    assert isinstance(partition, SharePartition) and partition.unaccounted == 0
