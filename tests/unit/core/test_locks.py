"""Acquisition locks: when a lock ends, for ShareConsumers (KIP-932, In-flight records) and for queries (◆)."""

from __future__ import annotations

import pytest

from coordinator.core.commands import Expire, membership
from tests.kip932.consumers import LOCK_MS
from tests.support.group_driver import SESSION_MS, GroupDriver, fetched


def ended_by_twos(group: GroupDriver) -> list[tuple[int, int]]:
    """The sessions and the records held that each round leaves, where two runs are the most that one ends."""
    left = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(membership, "MOST_ENDED_RUNS", 2)
        while (due_ms := group.group.next_deadline_ms()) is not None and due_ms <= group.now_ms:
            group.run(Expire())
            left.append((len(group.group.sessions), group.partition().acquired_count))
    return left


def test_many_locks_that_end_at_once_end_over_several_rounds() -> None:
    group = GroupDriver(records=50)
    group.join("c1", query=False)
    for _ in range(5):
        fetched(group, 10)
    group.now_ms += LOCK_MS + 1
    assert ended_by_twos(group) == [(1, 30), (1, 10), (1, 0)]


def test_a_crash_between_two_rounds_ends_each_lock_once() -> None:
    group = GroupDriver(records=50)
    group.join("c1", query=False)
    for _ in range(5):
        fetched(group, 10)
    group.now_ms += LOCK_MS + 1
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
