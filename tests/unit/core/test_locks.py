"""Acquisition locks: when a lock ends, for ShareConsumers (KIP-932, In-flight records) and for queries (◆)."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs, Expire, membership
from coordinator.protocol.messages import Heartbeat
from coordinator.protocol.values import AcknowledgeType
from tests.kip932.consumers import ACCEPT, LOCK_MS
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, holding, started_plan


def test_a_deadline_passes_when_the_time_is_after_it() -> None:
    group = holding()
    began_ms = group.now_ms
    assert group.group.next_deadline_ms() == began_ms + LOCK_MS + 1
    group.now_ms = began_ms + LOCK_MS
    group.run(Expire())
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.now_ms += 1
    group.run(Expire())
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]
    assert group.group.next_deadline_ms() == began_ms + SESSION_MS + 1
    group.now_ms = began_ms + SESSION_MS
    group.run(Expire())
    assert group.group.members["c1"].active
    group.now_ms += 1
    group.run(Expire())
    assert not group.group.members["c1"].active
    assert group.group.next_deadline_ms() is None


def test_plans_with_a_deadline_before_now_are_due() -> None:
    group = GroupDriver(records=100)
    group.join("c1", query=False)
    taken_ms = []
    for _ in range(10):
        fetched(group, 10)
        taken_ms.append(group.now_ms)
        group.now_ms += 100
    for gone in range(11):
        now_ms = taken_ms[0] + LOCK_MS + gone * 100
        assert group.group.locks.due(now_ms) == set(range(1, gone + 1))


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


def test_a_load_shortens_no_lock_that_was_given_under_a_longer_duration() -> None:
    group = holding(**{"share.record.lock.duration.ms": str(10 * SESSION_MS)})
    ends_ms = group.now_ms + 10 * SESSION_MS
    group.run(AlterConfigs(configs={"share.record.lock.duration.ms": str(LOCK_MS)}))
    group.crash()
    while group.now_ms + SESSION_MS // 2 < ends_ms:
        group.pass_time(SESSION_MS // 2)
        group.run(Heartbeat(group_id="billing", member_id="c1", member_epoch=1))
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.pass_time(ends_ms - group.now_ms + 1)
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]


def test_a_lock_whose_records_are_done_has_no_deadline() -> None:
    group = holding()
    assert acknowledged(group, 0, 9, 1, ACCEPT) == {}
    group.ends[0] = 20
    group.now_ms += 1_000
    fetched(group, 10)
    assert group.group.next_deadline_ms() == group.now_ms + LOCK_MS + 1


def test_limits_of_time_never_end_a_querys_lock() -> None:
    """KIP-932, In-flight records: ours differs for Spark's queries. A query's locks live as long as its session, so
    that a long batch keeps its records. ◆"""
    group, _ = started_plan()
    for _ in range(200):
        group.pass_time(SESSION_MS - 1_000)
        group.join(process="m1-process-1")
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]


def test_the_renewal_cap_never_applies_to_a_query() -> None:
    """KIP-1222, Proposed Changes: ours. A query holds its records as long as its session lives, with renewals or
    without. ◆"""
    group, _ = started_plan()
    for _ in range(60):
        group.pass_time(SESSION_MS - 1_000)
        group.join(process="m1-process-1")
        assert acknowledged(group, 0, 99, 1, AcknowledgeType.RENEW, "m1") == {}
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]


def test_a_plan_that_holds_nothing_any_more_takes_no_memory() -> None:
    group = holding()
    assert group.group.plans
    acknowledged(group, 0, 9, 1, ACCEPT)
    assert not group.group.plans
    assert not group.group.holders
