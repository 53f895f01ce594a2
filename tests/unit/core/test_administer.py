"""An administrator's actions: new start offsets, deletion, the release of a member, single records by hand (KIP-932,
AlterShareGroupOffsets, DeleteShareGroupOffsets, DeleteGroups). No plan of before holds a record after a reset, and no
delivery count falls."""

import contextlib

import pytest

from coordinator.core.commands import CreateGroup, ExtendDeadlines, InitializePartitions, PartitionStart
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.looks.view import MOST_NAMED, altered_since
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import DecideRecords, DeleteGroup, ReleaseMember
from coordinator.protocol.errors import (
    DeadLettersNotWritten,
    ForeignPlan,
    GroupNotEmpty,
    InvalidRequest,
    MembersNotKnown,
    NotInFlight,
    RecordsHeld,
)
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import (
    SESSION_MS,
    TOPIC_ID,
    GroupDriver,
    acknowledged,
    from_snapshot,
    offsets,
    ranges,
    started_plan,
)
from tests.support.quarantine import quarantined_record, started_trial

DEAD_LETTERS = {"errors.deadletterqueue.topic.name": "dlq"}


def reset(group, start, partition=0, *, execute=True, force=False, **fields):
    starts = ((TOPIC_ID, partition, start),)
    return group.run(AlterStartOffsets(starts=starts, execute=execute, force=force, **fields))


def by_hand(group, decision, first, last, *, execute=True, reason="a broken record"):
    return group.run(
        DecideRecords(
            group_id="billing",
            decision=decision,
            topic="orders",
            partition=0,
            first=first,
            last=last,
            execute=execute,
            reason=reason,
        )
    )


def done_group():
    """m1 has completed all 100 records, and its session has ended."""
    group, plan = started_plan()
    group.complete(plan)
    group.pass_time(SESSION_MS + 1)
    return group, plan


# --- resets


def test_a_reset_delivers_done_records_again_with_higher_counts():
    group, plan = done_group()
    reset(group, 0)
    group.join()
    assert ranges(group.acquire(plan)) == [(0, 99, 2)]


def test_an_unstarted_plan_comes_back_empty_after_a_reset():
    group = GroupDriver(records=100)
    group.join()
    plan = group.acquire().plan.plan_id
    reset(group, 0, force=True)
    reply = group.start(plan, logged=(), acquired_here=True)
    assert (offsets(reply), [left.reason for left in reply.left_out]) == (0, ["altered"])


def test_receipts_of_before_a_reset_fit_no_later_delivery():
    group, _plan = started_plan()
    reset(group, 0, force=True)
    group.join("m2")
    group.start(group.acquire(member="m2").plan.plan_id, "m2")
    stale = group.stage(OutcomeRun(7, 7, 1, AcknowledgeType.REJECT), fail_on_stale=False)
    assert (stale.staged, stale.stale) == (0, 1)
    group.join("c1", query=False)
    assert acknowledged(group, 7, 7, 1, AcknowledgeType.ACCEPT)


def test_dead_letters_that_wait_below_a_new_start_are_still_written():
    group, plan = started_plan(**DEAD_LETTERS)
    group.stage(OutcomeRun(0, 0, 1, AcknowledgeType.REJECT), OutcomeRun(3, 9, 1, AcknowledgeType.REJECT))
    group.complete(plan)
    group.pass_time(SESSION_MS + 1)
    reset(group, 5)
    from_snapshot(group)
    assert (group.partition().archiving_count, group.partition().start_offset) == (3, 5)
    group.file(0, 4)
    assert group.partition().archived_total == 3
    group.join()
    assert ranges(group.acquire(plan)) == [(5, 99, 2)]


# --- what a query learns of altered start offsets


class Unread(dict):
    """A stand-in for altered_by that refuses to be gone through."""

    def items(self):
        raise AssertionError("every share partition that was ever altered is looked at")


def test_a_query_learns_who_altered_start_offsets_since_its_plan():
    group, _ = started_plan()
    reset(group, 40, force=True, by="alice")
    total, (altered,) = altered_since(group.group, 1)
    assert (total, altered.topic, altered.partition, altered.start_offset, altered.by) == (1, "orders", 0, 40, "alice")


