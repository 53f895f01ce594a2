"""The window from SPSO to SPEO, and the log that moves under it (KIP-932, In-flight records, Log retention)."""

from __future__ import annotations

import pytest

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey
from tests.kip932.consumers import ShareConsumers
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


def test_a_log_start_below_the_start_offset_changes_nothing() -> None:
    """KIP-932, Log retention: SPSO does not fall."""
    group = ShareConsumers(start=30)
    written = len(group.log)
    group.move_log_start(20)
    assert (group.window(), len(group.log)) == ((30, 30), written)


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
