"""A load by an owner whose clock is behind, or before, the clock of the owner that wrote the times of the log."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs, Expire, membership
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.messages import Heartbeat, MarkInProgress, PartitionProgress, ProgressBatch
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, acknowledged, fetched

NOW_MS = 1_800_000_000_000
BEGAN_MS = NOW_MS - 60_000
"""This far behind, a clock began in 1970, a minute ago."""
HOUR_MS = 3_600_000
BACKOFF_MS = 10_000
LOCK_MS = 30_000
BEHIND = pytest.mark.parametrize(
    "behind_ms", [1, HOUR_MS, 365 * 24 * HOUR_MS, BEGAN_MS], ids=["1 ms", "1 h", "1 y", "1970"]
)
"""How far the second owner's clock is behind, in ms."""
DELAYED = {"share.release.backoff.ms": str(BACKOFF_MS), "share.release.backoff.jitter": "0"}


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


@BEHIND
def test_a_backoff_is_no_longer_by_a_clock_that_is_behind(behind_ms: int) -> None:
    group = consumers(**DELAYED)
    acknowledged(group, 0, 9, 1, AcknowledgeType.RELEASE)
    assert wait_of(group, 0) == BACKOFF_MS
    taken_over(group, behind_ms)
    assert wait_of(group, 0) == BACKOFF_MS
    group.pass_time(BACKOFF_MS)
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 9, 2)]


@BEHIND
def test_a_sinks_delay_is_no_longer_by_a_clock_that_is_behind(behind_ms: int) -> None:
    """Of a batch that was completed, and of one that is completed after the load."""
    for completed in (True, False):
        group = GroupDriver(records=10, **DELAYED)
        group.now_ms = NOW_MS
        group.join()
        plan = group.next().plan.plan_id
        group.start(plan)
        group.stage(OutcomeRun(0, 9, 1, AcknowledgeType.RELEASE, delay_ms=HOUR_MS))
        if completed:
            group.complete(plan)
        group.pass_time(1_000)
        taken_over(group, behind_ms)
        group.join()
        if not completed:
            group.complete(plan)
        assert HOUR_MS - 1_000 <= wait_of(group, 0) <= HOUR_MS


@BEHIND
def test_a_lock_is_no_longer_by_a_clock_that_is_behind(behind_ms: int) -> None:
    group = consumers()
    taken_over(group, behind_ms)
    group.pass_time(SESSION_MS - 1)
    group.run(Heartbeat(group_id="billing", member_id="c1", member_epoch=1))
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.pass_time(2)
    assert group.group.members["c1"].active
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]


def test_a_longer_lock_keeps_its_length_by_any_clock() -> None:
    """The lock duration was altered since it was given."""
    for behind_ms in (1, HOUR_MS, BEGAN_MS):
        group = consumers(**{"share.record.lock.duration.ms": str(10 * SESSION_MS)})
        group.run(AlterConfigs(configs={"share.record.lock.duration.ms": str(LOCK_MS)}))
        taken_over(group, behind_ms)
        assert group.group.locks.next_ms() == group.now_ms + 10 * SESSION_MS


@BEHIND
def test_a_quarantined_record_is_tried_by_the_clock_of_its_owner(behind_ms: int) -> None:
    group = GroupDriver(records=3, **{"errors.deadletterqueue.topic.name": "dlq"})
    group.now_ms = NOW_MS
    aside = Run(
        RecordState.AVAILABLE,
        6,
        failures=6,
        quarantined=True,
        failed_alone_ms=NOW_MS,
        last_tried_ms=NOW_MS,
        not_before_ms=NOW_MS + 2_000,
        delay_ms=2_000,
    )
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 0, aside),))])
    taken_over(group, behind_ms)
    held = group.partition().runs.at(0)
    assert held is not None
    assert (held.run.failed_alone_ms, held.run.last_tried_ms) == (group.now_ms, group.now_ms)
    assert wait_of(group, 0) == 2_000
    assert group.group.partitions and not group.group.may_rest(group.now_ms)
    group.pass_time(2_000)
    assert group.group.may_rest(group.now_ms), "an on-demand coordinator leaves"


