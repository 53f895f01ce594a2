"""Locks: they are extended all at once (◆), and very many end in several rounds; times of another clock are bounded."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from coordinator.core.commands import Expire, ExtendDeadlines, membership
from coordinator.core.due_times import LockIndex
from coordinator.core.log_records import DeadlinesExtended, RunsChanged, SessionRenewed
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run, RunMap
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.messages import MarkInProgress, PartitionProgress, ProgressBatch
from tests.kip932.consumers import LOCK_MS, RELEASE, SESSION_MS, ShareConsumers, batch
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched


def scattered(records: int, **configs: object) -> ShareConsumers:
    """c1 holds every second record: each one is a run."""
    group = ShareConsumers(end=records, members=1, **configs)
    group.fetch("c1", records)
    group.acknowledge_batches(*(batch(at, at, RELEASE) for at in range(0, records, 2)))
    return group


def stall(group: ShareConsumers, ms: int) -> None:
    """Time in which the coordinator hears nobody."""
    group.now_ms += ms
    group.run(ExtendDeadlines(stalled_ms=ms))
    group.run(Expire())


def ends_ms(group: ShareConsumers) -> set[int]:
    """When the locks end, as people see it."""
    page = group.run(ListInFlight(group_id="billing", states=("ACQUIRED", "IN_PROGRESS")))
    return {run.lock_deadline_ms - group.now_ms for run in page.runs}


def deadlines(runs: Iterable[tuple[int, int, Run]]) -> set[int]:
    return {run.deadline_ms for _, _, run in runs if run.deadline_ms is not None}


@pytest.mark.parametrize("records", [4, 400])
def test_an_extension_changes_no_run(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group = scattered(records)
    appended: list[object] = []
    append = group.append
    monkeypatch.setattr(group, "append", lambda decided: (appended.extend(decided), append(decided)))
    with monkeypatch.context() as patch:
        patch.setattr(RunMap, "replace", lambda *_: pytest.fail("a run was changed"))
        patch.setattr(group, "check_recovery", lambda: None)
        group.now_ms += SESSION_MS
        group.run(ExtendDeadlines(stalled_ms=SESSION_MS))
    assert [type(record) for record in appended] == [SessionRenewed, DeadlinesExtended]
    assert ends_ms(group) == {SESSION_MS}


def test_the_log_has_deadlines_of_the_clock() -> None:
    group = scattered(10)
    stall(group, SESSION_MS)
    group.fetch("c1", 2)
    (logged,) = group.recovered().partitions.values()
    assert deadlines(logged.runs) == {group.now_ms + LOCK_MS, group.now_ms - SESSION_MS + LOCK_MS}, "as each was given"
    (kept,) = [record for record in snapshot_of(group.group) if isinstance(record, RunsChanged)]
    assert deadlines(kept.runs) == {group.now_ms + SESSION_MS, group.now_ms + LOCK_MS}


def test_the_lock_ends_of_many_stalls_are_distinguished() -> None:
    """A lock is given after each stall, and every stall gives all of them a session's time."""
    index = LockIndex()
    for number in range(1, 1_000):
        ((_, _, run),) = index.kept(((0, 0, Run(RecordState.ACQUIRED, 1, deadline_ms=number * 1_000)),))
        assert run.deadline_ms is not None and index.deadline_ms(run.deadline_ms) == number * 1_000
        index.watch(number, run.deadline_ms, range(1, number + 1))
        index.extend(0, number * 1_000 + 500)
        assert index.deadline_ms(run.deadline_ms) == number * 1_000 + 500 == index.next_ms()
    assert index.due(999_501) == set(range(1, 1_000))


@pytest.mark.parametrize("plan_ids", [None, {1}])
@pytest.mark.parametrize(
    ("ends_ms", "extended", "passed_ms", "next_ms"),
    [
        ((1_000, 5_000), (), 2_000, 5_000),
        ((1_000,), (), 1_000, 1_000),
        ((10_000,), (5_000, None), 12_000, 15_000),
        ((1_000,), (0, 10_000), 5_000, 10_000),
        ((1_000,), (0, 10_000), 10_000, 10_000),
        ((1_000,), (0, 10_000), 10_001, None),
    ],
)
def test_a_lock_that_has_not_ended_is_not_forgotten(
    ends_ms: tuple[int, ...],
    extended: tuple[int, int | None] | tuple[()],
    passed_ms: int,
    next_ms: int | None,
    plan_ids: set[int] | None,
) -> None:
    """An end may be extended, by a time or to a bound, and another lock of the plan may have ended."""
    index = LockIndex()
    for end_ms in ends_ms:
        index.watch(1, end_ms, {1})
    if extended:
        index.extend(*extended)
    index.passed(passed_ms, plan_ids)
    assert index.next_ms() == next_ms


def test_the_next_end_of_earlier_locks_is_their_earliest_end() -> None:
    index = LockIndex()
    index.watch(9_000, 100, ())  # a plan id beyond the time
    index.extend(0, bound_ms=50)
    assert index.next_ms() == 100


def ended_by_twos(group: GroupDriver) -> list[tuple[int, int]]:
    """The sessions and the records held that each round leaves, where two runs are the most that one ends."""
    left = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership, "MOST_ENDED_RUNS", 2)
        while (due_ms := group.group.next_deadline_ms()) is not None and due_ms <= group.now_ms:
            group.run(Expire())
            left.append((len(group.group.sessions), group.partition().acquired_count))
    return left


def five_locks_over() -> GroupDriver:
    """A group whose five locks, of ten records each, are over and not ended yet."""
    group = GroupDriver(records=50)
    group.join("c1", query=False)
    for _ in range(5):
        fetched(group, 10)
    group.now_ms += LOCK_MS + 1
    return group


def test_many_locks_that_end_at_once_end_over_several_rounds() -> None:
    group = five_locks_over()
    assert ended_by_twos(group) == [(1, 30), (1, 10), (1, 0)]


def test_a_crash_between_two_rounds_ends_each_lock_once() -> None:
    group = five_locks_over()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership, "MOST_ENDED_RUNS", 2)
        group.run(Expire())
    group.crash()
    held = [f"[{first}..{first + 9}] ACQUIRED 1 0 {first // 10 + 1}" for first in (20, 30, 40)]
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1", "[10..19] AVAILABLE 1 1 2", *held]
    group.pass_time(SESSION_MS + 1)
    assert group.dump() == [f"[{first}..{first + 9}] AVAILABLE 1 1 {first // 10 + 1}" for first in range(0, 50, 10)]


def test_many_sessions_that_end_at_once_end_over_several_rounds() -> None:
    group = GroupDriver(records=50)
    for number in range(5):
        group.join(f"c{number}", query=False)
        fetched(group, 10, member=f"c{number}")
    group.now_ms += SESSION_MS + 1
    assert ended_by_twos(group) == [(3, 30), (1, 10), (0, 0)]


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
