"""The window from SPSO to SPEO, and the log that moves under it (KIP-932, In-flight records, Log retention)."""

from __future__ import annotations

import pytest

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey
from tests.kip932.consumers import ACCEPT, GAP, REJECT, RELEASE, ShareConsumers, batch
from tests.kip932.failed_deliveries import Failure, each_failure
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched


@pytest.mark.parametrize(("first", "last", "state"), [(5, 4, RecordState.ACQUIRED), (2, 3, RecordState.AVAILABLE)])
def test_damaged_state_is_never_served(first: int, last: int, state: RecordState) -> None:
    partition = SharePartition(SharePartitionKey(TOPIC_ID, 0), 3)
    with pytest.raises(ValueError, match=f"can't hold {first}-{last} as {state.name}"):
        partition.apply([(first, last, Run(state))])
    assert len(partition.runs) == 0


def test_equal_neighbours_are_one_run() -> None:
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 10)
    for offset in (5, 6):
        assert acknowledged(group, offset, offset, 1, 1) == {}
    assert group.dump() == ["[0..4] ACQUIRED 1 0 1", "[5..6] ACKNOWLEDGED 1 0 -", "[7..9] ACQUIRED 1 0 1"]


def test_the_window_begins_empty() -> None:
    """KIP-932, In-flight records: SPSO and SPEO begin at the start offset, with nothing between them."""
    assert ShareConsumers(start=40).window() == (40, 40)


def test_the_end_offset_moves_with_fresh_records() -> None:
    """KIP-932, In-flight records: SPEO moves when records are acquired that never were before, and only then."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    assert group.window() == (0, 10)
    group.acknowledge(RELEASE, 0, 9)
    group.fetch("c2", 10)
    assert group.window() == (0, 10)


def test_the_start_offset_moves_over_records_that_are_done() -> None:
    """KIP-932, In-flight records: SPSO is the first offset that is neither Acknowledged nor Archived; it moves over
    all that became so in a row. Nothing in between is forgotten meanwhile."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.acknowledge(ACCEPT, 3, 5)
    group.acknowledge(REJECT, 6)
    assert (group.window(), group.states()) == (
        (0, 10),
        ["0-2 ACQUIRED 1", "3-5 ACKNOWLEDGED 1", "6 ARCHIVED 1", "7-9 ACQUIRED 1"],
    )
    group.acknowledge(ACCEPT, 0, 2)
    assert (group.window(), group.states()) == ((7, 10), ["7-9 ACQUIRED 1"])
    group.acknowledge(RELEASE, 7)
    group.acknowledge(ACCEPT, 8, 9)
    assert group.window() == (7, 10)


def test_an_empty_window_is_at_its_end() -> None:
    """KIP-932, In-flight records: when everything is done SPSO has reached SPEO, and the next records are fresh."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(ACCEPT, 0, 9)
    assert (group.window(), group.states()) == ((10, 10), [])
    assert group.fetch("c1", 10) == [(10, 19, 1)]


def test_the_start_offset_follows_the_log_start() -> None:
    """KIP-932, Log retention: SPSO is never below the log's first offset; Available records below are Archived."""
    group = ShareConsumers(end=20)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.move_log_start(4)
    assert (group.window(), group.states()) == ((4, 10), ["4-9 AVAILABLE 1"])
    assert group.describe().partitions[0].archived_total == 4


def test_a_log_start_beyond_the_window_moves_the_whole_window() -> None:
    """KIP-932, Log retention: a log that lost more than was ever delivered is delivered from its first offset on."""
    group = ShareConsumers(end=60)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.move_log_start(50)
    assert (group.window(), group.states()) == ((50, 50), [])
    assert group.fetch() == [(50, 59, 1)]


def test_a_log_start_below_the_start_offset_changes_nothing() -> None:
    """KIP-932, Log retention: SPSO does not fall."""
    group = ShareConsumers(start=30)
    written = len(group.log)
    group.move_log_start(20)
    assert (group.window(), len(group.log)) == ((30, 30), written)


def test_a_consumer_keeps_records_that_the_log_has_lost() -> None:
    """KIP-932, Log retention: a consumer that has a record can finish with it though the log no longer has it, and is
    told of no error."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.move_log_start(4)
    assert (group.window(), group.held()) == ((4, 10), ["0-9 c1"])
    assert group.acknowledge(ACCEPT, 0, 9) == "NONE"
    assert (group.window(), group.states()) == ((10, 10), [])


@each_failure
def test_records_that_the_log_has_lost_are_not_delivered_again(fail: Failure) -> None:
    """KIP-932, Log retention: a record below the log start whose delivery fails is Archived, whatever its count."""
    group = ShareConsumers(end=5)
    group.fetch("c1", 1)
    group.move_log_start(1)
    assert group.held() == ["0 c1"]
    fail(group, 1)
    assert (group.states(), group.describe().partitions[0].archived_total) == ([], 1)
    assert group.fetch("c2") == [(1, 4, 1)]


def test_gaps_in_the_log_hold_nothing_up() -> None:
    """KIP-932, Log compaction: offsets without a record are acquired with the others; the consumer that finds none
    says GAP, and they are Archived, so that SPSO moves over them."""
    group = ShareConsumers(end=10)
    assert group.fetch() == [(0, 9, 1)]
    assert group.acknowledge_batches(batch(0, 3, ACCEPT, GAP, GAP, ACCEPT), batch(4, 9, GAP)) == "NONE"
    assert (group.window(), group.describe().partitions[0].archived_total) == ((10, 10), 8)
