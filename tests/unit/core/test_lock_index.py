"""Locks are extended all at once, for time in which nobody was heard (◆): no run changes, however many there are."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from coordinator.core.commands import Expire, ExtendDeadlines
from coordinator.core.due_times import LockIndex
from coordinator.core.log_records import DeadlinesExtended, RunsChanged, SessionRenewed
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run, RunMap
from coordinator.protocol.admin_messages import ListInFlight
from tests.kip932.consumers import LOCK_MS, RELEASE, SESSION_MS, ShareConsumers, batch


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
