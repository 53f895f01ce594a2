"""An administrator's actions: new start offsets, deletion, the release of a member, single records by hand (KIP-932,
AlterShareGroupOffsets, DeleteShareGroupOffsets, DeleteGroups). No plan of before holds a record after a reset, and no
delivery count falls."""

import contextlib

import pytest

from coordinator.core.commands import ExtendDeadlines, InitializePartitions, PartitionStart
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.looks.view import MOST_NAMED, altered_since
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.errors import DeadLettersNotWritten, MembersNotKnown
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, from_snapshot, started_plan

DEAD_LETTERS = {"errors.deadletterqueue.topic.name": "dlq"}


def reset(group, start, partition=0, *, execute=True, force=False, **fields):
    starts = ((TOPIC_ID, partition, start),)
    return group.run(AlterStartOffsets(starts=starts, execute=execute, force=force, **fields))


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
