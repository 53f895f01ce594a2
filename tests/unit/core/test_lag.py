"""The lag of a share group (KIP-1226)."""

from __future__ import annotations

from tests.kip932.consumers import ACCEPT, GAP, LOCK_MS, REJECT, RELEASE, RENEW, ShareConsumers, batch


def lag(group: ShareConsumers, partition: int = 0) -> int | None:
    return group.describe().partitions[partition].lag


def test_a_group_that_has_taken_nothing_lags_by_all_there_is() -> None:
    """KIP-1226, Share Partition Lag Computation: everything from SPSO to the end of the log."""
    assert lag(ShareConsumers(start=40, end=100)) == 60


def test_a_group_that_begins_at_the_end_has_no_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: what lies below SPSO was never the group's to deliver."""
    assert lag(ShareConsumers(start=100, end=100)) == 0


def complete(group: ShareConsumers) -> int:
    return group.partition().delivery_complete_count


def test_acquired_records_are_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: a record that is Acquired is not done, however often it is renewed."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.acknowledge(RENEW, 0, 59)
    assert (lag(group), complete(group)) == (100, 0)


def test_the_start_offset_passes_completed_records_without_changing_the_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: when SPSO moves the lag stays what it is; a record is counted as done
    once, either below SPSO or beyond it."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 1, 39)
    group.acknowledge(ACCEPT, 50, 59)
    assert (lag(group), complete(group)) == (51, 49)
    group.acknowledge(ACCEPT, 0)
    assert (group.window(), lag(group), complete(group)) == ((40, 60), 50, 10)
    group.acknowledge(ACCEPT, 40, 49)
    assert (group.window(), lag(group), complete(group)) == ((60, 60), 40, 0)


def test_each_gap_in_the_window_leaves_its_records_in_the_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: the records that are done may lie anywhere in the window, in any
    number of pieces; the lag is what lies between them and after them."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    for first in range(0, 60, 6):
        group.acknowledge(ACCEPT, first + 3, first + 5)
    assert (lag(group), complete(group)) == (70, 30)
    group.acknowledge(RELEASE, 0, 2)
    group.wait(LOCK_MS + 1)
    assert (lag(group), complete(group)) == (70, 30)


def test_gaps_are_lag_until_a_member_has_found_them() -> None:
    """KIP-1226, Share Partition Lag Computation: compaction's gaps count as records until they are found to be none;
    then they are Archived, and done."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    assert lag(group) == 100
    group.acknowledge_batches(batch(10, 13, GAP, ACCEPT, GAP, GAP), batch(20, 29, GAP))
    assert (lag(group), complete(group)) == (86, 14)


def test_records_that_the_log_lost_are_no_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: SPSO follows the log start; what was done below it is not taken off
    twice."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 10, 39)
    group.acknowledge(RELEASE, 0, 9)
    assert (lag(group), complete(group)) == (70, 30)
    group.move_log_start(5)
    assert (lag(group), complete(group)) == (65, 30)
    group.move_log_start(30)
    assert (group.window(), lag(group), complete(group)) == ((40, 60), 60, 0)


def test_records_held_below_the_log_start_are_no_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: SPSO has passed it, and when it is done that changes nothing."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.move_log_start(20)
    assert (lag(group), complete(group)) == (80, 0)
    group.acknowledge(ACCEPT, 0, 19)
    assert (lag(group), complete(group)) == (80, 0)


def test_archiving_at_the_delivery_limit_takes_a_record_off() -> None:
    """KIP-1226, Share Partition Lag Computation: a record that nobody could process is delivered to completion."""
    group = ShareConsumers(share_delivery_count_limit=2)
    for count in (1, 2):
        group.fetch("c1", 10 if count == 1 else 1)
        group.acknowledge(RELEASE, 5, count=count)
    assert group.states() == ["0-4 ACQUIRED 1", "5 ARCHIVED 2", "6-9 ACQUIRED 1"]
    assert (lag(group), complete(group)) == (99, 1)


def test_each_partition_has_its_own_lag() -> None:
    """KIP-1226, Public Interfaces: lag is told for each share partition."""
    group = ShareConsumers(end=50, partitions=2)
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 5, 9, partition=1)
    assert [lag(group, partition) for partition in (0, 1)] == [50, 45]


def test_the_lag_is_durable() -> None:
    """KIP-1226, Proposed Changes: what the lag is computed from outlives the coordinator."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 10, 39)
    group.acknowledge(REJECT, 45)
    group.crash()
    assert (lag(group), complete(group)) == (69, 31)


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