def test_a_delay_of_unknown_length_ends_after_the_longest() -> None:
    """A version that did not store the length wrote it."""
    for quarantined, longest_ms in ((False, 2**31 - 1), (True, 30_000)):
        group = GroupDriver(records=3)
        group.now_ms = NOW_MS
        delayed = Run(RecordState.AVAILABLE, 1, not_before_ms=NOW_MS + 5_000, quarantined=quarantined)
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 0, delayed),))])
        group.crash()
        assert wait_of(group, 0) == 5_000, "a clock in step changes nothing"
        taken_over(group, BEGAN_MS)
        assert wait_of(group, 0) == longest_ms


def test_a_clock_that_is_ahead_ends_delays_and_leaves_locks_a_session() -> None:
    group = consumers(**DELAYED)
    acknowledged(group, 0, 4, 1, AcknowledgeType.RELEASE)
    taken_over(group, -HOUR_MS)
    assert wait_of(group, 0) < 0
    group.pass_time(SESSION_MS)
    assert group.dump() == ["[0..4] AVAILABLE 1 0 -", "[5..9] ACQUIRED 1 0 1"]
    group.pass_time(1)
    assert group.dump() == ["[0..4] AVAILABLE 1 0 -", "[5..9] AVAILABLE 1 1 1"]


def test_bounded_times_are_in_the_log_and_a_crash_before_loses_nothing() -> None:
    group = consumers(**DELAYED)
    acknowledged(group, 0, 4, 1, AcknowledgeType.RELEASE)
    before = list(group.log)
    group.now_ms -= HOUR_MS
    for _ in range(2):
        group.crash()
        assert group.group.next_deadline_ms() == 1, "due at once"
    assert (group.log, wait_of(group, 0)) == (before, HOUR_MS + BACKOFF_MS)
    group.pass_time(0)
    group.crash()
    assert (len(group.log), wait_of(group, 0)) == (len(before) + 1, BACKOFF_MS)
    assert not group.group.times_are_ahead
    group.join("c1", query=False)
    group.pass_time(BACKOFF_MS)
    assert fetched(group, 5) == [(0, 4, 2)]
    acknowledged(group, 0, 4, 2, AcknowledgeType.ACCEPT)
    acknowledged(group, 5, 9, 1, AcknowledgeType.ACCEPT)
    assert group.partition().start_offset == 10


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


@BEHIND
@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("lock", ["plain", "renewed", "in progress"])
def test_no_lock_ends_earlier_by_clocks_that_are_behind(behind_ms: int, lock: str, has_snapshot: bool) -> None:
    """Two owners after each other have clocks that are behind, the second further than the first."""
    lock_ms, worked_ms = 10 * SESSION_MS, 2 * SESSION_MS
    stale = "group.share.in.progress.staleness.threshold.ms"
    group = consumers(**{"share.record.lock.duration.ms": str(lock_ms), stale: str(lock_ms)})
    group.now_ms += worked_ms
    group.join("c1", query=False)
    if lock == "renewed":
        acknowledged(group, 0, 0, 1, AcknowledgeType.RENEW)
    elif lock == "in progress":
        signalled(group)
    left_ms = lock_of(group)
    for behind in (behind_ms, min(behind_ms, 60_000)):
        if has_snapshot:
            group.log = encode_records(snapshot_of(group.group))
        group.now_ms += 1_000
        left_ms -= 1_000
        forgotten_ms = worked_ms if lock == "renewed" and not has_snapshot else 0
        group.now_ms -= behind
        group.crash()
        assert left_ms - forgotten_ms <= lock_of(group) <= lock_ms + worked_ms, behind
        group.pass_time(0)