@pytest.mark.parametrize("start", [30, None])
@pytest.mark.parametrize("reload", [GroupDriver.crash, from_snapshot])
def test_altered_start_offsets_are_known_after_a_load_too(start, reload):
    group, plan = started_plan()
    reset(group, start, force=True, by="alice")
    reload(group)
    total, (altered,) = altered_since(group.group, 1)
    assert (total, altered.start_offset, altered.by) == (1, start, "")
    starts = (PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=30),)
    group.run(InitializePartitions(topics=(), starts=starts))
    reload(group)
    assert altered_since(group.group, 1)[1][0].start_offset == 30
    group.join()
    group.complete(plan)
    assert altered_since(group.group, group.group.plan_id(group.acquire(plan).plan.plan_id)) == (0, ())


def test_a_poll_with_nothing_to_learn_looks_at_no_altered_partition():
    group = GroupDriver(records=10)
    starts = tuple(PartitionStart(topic_id=TOPIC_ID, partition=p, start_offset=0) for p in range(1, 2 * MOST_NAMED))
    group.run(InitializePartitions(topics=(), starts=starts))
    group.join()
    group.acquire()
    resets = tuple((TOPIC_ID, p, 0) for p in range(2 * MOST_NAMED))
    group.run(AlterStartOffsets(starts=resets, execute=True, force=True))
    group.join("m2")
    group.acquire(member="m2")
    total, named = altered_since(group.group, 1)
    assert (total, len(named)) == (2 * MOST_NAMED, MOST_NAMED)
    group.group.altered_by = Unread(group.group.altered_by)
    assert altered_since(group.group, 2) == (0, ())
    with pytest.raises(AssertionError):
        altered_since(group.group, 1)


# --- after a load


def test_after_a_load_administration_waits_a_session_for_members_without_records():
    group, plan = started_plan()
    group.complete(plan)
    group.crash()
    for action in (lambda: reset(group, 0), lambda: group.run(DeleteGroup(group_id="billing", execute=True))):
        with pytest.raises(MembersNotKnown, match=f"1 member.*{SESSION_MS + 1} ms more"):
            action()
    group.pass_time(SESSION_MS)
    with pytest.raises(MembersNotKnown, match="1 ms more"):
        reset(group, 0, execute=False)
    group.pass_time(1)
    assert reset(group, 0).executed


def test_offsets_are_not_deleted_while_a_subscriber_may_be_there():
    group, plan = started_plan()
    group.complete(plan)
    group.crash()
    for subscribers, waits in ((frozenset({"m1"}), True), (frozenset({"m2"}), False)):
        with pytest.raises(MembersNotKnown, match=r"ask again after that\.$") if waits else contextlib.nullcontext():
            reset(group, None, execute=False, force=True, subscribers=subscribers)


def test_a_stall_after_a_load_gives_members_their_time_again():
    group, plan = started_plan()
    group.complete(plan)
    group.crash()
    group.now_ms += SESSION_MS + 1
    group.run(ExtendDeadlines(stalled_ms=SESSION_MS))
    with pytest.raises(MembersNotKnown):
        reset(group, 0)


# --- deletion of offsets and of the group


def test_delivery_counts_keep_rising_after_offsets_are_deleted():
    group, _plan = done_group()
    reset(group, None)
    from_snapshot(group)
    assert not group.group.partitions
    starts = (PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=50),)
    group.run(InitializePartitions(topics=(), starts=starts))
    group.join("m2")
    assert ranges(group.acquire(member="m2")) == [(50, 99, 2)]


def test_offsets_with_unwritten_dead_letters_are_deleted_by_force_only():
    group, plan = started_plan(**DEAD_LETTERS)
    group.stage(OutcomeRun(0, 9, 1, AcknowledgeType.REJECT))
    group.complete(plan)
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(DeadLettersNotWritten, match=r"^10 record.* group billing"):
        reset(group, None)
    with pytest.raises(DeadLettersNotWritten):
        group.run(DeleteGroup(group_id="billing", execute=True))
    told = "10 record(s) that wait for their dead letters get none."
    assert group.run(DeleteGroup(group_id="billing", force=True)).notes == (told,)
    assert reset(group, None, execute=False, drop_dead_letters=True).notes[-1] == told
    reset(group, None, drop_dead_letters=True)
    assert not group.group.partitions


