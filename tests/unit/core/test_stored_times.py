"""A load by an owner whose clock is behind, or before, the clock of the owner that wrote the times of the log."""

from __future__ import annotations

import pytest

from coordinator.core.commands import Expire, membership
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.messages import MarkInProgress, PartitionProgress, ProgressBatch
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched

NOW_MS = 1_800_000_000_000
BEGAN_MS = NOW_MS - 60_000
"""This far behind, a clock began in 1970, a minute ago."""
HOUR_MS = 3_600_000


def taken_over(group: GroupDriver, behind_ms: int) -> None:
    """Another owner, whose clock is behind, loads the group, and does what is due."""
    group.now_ms -= behind_ms
    group.crash()
    group.pass_time(0)
    assert not group.group.times_are_ahead


def consumers(**configs: str) -> GroupDriver:
    """c1 holds ten records."""
    group = GroupDriver(records=10, **configs)
    group.now_ms = NOW_MS
    group.join("c1", query=False)
    fetched(group, 10)
    return group


def wait_of(group: GroupDriver, offset: int) -> int:
    held = group.partition().runs.at(offset)
    assert held is not None
    return (held.run.not_before_ms or 0) - group.now_ms


def test_times_of_many_runs_are_bounded_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MOST_ENDED_RUNS", 2)
    group = GroupDriver(records=10)
    group.now_ms = NOW_MS
    runs = tuple((n, n, Run(RecordState.AVAILABLE, n + 1, not_before_ms=NOW_MS + 9, delay_ms=9)) for n in range(5))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
    group.now_ms -= HOUR_MS
    group.crash()
    for left in (3, 1, 0):
        group.run(Expire())
        assert [wait_of(group, n) > 9 for n in range(5)].count(True) == left
    assert not group.group.times_are_ahead


def signalled(group: GroupDriver) -> list[str]:
    """c1 says that it works on its first record; the errors."""
    batches = (ProgressBatch(first=0, last=0, delivery_count=1),)
    partitions = (PartitionProgress(topic_id=TOPIC_ID, partition=0, batches=batches),)
    epoch = group.epochs["c1"]
    reply = group.run(MarkInProgress(group_id="billing", member_id="c1", member_epoch=epoch, partitions=partitions))
    return [text for _, text in reply.errors.values()]


def lock_of(group: GroupDriver) -> int:
    """How long the lock of the first record still lasts."""
    held = group.partition().runs.at(0)
    assert held is not None and held.run.deadline_ms is not None
    return group.group.locks.deadline_ms(held.run.deadline_ms) - group.now_ms


def test_signals_extend_no_lock_for_longer_by_a_clock_that_is_behind() -> None:
    """Neither the lock that a signal gives, nor the time for which signals extend it."""
    stale_ms, longest_ms = 90_000, 600_000
    for behind_ms in (1, HOUR_MS, BEGAN_MS):
        group = consumers(**{"group.share.in.progress.max.lock.extension.ms": str(longest_ms)})
        signalled(group)
        taken_over(group, behind_ms)
        assert lock_of(group) == stale_ms
        group.join("c1", query=False)
        signalled(group)
        assert lock_of(group) == stale_ms
        group.now_ms += longest_ms + 1
        assert [error.split(":")[0] for error in signalled(group)] == ["LockExtensionOver"]
