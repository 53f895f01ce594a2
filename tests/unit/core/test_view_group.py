"""The view of a group, by which the service knows what to ask the brokers before a member acquires or completes."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.commands import (
    AlterConfigs,
    ArchiveDeletedTopics,
    AssignPartitions,
    InitializePartitions,
    PartitionStart,
    TopicWithId,
)
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.view import GroupView, LogRange, Subscribed, ViewGroup, past_ids
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.errors import FencedMemberEpoch, UnknownMemberId
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.values import AcknowledgeType, OffsetRange, OutcomeRun, SharePartitionKey
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched, holding, ranges, started_plan
from tests.support.quarantine import quarantined_record
from tests.support.sink_driver import EXPLICIT, RELEASE, batch, said

ACCEPT = AcknowledgeType.ACCEPT
BACKOFF = {"share.release.backoff.ms": "100", "share.release.backoff.jitter": "0"}


def view(group: GroupDriver, member: str = "m1", **fields: Any) -> GroupView:
    return group.run(ViewGroup(group_id="billing", member_id=member, member_epoch=group.epochs[member], **fields))


def subscribe(group: GroupDriver, member: str, *, query: bool = True, **subscription: Any) -> None:
    asked = JoinGroup(group_id="billing", member_id=member, process_id=member, query=query, **subscription)
    group.epochs[member] = group.run(asked).member_epoch


def in_log(first: int, last: int, partition: int = 0) -> LogRange:
    return LogRange("orders", OffsetRange(TOPIC_ID, partition, first, last))


def delete_topic(group: GroupDriver) -> None:
    group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,), ends=()))


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


def test_the_undecided_offsets_of_an_explicit_plan_are_named():
    group, _ = started_plan(10, **EXPLICIT)
    assert view(group).undecided == (in_log(0, 9),)
    assert not view(group).decides
    group.stage(OutcomeRun(3, 4, 1, ACCEPT), query_id="q")
    seen = view(group)
    assert seen.undecided == (in_log(0, 2), in_log(5, 9))
    assert seen.decides


def made_anew(group: GroupDriver, topic_id: str) -> None:
    """The topic is deleted, and created with another id."""
    start = PartitionStart(topic_id=topic_id, partition=0, start_offset=0)
    group.run(InitializePartitions(topics=(TopicWithId(topic="orders", topic_id=topic_id),), starts=(start,)))


def test_a_view_names_partitions_whose_tasks_go_on_without_lost_records():
    group, plan = started_plan()
    assert not view(group).to_check
    group.restart(plan, fail_on_data_loss=False)
    assert view(group).to_check == {("orders", TOPIC_ID, 0)}
    group.complete(plan)
    assert not view(group).to_check


def test_a_view_has_all_that_is_known_to_a_member() -> None:
    group = GroupDriver(records=10, partitions=2, **{"share.isolation.level": "read_committed"})
    subscribe(group, "m1", topic_pattern="ord.*")
    plan = group.acquire(limit=4).plan.plan_id
    made_anew(group, "U")
    assert view(group, plan_id=plan) == GroupView(
        group_id="billing",
        topic_ids=True,
        read_committed=True,
        subscribed=Subscribed((), "ord.*", None),
        topics={TOPIC_ID: "orders", "U": "orders"},
        gone=frozenset(),
        past=frozenset({TOPIC_ID}),
        fetch_from={(TOPIC_ID, 0): 2, (TOPIC_ID, 1): 2, ("U", 0): 0},
        plan=frozenset({("orders", TOPIC_ID, 0), ("orders", TOPIC_ID, 1)}),
        to_check=frozenset(),
        delivery_delay_ms=0,
        record_ttl_ms=None,
        waits_from={},
        quarantined=(),
        unproven=(),
        undecided=(),
        decides=True,
    )
    subscribe(group, "m2", assign={"orders": (1,)})
    assert view(group, "m2").subscribed == Subscribed((), None, {"orders": (1,)})
    assert view(group, "m2").plan == frozenset()


def test_a_view_has_the_partitions_that_a_member_is_assigned() -> None:
    group = GroupDriver(records=10, partitions=2)
    subscribe(group, "m1", topics=("orders",))
    subscribe(group, "c1", query=False, topics=("orders",))
    subscribe(group, "c2", query=False, topics=("payments",))
    assert view(group, "c1").assigned is None, "they are about to be assigned"
    group.run(AssignPartitions())
    assert view(group, "c1").assigned == {SharePartitionKey(TOPIC_ID, 0), SharePartitionKey(TOPIC_ID, 1)}
    assert view(group, "c2").assigned == frozenset()
    assert view(group, "m1").assigned is None, "a query reads all that it is subscribed to"


# --- in how many milliseconds there may be more to acquire


@pytest.mark.parametrize("member", ["c1", "m1"])
def test_a_view_says_when_the_first_released_record_is_due(member: str) -> None:
    """Also to the members that did not release the record."""
    group = holding(**BACKOFF)
    subscribe(group, "m1")
    assert view(group, member).due_in_ms is None
    acknowledged(group, 4, 4, 1, RELEASE)
    group.pass_time(30)
    acknowledged(group, 2, 2, 1, RELEASE)
    assert view(group, member).due_in_ms == 70
    group.pass_time(70)
    assert (view(group, member).due_in_ms, fetched(group, 10)) == (30, [(4, 4, 2)])
    group.pass_time(30)
    assert (view(group, member).due_in_ms, fetched(group, 10)) == (None, [(2, 2, 2)])


def test_a_view_says_when_a_record_that_failed_alone_is_due() -> None:
    group, plan = quarantined_record()
    plan = group.next(plan).plan.plan_id
    group.start(plan)
    assert ranges(group.restart(plan)) == []
    due_in_ms = view(group).due_in_ms
    assert due_in_ms is not None
    group.pass_time(due_in_ms - 1)
    assert (view(group).due_in_ms, ranges(group.next(plan))) == (1, [])
    group.pass_time(1)
    assert (view(group).due_in_ms, [each[:2] for each in ranges(group.next(plan))]) == (None, [(0, 0)])


def test_a_view_says_when_the_pause_of_a_breaker_ends() -> None:
    """Until then the query gets no record, although one is due earlier."""
    group, plan = batch(40, **BACKOFF)
    group.stage(said(0, 38, RELEASE), said(39, 39, RELEASE, delay_ms=50))
    group.complete(plan)
    assert group.partition().runs.due_after(group.now_ms) == group.now_ms + 50
    assert view(group).due_in_ms == 100


def test_a_view_says_when_the_groups_rate_allows_more() -> None:
    group = GroupDriver(records=10, **{"share.max.records.per.second": "4"})
    group.join("c1", query=False)
    assert fetched(group, 3) == [(0, 2, 1)]
    group.pass_time(10)
    assert (view(group, "c1").due_in_ms, fetched(group, 3)) == (None, [(3, 3, 1)])
    assert view(group, "c1").due_in_ms == 990


def test_a_view_leaves_out_records_of_paused_topics() -> None:
    group = holding(**BACKOFF)
    acknowledged(group, 9, 9, 1, RELEASE)
    group.run(AlterConfigs(configs={"share.paused.topics": "orders"}))
    assert view(group, "c1").due_in_ms is None


def test_a_view_leaves_out_records_for_which_there_is_no_room() -> None:
    group = GroupDriver(records=101, **BACKOFF)
    group.join("c1", query=False)
    fetched(group, 101)
    group.run(AlterConfigs(configs={"share.partition.max.record.locks": "100"}))
    acknowledged(group, 0, 0, 1, RELEASE)
    assert view(group, "c1").due_in_ms is None
    acknowledged(group, 1, 1, 1, ACCEPT)
    assert view(group, "c1").due_in_ms == 100


def test_a_view_leaves_out_records_that_wait_for_earlier_ones_in_order() -> None:
    group = holding(**BACKOFF, **{"share.order": "partition"})
    acknowledged(group, 9, 9, 1, RELEASE)
    assert view(group, "c1").due_in_ms is None
    acknowledged(group, 0, 8, 1, ACCEPT)
    assert view(group, "c1").due_in_ms == 100


def test_a_view_leaves_out_records_of_partitions_that_are_not_the_members() -> None:
    group = holding(**BACKOFF)
    acknowledged(group, 9, 9, 1, RELEASE)
    subscribe(group, "c2", query=False, topics=("payments",))
    group.run(AssignPartitions())
    assert view(group, "c2").due_in_ms is None


def test_a_view_has_the_next_quarantined_records_of_topics_that_exist() -> None:
    """They are delivered one by one: ten ranges of a partition are enough, and ten records of a range."""
    group = GroupDriver(records=100)
    group.join()
    made_anew(group, "U")
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    alone = ((n, n, aside._replace(releases=n)) for n in range(30, 50))
    for topic_id, runs in ((TOPIC_ID, ((7, 7, aside),)), ("U", ((0, 24, aside), *alone))):
        group.append([RunsChanged(topic_id=topic_id, partition=0, runs=runs)])
    ranges = [(0, 9), *((n, n) for n in range(30, 39))]
    assert view(group).quarantined == tuple(LogRange("orders", OffsetRange("U", 0, *each)) for each in ranges)


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_a_view_has_unproven_records_only_where_others_are_quarantined(is_quarantined: bool) -> None:
    group, _ = batch()
    if is_quarantined:
        aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((10, 10, aside),))])
    assert bool(view(group).unproven) == is_quarantined


def test_a_view_has_no_held_records_of_a_replaced_topic() -> None:
    group, _ = batch(**EXPLICIT)
    aside = Run(RecordState.AVAILABLE, 5, failures=5, quarantined=True)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((10, 10, aside),))])
    held = (LogRange("orders", OffsetRange(TOPIC_ID, 0, 0, 9)),)
    assert (view(group).unproven, view(group).undecided) == (held, held)
    made_anew(group, "U")
    group.append([RunsChanged(topic_id="U", partition=0, runs=((10, 10, aside),))])
    assert (view(group).unproven, view(group).undecided) == ((), ())