def test_a_recreated_group_has_no_members_and_refuses_the_old_plans():
    group, plan = done_group()
    group.run(DeleteGroup(group_id="billing", execute=True))
    assert not group.group.exists
    group.crash()
    assert not group.group.exists and not group.group.members
    group.run(CreateGroup(incarnation="j", topic_ids=True))
    group.epochs.clear()
    group.join()
    with pytest.raises(ForeignPlan):
        group.start(plan)


def test_a_group_with_members_is_not_deleted():
    group, _ = started_plan()
    for force in (False, True):
        with pytest.raises(GroupNotEmpty, match=r": a group with members can't be deleted\."):
            group.run(DeleteGroup(group_id="billing", execute=True, force=force))
    assert group.group.exists


# --- members and single records


def test_a_record_archived_by_hand_becomes_a_dead_letter_with_the_reason():
    group, _ = started_plan(**DEAD_LETTERS)
    group.pass_time(SESSION_MS + 1)
    by_hand(group, "archive", 7, 7)
    archiving = group.partition().runs.at(7)
    assert (archiving.run.state.name, archiving.run.reason) == ("ARCHIVING", "a broken record")
    group.file(7, 7)
    assert group.partition().archived_total == 1


def test_a_release_by_hand_resets_the_records_failures_to_zero():
    group, _plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    assert group.dump() == ["[0..99] AVAILABLE 1 1 1"]
    by_hand(group, "release", 10, 19)
    assert "[10..19] AVAILABLE 1 0 1" in group.dump()


def test_a_trial_that_comes_back_judges_no_record_released_by_hand():
    """◆ KIP-932: its tries begin anew; the query that had it on trial may come back, and archives nothing."""
    group, plan = quarantined_record(records=10)
    trial = started_trial(group, plan)
    by_hand(group, "release", 0, 0)
    group.restart(trial)
    assert group.dump()[:1] == ["[0..0] AVAILABLE 6 0 -"]


def test_a_held_record_below_the_log_start_is_archived_by_its_release():
    """Nobody gets the record again: the log has lost it. Its query is told, as by the end of its session."""
    group, plan = started_plan(10)
    group.move_log_start(5)
    before = list(group.log)
    by_hand(group, "release", 3, 6, execute=False)
    assert group.log == before
    by_hand(group, "release", 3, 6)
    assert group.dump()[0].startswith("[0..2] ACQUIRED")
    assert [run.state for _, _, run in group.partition().runs if run.state != RecordState.ACQUIRED] == [
        RecordState.AVAILABLE
    ]
    (lost,) = group.restart(plan).data_loss
    assert (lost.first, lost.last) == (0, 4)


def test_the_notes_of_an_action_by_hand_begin_with_numbers():
    group, _ = started_plan()
    dry = by_hand(group, "release", 90, 109, execute=False)
    assert dry.notes[0] == "10 of 20 record(s) become available now, out of quarantine, with 0 tries."
    assert dry.notes[1].startswith("10 record(s) that members hold are delivered again; ")
    (held,) = group.run(ReleaseMember(group_id="billing", member_id="m1")).notes
    assert held.startswith("100 record(s) that members hold are delivered again; ")
    group.pass_time(SESSION_MS + 1)
    (note,) = by_hand(group, "archive", 0, 4, execute=False).notes
    assert note == "5 of 5 record(s) are given up and not delivered again; the group has no dead letter topic."


def test_a_reset_of_a_group_with_members_is_refused_unless_forced():
    group, _ = started_plan()
    before = list(group.log)
    with pytest.raises(GroupNotEmpty):
        reset(group, 0)
    assert group.log == before
    assert reset(group, 0, force=True).partitions[0].acquired == 100


def test_a_committed_batch_of_before_a_reset_acknowledges_nothing():
    group, plan = started_plan()
    group.pass_time(SESSION_MS + 1)
    reset(group, 0)
    group.join()
    group.complete(plan)
    assert group.partition().start_offset == 0
    assert offsets(group.acquire(plan)) == 100


def test_a_record_that_a_member_holds_is_not_archived_by_hand():
    group, _ = started_plan()
    with pytest.raises(RecordsHeld, match="held by member m1"):
        by_hand(group, "archive", 7, 7)
    with pytest.raises(InvalidRequest, match="with a reason"):
        by_hand(group, "archive", 7, 7, reason=" ")
    with pytest.raises(NotInFlight):
        by_hand(group, "archive", 500, 500)
