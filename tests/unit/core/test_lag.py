"""The lag of a share group (KIP-1226)."""

from __future__ import annotations

from tests.kip932.consumers import ACCEPT, ShareConsumers


def lag(group: ShareConsumers, partition: int = 0) -> int | None:
    return group.describe().partitions[partition].lag


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
