"""◆ Plans: durable, numbered, reclaimed by whoever carries the plan id, and refused by name when they are old."""

from __future__ import annotations

import pytest

from coordinator.core.log_records import PlanAcquired, PlanStarted
from coordinator.core.record_codec import decode_record
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import ForeignPlan, StalePlan
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import (
    SESSION_MS,
    GroupDriver,
    acknowledged,
    fetched,
    from_snapshot,
    offsets,
    ranges,
    started_plan,
)


@pytest.mark.parametrize("number", ["j.1", "i.x", "i.", "1", "i.1.1"])
def test_a_plan_id_of_another_incarnation_is_refused(number: str) -> None:
    group, _ = started_plan()
    with pytest.raises(ForeignPlan) as refused:
        group.start(number)
    assert refused.value.fields == {"plan_id": number, "group_id": "billing", "incarnation": "i"}


def test_the_initial_offset_of_a_running_query_is_refused_by_name() -> None:
    group, plan = started_plan()
    group.complete(plan)
    with pytest.raises(StalePlan, match=r"Plan \(initial\) of member m1 .* last completed plan is i\.1"):
        group.acquire("")
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m1 is refused: it is completed"):
        group.start(plan)
    with pytest.raises(StalePlan, match=r"Plan i\.7 of member m1 .*\(that is i\.1\)"):
        group.start("i.7")
    group.join("m2")
    with pytest.raises(StalePlan, match=r"\(that is none\)"):
        group.start(plan, "m2")
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m2 .* last completed plan is none"):
        group.acquire(plan, "m2")


def test_the_next_plan_is_refused_until_the_started_plan_completes() -> None:
    group, plan = started_plan()
    group.ends[0] = 200
    group.complete(plan)
    following = group.acquire(plan).plan.plan_id
    group.start(following)
    with pytest.raises(StalePlan, match=r"Plan i\.1 of member m1 .* plan i\.2 was delivered and not completed"):
        group.acquire(plan)


def test_an_incarnation_may_hold_dots() -> None:
    group = ShareGroup("billing")
    group.incarnation = "2026.1"
    assert group.plan_id(group.plan_id_text(7)) == 7
    assert (group.plan_id(""), group.plan_id_text(None)) == (None, "")


def test_every_acquisition_is_durable() -> None:
    group, plan = started_plan()
    appended = [decode_record(data) for data in group.log]
    assert any(isinstance(r, PlanAcquired) and r.plan_id == 1 for r in appended)
    assert any(isinstance(r, PlanStarted) and r.started for r in appended), "used, before anyone reads"
    group.crash()
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]
    assert ranges(group.restart(plan)) == [(0, 99, 2)], "no count twice"


def test_a_start_is_durable_so_that_a_replay_counts_after_a_crash() -> None:
    group, plan = started_plan()
    group.crash()
    group.restart(plan)
    assert group.dump() == ["[0..99] ACQUIRED 2 1 1"]


def test_a_run_keeps_its_plan_id_when_its_lock_ends() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    assert group.dump() == ["[0..99] AVAILABLE 1 1 1"]
    group.join()
    group.complete(plan)
    assert group.partition().start_offset == 100, "what was committed is accepted, however late"


def test_state_and_count_alone_never_match() -> None:
    """m2 took the records, lost its lock too: AVAILABLE again, but it is m2's number that they carry."""
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    other = group.acquire(member="m2", limit=50)
    assert offsets(other) == 100
    group.start(other.plan.plan_id, "m2")
    group.pass_time(SESSION_MS + 1)
    group.join()
    group.complete(plan)
    assert group.partition().start_offset == 0, "m1 may accept nothing of it"
    group.join("m2")
    group.complete(other.plan.plan_id, "m2")
    assert group.partition().start_offset == 100


def test_newest_plan_without_runs_replays_empty() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.acquire(member="m2")
    taken = group.restart(plan)
    assert ranges(taken) == []
    assert [(o.first, o.last, o.reason) for o in taken.left_out] == [(0, 99, "lost")]
    group.complete(plan)
    assert group.group.members["m1"].completed == 1


def test_a_later_process_reclaims() -> None:
    group = GroupDriver(records=100)
    group.join()
    first = group.next()
    assert group.next() == first, "the same process gets it unchanged"
    group.join()
    again = group.next()
    assert again.plan.plan_id == first.plan.plan_id
    assert ranges(again) == [(0, 99, 2)]


def test_a_copy_of_a_driver_is_refused_once_the_other_goes_on() -> None:
    """A machine was copied while its driver ran: both copies are one process."""
    group = GroupDriver(records=30)
    group.join()
    batch = group.next(limit=10)
    plan = batch.plan.plan_id
    assert ranges(group.start(plan)) == ranges(group.start(plan)) == ranges(batch), "both read the batch"
    group.start(group.next(plan, limit=10).plan.plan_id)
    with pytest.raises(StalePlan, match="was delivered and not completed"):
        group.next(plan, limit=10)


def test_a_reclaim_takes_every_run_with_the_plan_id() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    assert ranges(group.restart(plan)) == [(0, 99, 2)], "AVAILABLE after the session"
    assert ranges(group.restart(plan)) == [(0, 99, 3)], "ACQUIRED within it"


def test_release_cut_and_quarantine_clear_the_plan_id() -> None:
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    for count in (1, 2):
        fetched(group, 10)
        assert acknowledged(group, 0, 9, count, AcknowledgeType.RELEASE) == {}
        assert group.dump() == [f"[0..9] AVAILABLE {count} 0 -"], "released"
    group, plan = started_plan(10_000)
    group.restart(plan)
    group.restart(plan)
    assert group.dump()[1] == "[2154..3999] AVAILABLE 2 2 -", "cut"
    group, plan = started_plan(1)
    for _ in range(5):
        group.restart(plan)
    assert group.dump() == ["[0..0] AVAILABLE 5 5 -"], "quarantined"


def test_a_snapshot_appends_live_plans_and_plan_ids_again() -> None:
    """Loaded from snapshots alone, its holder goes on, and no number is given twice."""
    group, plan = started_plan()
    group.ends[0] = 200
    second = group.next(plan).plan.plan_id
    group.start(second)
    from_snapshot(group)
    assert ranges(group.start(second)) == [(100, 199, 1)]
    group.complete(second)
    from_snapshot(group)
    group.join()
    group.complete(second)
    group.ends[0] = 300
    assert group.next(second).plan.plan_id == "i.3"
