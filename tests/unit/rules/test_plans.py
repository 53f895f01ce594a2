"""◆ Plans: durable, numbered, reclaimed by whoever still carries the number, and refused by name when they are old."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AcquireForConsumer, Expire, ExtendDeadlines
from coordinator.core.record_state import RecordState
from coordinator.core.records import PlanAcquired, PlanStarted, decode_record
from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, StalePlan, UnknownMemberId
from coordinator.protocol.messages import JoinGroup
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


def test_every_acquisition_is_durable() -> None:
    group, plan = started_plan()
    appended = [decode_record(data) for data in group.log]
    assert any(isinstance(r, PlanAcquired) and r.plan_id == 1 for r in appended)
    assert any(isinstance(r, PlanStarted) and r.started for r in appended), "used, before anyone reads"
    group.crash()
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]
    assert ranges(group.restart(plan)) == [(0, 99, 2)], "no count twice"


def test_used_is_durable_so_that_a_replay_counts_after_a_crash() -> None:
    group, plan = started_plan()
    group.crash()
    group.restart(plan)
    assert group.dump() == ["[0..99] ACQUIRED 2 1 1"]


def test_a_run_keeps_its_number_when_its_lock_runs_out() -> None:
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
    group.use(other.plan.plan_id, "m2")
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


def test_a_loss_is_said_once() -> None:
    group, plan = started_plan(10_000)
    said = [o for _ in range(4) for o in group.restart(plan).left_out]
    assert [o.reason for o in said] == ["cut", "cut", "cut"], "no cut is called a loss afterwards"


def test_a_later_process_reclaims() -> None:
    group = GroupDriver(records=100)
    group.join()
    first = group.next()
    assert group.next() == first, "the same process gets it unchanged"
    group.join()
    again = group.next()
    assert again.plan.plan_id == first.plan.plan_id
    assert ranges(again) == [(0, 99, 2)]


def test_a_plan_not_yet_used_is_its_process_s_answer_also_when_nothing_of_it_is_left() -> None:
    group = GroupDriver(records=200)
    group.join("m2")
    group.join()
    plan = group.next(limit=100).plan.plan_id
    group.pass_time(SESSION_MS - 1)
    group.join("m2", process="m2-process-1")
    group.pass_time(2)
    assert ranges(group.next(member="m2", limit=100)) == [(0, 99, 2)], "the lock was lost"
    group.join(process="m1-process-1")
    late = group.acquire(limit=100)
    assert (late.plan.plan_id, late.plan.partitions) == (plan, ()), "Spark may have logged it"
    assert group.use(plan).plan.partitions == ()


def test_a_plan_never_used_burns_a_count_and_no_try() -> None:
    group = GroupDriver(records=100)
    for count in range(1, 30):
        group.join()
        assert ranges(group.next()) == [(0, 99, count)], "never cut, never archived"
    assert group.dump() == ["[0..99] ACQUIRED 29 0 1"]


def test_reclaim_takes_all_that_carries_the_number() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    assert ranges(group.restart(plan)) == [(0, 99, 2)], "AVAILABLE after the session"
    assert ranges(group.restart(plan)) == [(0, 99, 3)], "ACQUIRED within it"


def test_partitions_is_idempotent_per_process_and_end() -> None:
    group, plan = started_plan()
    assert ranges(group.use(plan)) == [(0, 99, 1)]
    group.restart(plan)
    assert ranges(group.use(plan)) == [(0, 99, 2)]
    assert group.dump() == ["[0..99] ACQUIRED 2 1 1"]


def test_an_old_plan_is_refused_by_name() -> None:
    group, plan = started_plan()
    with pytest.raises(StalePlan):
        group.acquire("")
    group.next(plan)
    for number in (plan, "i.77"):
        with pytest.raises(StalePlan):
            group.use(number)
    with pytest.raises(ForeignPlan):
        group.use("other-life.1")


def test_completing_twice_is_harmless() -> None:
    group, plan = started_plan()
    group.complete(plan)
    group.complete(plan)
    assert group.partition().start_offset == 100


def test_fenced_reader_never_rejoins() -> None:
    group, plan = started_plan()
    group.join()
    group.epochs["m1"] = 1
    with pytest.raises(FencedMemberEpoch):
        group.complete(plan)
    with pytest.raises(FencedMemberEpoch):
        group.join(process="m1-process-1")


def test_epoch_outlives_the_session() -> None:
    group, _ = started_plan()
    assert group.join() == 2
    group.pass_time(10 * SESSION_MS)
    group.crash()
    lapsed = JoinGroup(group_id="billing", member_id="m1", process_id="m1-process-1", member_epoch=1)
    with pytest.raises(FencedMemberEpoch):
        group.run(lapsed)
    assert group.run(JoinGroup(group_id="billing", member_id="m1", process_id="m1-process-2", member_epoch=2))


def test_an_expired_session_answers_nothing() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(UnknownMemberId):
        group.complete(plan)


def test_after_a_load_every_holder_has_one_session_to_come_back() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS - 1)
    group.crash()
    group.pass_time(SESSION_MS - 1)
    assert group.partition().acquired_count == 100
    group.complete(plan)


def test_time_in_which_nobody_was_heard_ends_no_session_and_no_lock() -> None:
    """The coordinator's process was stopped for longer than a session; members sent requests meanwhile, and
    wait."""
    group, _ = started_plan()
    group.join("c1", query=False)
    group.ends[0] = 110
    fetch = AcquireForConsumer(
        group_id="billing", member_id="c1", member_epoch=1, max_records=10, bounds=group.bounds()
    )
    group.run(fetch)
    held = group.dump()
    group.pass_time(5_000)
    group.now_ms += 10 * SESSION_MS
    group.run(ExtendDeadlines(stalled_ms=10 * SESSION_MS))
    group.run(Expire())
    assert group.dump() == held
    group.pass_time(SESSION_MS)
    assert group.dump() == held, "a full session's time to be heard"
    group.pass_time(1)
    assert group.partition().acquired_count == 0


def test_who_is_gone_loses_its_records_also_where_nobody_is_heard_again_and_again() -> None:
    """Of each 20 s the coordinator hears members for one half."""
    group, _ = started_plan()
    for _ in range(2 * SESSION_MS // 10_000 + 1):
        group.pass_time(10_000)
        group.now_ms += 10_000
        group.run(ExtendDeadlines(stalled_ms=10_000))
        group.run(Expire())
    assert group.partition().acquired_count == 0


def test_limits_of_time_never_end_a_querys_lock() -> None:
    group, _ = started_plan()
    for _ in range(200):
        group.pass_time(SESSION_MS - 1_000)
        group.join(process="m1-process-1")
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]


def test_offsets_below_log_start_are_archived_then_fail_once() -> None:
    group, plan = started_plan()
    group.move_log_start(30)
    told = group.restart(plan)
    assert [(o.first, o.last) for o in told.data_loss] == [(0, 29)]
    assert group.partition().archived_total == 30
    after = group.restart(plan)
    assert after.data_loss == ()
    assert ranges(after) == [(30, 99, 3)]


def test_data_loss_of_a_plan_that_nobody_held_is_told_too() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    group.move_log_start(30)
    group.crash()
    told = group.restart(plan)
    assert [(o.first, o.last) for o in told.data_loss] == [(0, 29)]
    assert told.left_out == (), "the log's loss is no lost lock"
    assert group.restart(plan).data_loss == ()


def test_data_loss_of_records_that_nobody_held_is_told_once_with_the_next_plan() -> None:
    group, plan = started_plan()  # 0 to 99
    group.ends[0] = 300
    group.move_log_start(150)
    group.move_log_start(200)
    group.crash()
    group.complete(plan)
    following = group.acquire(plan).plan.plan_id
    told = group.use(following, fail_on_data_loss=True)
    assert [(o.first, o.last) for o in told.data_loss] == [(100, 199)]
    assert told.left_out == ()
    assert group.group.unreported_losses == (), "no other query is told again"
    after = group.restart(following, fail_on_data_loss=True)
    assert after.data_loss == () and ranges(after) == [(200, 299, 2)]


def test_a_loss_that_was_found_when_a_plan_was_reclaimed_is_told_by_whoever_reads_it() -> None:
    group = GroupDriver(records=10)
    group.join()
    group.acquire()
    group.move_log_start(5)
    group.join()
    plan = group.acquire().plan.plan_id  # reclaimed, and its process dies before it reads
    group.join()
    assert [(o.first, o.last) for o in group.use(plan).data_loss] == [(0, 4)]
    assert group.restart(plan).data_loss == ()


def test_a_group_without_queries_passes_over_what_the_log_lost() -> None:
    group = GroupDriver(records=300)
    group.join("c1", query=False)
    group.move_log_start(100)
    assert group.group.unreported_losses == () and group.partition().start_offset == 100


def test_on_demand_may_rest() -> None:
    group, plan = started_plan()
    assert not group.group.may_rest(group.now_ms)
    group.complete(plan)
    assert not group.group.may_rest(group.now_ms), "a member is there"
    group.pass_time(SESSION_MS + 1)
    assert group.group.may_rest(group.now_ms)
    assert group.partition().runs.counts[RecordState.ACQUIRED] == 0


def test_release_cut_and_setting_aside_clear_the_number() -> None:
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
    assert group.dump() == ["[0..0] AVAILABLE 5 5 -"], "set aside"


def test_the_renewal_cap_never_applies_to_a_query() -> None:
    group, _ = started_plan()
    for _ in range(60):
        group.pass_time(SESSION_MS - 1_000)
        group.join(process="m1-process-1")
        assert acknowledged(group, 0, 99, 1, AcknowledgeType.RENEW, "m1") == {}
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]


def test_a_snapshot_appends_live_plans_and_numbers_again() -> None:
    """Loaded from snapshots alone, its holder goes on, and no number is given twice."""
    group, plan = started_plan()
    group.ends[0] = 200
    second = group.next(plan).plan.plan_id
    group.use(second)
    from_snapshot(group)
    assert ranges(group.use(second)) == [(100, 199, 1)]
    group.complete(second)
    from_snapshot(group)
    group.join()
    group.complete(second)
    group.ends[0] = 300
    assert group.next(second).plan.plan_id == "i.3"
