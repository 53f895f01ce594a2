"""The lag of a share group (KIP-1226)."""

from __future__ import annotations

from tests.kip932.consumers import ACCEPT, ShareConsumers


def lag(group: ShareConsumers, partition: int = 0) -> int | None:
    return group.describe().partitions[partition].lag


def test_a_group_that_has_taken_nothing_lags_by_all_there_is() -> None:
    """KIP-1226, Share Partition Lag Computation: everything from SPSO to the end of the log."""
    assert lag(ShareConsumers(start=40, end=100)) == 60


def test_a_group_that_begins_at_the_end_has_no_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: what lies below SPSO was never the group's to deliver."""
    assert lag(ShareConsumers(start=100, end=100)) == 0


def test_each_partition_has_its_own_lag() -> None:
    """KIP-1226, Public Interfaces: lag is told for each share partition."""
    group = ShareConsumers(end=50, partitions=2)
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 5, 9, partition=1)
    assert [lag(group, partition) for partition in (0, 1)] == [50, 45]


def test_a_lag_that_cannot_be_known_is_none() -> None:
    """KIP-1226, Public Interfaces: where the end of the log is not known there is no lag (Kafka shows -1)."""
    group = ShareConsumers()
    group.ends.clear()
    assert lag(group) is None


def test_a_log_that_ends_before_the_window_has_no_negative_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: an end that was asked for before the last acquisition is answered
    late; the lag is 0 at least."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 0, 59)
    group.ends[0] = 50
    assert lag(group) == 0
