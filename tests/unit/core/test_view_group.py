"""The view of a group, by which the service knows what to ask the brokers before a member acquires or completes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.commands import ArchiveDeletedTopics, AssignPartitions
from coordinator.core.commands.view_group import (
    QUARANTINED_AT_ONCE,
    GroupView,
    LogRange,
    Subscribed,
    ViewGroup,
    past_ids,
)
from coordinator.protocol.errors import FencedMemberEpoch, UnknownMemberId
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.values import AcknowledgeType, OffsetRange, OutcomeRun, SharePartitionKey
from tests.support.group_driver import TOPIC_ID, GroupDriver, started_plan
from tests.support.quarantine import quarantined_record

ACCEPT = AcknowledgeType.ACCEPT
EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def view(group: GroupDriver, member: str = "m1", **fields: Any) -> GroupView:
    return group.run(ViewGroup(group_id="billing", member_id=member, member_epoch=group.epochs[member], **fields))


def in_log(first: int, last: int, partition: int = 0) -> LogRange:
    return LogRange("orders", OffsetRange(TOPIC_ID, partition, first, last))


def delete_topic(group: GroupDriver) -> None:
    group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,), ends=()))


def test_the_view_of_a_new_member_names_topics_and_first_offsets():
    group = GroupDriver(partitions=2)
    group.join()
    assert view(group) == GroupView(
        group_id="billing",
        topic_ids=True,
        read_committed=False,
        subscribed=Subscribed((), None, None),
        topics={TOPIC_ID: "orders"},
        gone=frozenset(),
        past=frozenset(),
        fetch_from={(TOPIC_ID, 0): 0, (TOPIC_ID, 1): 0},
        plan=frozenset(),
        quarantined=(),
        unproven=(),
        undecided=(),
        decides=True,
        assigned=None,
    )


def test_a_view_names_the_partitions_of_the_plan_asked_for():
    group, plan = started_plan(**{"share.isolation.level": "read_committed"})
    seen = view(group, plan_id=plan)
    assert seen.plan == {("orders", TOPIC_ID, 0)}
    assert seen.read_committed
    assert seen.fetch_from == {(TOPIC_ID, 0): 100}
    assert view(group).plan == frozenset()


def test_only_a_member_with_a_live_session_sees_the_group():
    group, _ = started_plan()
    group.join()
    with pytest.raises(FencedMemberEpoch):
        group.run(ViewGroup(group_id="billing", member_id="m1", member_epoch=1))
    with pytest.raises(UnknownMemberId):
        group.run(ViewGroup(group_id="billing", member_id="m2", member_epoch=1))


def test_a_view_names_no_current_topic_that_was_deleted():
    group, _ = quarantined_record()
    assert view(group).quarantined == (in_log(0, 0),)
    delete_topic(group)
    seen = view(group)
    assert (seen.topics, seen.gone, seen.past) == ({}, {TOPIC_ID}, {TOPIC_ID})
    assert seen.past == past_ids(group.group)
    assert (seen.quarantined, seen.unproven, seen.undecided) == ((), (), ())


@pytest.mark.parametrize("records", [1, QUARANTINED_AT_ONCE, QUARANTINED_AT_ONCE + 1, 4 * QUARANTINED_AT_ONCE])
def test_a_view_names_the_next_quarantined_records_of_each_partition(records):
    """Each fails alone, with the other partition's: the view names as many as are looked for in the log at once."""
    group, plan = started_plan(records, partitions=2, **{"share.delivery.count.limit": "2"})
    for _ in range(8):
        group.restart(plan)
    quarantined = [(first, last) for first, last, run in group.partition(0).runs if run.quarantined]
    assert quarantined, "the records have failed until they are quarantined"
    seen = view(group).quarantined
    last = min(quarantined[-1][1], QUARANTINED_AT_ONCE - 1)
    assert {at.topic_partition for at in seen} == {("orders", 0), ("orders", 1)}
    for partition in range(2):
        offsets = [o for at in seen if at.offsets.partition == partition for o in at.offsets.as_range()]
        assert offsets[: last + 1] == list(range(last + 1))
        runs = [at for at in seen if at.offsets.partition == partition]
        assert len(runs) <= QUARANTINED_AT_ONCE
        assert all(at.offsets.size <= QUARANTINED_AT_ONCE for at in runs)


def test_a_plan_is_unproven_while_its_completion_would_be_the_first_evidence():
    group, plan = quarantined_record(records=10)
    assert view(group).unproven == (), "the plan that failed began before the quarantine"
    other = group.next(plan).plan.plan_id
    assert view(group, plan_id=other).unproven == (), "nobody has begun to read it"
    group.start(other)
    assert view(group).unproven == (in_log(1, 9),)
    group.complete(other)
    assert group.group.members["m1"].evidence
    group.start(group.acquire(other).plan.plan_id)
    assert view(group).unproven == (), "the member has evidence"


def test_without_quarantined_records_no_plan_is_unproven():
    group, plan = started_plan(10)
    assert view(group).unproven == ()
    assert group.group.members["m1"].pending.plan_id == group.group.plan_id(plan)


def test_the_undecided_offsets_of_an_explicit_plan_are_named():
    group, _ = started_plan(10, **EXPLICIT)
    assert view(group).undecided == (in_log(0, 9),)
    assert not view(group).decides
    group.stage(OutcomeRun(3, 4, 1, ACCEPT), query_id="q")
    seen = view(group)
    assert seen.undecided == (in_log(0, 2), in_log(5, 9))
    assert seen.decides


@pytest.mark.parametrize(
    ("fields", "subscribed"),
    [
        ({"topics": ("orders", "bills")}, Subscribed(("orders", "bills"), None, None)),
        ({"topic_pattern": "or.*"}, Subscribed((), "or.*", None)),
        ({"assign": {"orders": (1, 2)}}, Subscribed((), None, {"orders": (1, 2)})),
    ],
)
def test_a_view_has_the_subscription_that_its_member_joined_with(fields, subscribed):
    group = GroupDriver()
    joined = group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", **fields))
    group.epochs["m1"] = joined.member_epoch
    assert view(group).subscribed == subscribed


def test_a_share_consumer_sees_its_assignment_once_it_is_made():
    group = GroupDriver(partitions=2)
    subscribe(group, "c1", "c2")
    assert view(group, "c1").subscribed == Subscribed(("orders",), None, None)
    assert view(group, "c1").assigned is None, "it is not made yet"
    group.run(AssignPartitions())
    assigned = [view(group, member).assigned for member in ("c1", "c2")]
    assert sorted(map(sorted, assigned)) == [[SharePartitionKey(TOPIC_ID, 0)], [SharePartitionKey(TOPIC_ID, 1)]]
    subscribe(group, "c3")
    assert view(group, "c1").assigned is None, "it is about to be made anew"


def test_a_share_consumer_without_a_partition_is_assigned_none():
    group = GroupDriver(partitions=1)
    subscribe(group, "c1", "c2")
    group.run(AssignPartitions())
    assert {len(view(group, member).assigned) for member in ("c1", "c2")} <= {0, 1}
    subscribe(group, "c3", topic="other")
    group.pass_time(5_000)
    group.run(AssignPartitions())
    assert view(group, "c3").assigned == frozenset()


def subscribe(group: GroupDriver, *members: str, topic: str = "orders") -> None:
    """ShareConsumers join that are subscribed to the topic."""
    for member in members:
        join = JoinGroup(group_id="billing", member_id=member, process_id=member, query=False, topics=(topic,))
        group.epochs[member] = group.run(join).member_epoch
