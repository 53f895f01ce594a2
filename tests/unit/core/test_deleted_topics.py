"""A topic that was deleted: what nobody holds of it is archived, counted and told once; the rest is its holder's."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.commands import (
    AcquirePlan,
    ArchiveDeletedTopics,
    InitializePartitions,
    PartitionStart,
    TopicWithId,
)
from coordinator.core.looks.view import ViewGroup, past_ids
from coordinator.core.record_state import RecordState
from coordinator.protocol.messages import LeftOut, PlanReply
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, acknowledged, fetched, from_snapshot


def gone(group: GroupDriver, end: int | None = None) -> list[tuple[int, int, int]]:
    """The driver's topic is deleted; its log ended there, if anybody saw it. What is answered to be lost."""
    ends = () if end is None else (PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=end),)
    reply = group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,), ends=ends))
    return in_numbers(reply.lost)


def in_numbers(lost: tuple[LeftOut, ...]) -> list[tuple[int, int, int]]:
    return [(out.first, out.last, out.count) for out in lost]


def next_plan(group: GroupDriver, start: str = "", topics: tuple[str, ...] = ("orders",)) -> PlanReply:
    """latestOffset of a query of which no topic is there."""
    return group.run(
        AcquirePlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=start, topics=topics)
    )


def reclaim(group: GroupDriver, number: str, **fields: Any) -> list[tuple[int, int, int]]:
    group.ends = {}
    return in_numbers(group.start(number, deleted_topic_ids=frozenset({TOPIC_ID}), **fields).data_loss)


def begun(group: GroupDriver) -> str:
    """The first hundred are read."""
    group.join()
    number = group.next(limit=100).plan.plan_id
    group.start(number)
    return number


def released(records: int = 1_000) -> tuple[GroupDriver, str]:
    """0 to 9 were given back, 10 to 99 accepted, the others never acquired; and the plan that is completed."""
    group = GroupDriver(records=records)
    number = begun(group)
    group.stage(OutcomeRun(0, 9, 1, AcknowledgeType.RELEASE))
    group.complete(number)
    return group, number


def test_a_deleted_topics_loss_has_its_own_plan_if_nothing_is_left() -> None:
    group, start = released()
    assert gone(group, 1_000) == [(0, 9, 10), (100, 999, 900)]
    assert group.partition().counts.deleted == group.partition().archived_total == 910
    plan = next_plan(group, start)
    assert (plan.plan.plan_id, plan.plan.partitions) == ("i.2", ())
    group.crash()
    group.join()
    assert reclaim(group, "i.2") == [(0, 9, 10), (100, 999, 900)]
    group.complete("i.2")
    assert next_plan(group, "i.2").plan.plan_id == ""
    assert set(group.group.plans) == set(), "nothing carries an empty plan"


def test_a_deleted_topics_loss_is_counted_once() -> None:
    group, _ = released()
    assert gone(group, 1_000)
    assert gone(group, 2_000) == gone(group) == []
    from_snapshot(group)
    assert gone(group) == []


def test_of_a_log_with_an_unknown_end_the_known_records_are_counted() -> None:
    group, start = released()
    assert gone(group) == [(0, 9, 10), (100, 100, 0)]
    plan = next_plan(group, start).plan.plan_id
    lost = group.start(plan, deleted_topic_ids=frozenset({TOPIC_ID})).data_loss
    assert [(out.reason, str(out)) for out in lost] == [
        ("data_loss", "orders-0 offsets 0 to 9"),
        ("end_unknown", "orders-0 what it may have had from offset 100 on"),
    ]


def test_each_partition_of_a_deleted_topic_has_its_own_loss() -> None:
    group = GroupDriver(records=10, partitions=3)
    end = PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=10)
    lost = group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,), ends=(end,))).lost
    assert [(out.partition, out.reason, out.first, out.last, out.count) for out in lost] == [
        (0, "data_loss", 0, 9, 10),
        (1, "end_unknown", 0, 0, 0),
        (2, "end_unknown", 0, 0, 0),
    ]


def test_a_deleted_topic_that_was_read_to_its_end_lost_nothing() -> None:
    group = GroupDriver(records=100)
    number = begun(group)
    group.complete(number)
    assert gone(group, 100) == []
    assert next_plan(group, number).plan.plan_id == ""


@pytest.mark.parametrize("end", ["its session ends", "it replays", "it is completed with a release"])
def test_held_records_of_a_deleted_topic_are_lost_when_given_back(end: str) -> None:
    group = GroupDriver(records=100)
    number = begun(group)
    group.stage(OutcomeRun(20, 29, 1, AcknowledgeType.RELEASE))
    assert gone(group, 100) == []
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]
    if end == "it is completed with a release":
        group.complete(number)
        plan = next_plan(group, number).plan.plan_id
        assert reclaim(group, plan) == [(20, 29, 10)]
    else:
        if end == "its session ends":
            group.pass_time(SESSION_MS + 1)
        group.join()
        assert reclaim(group, number) == [(0, 99, 100)]
    assert group.dump() == []


def test_held_records_of_a_deleted_topic_may_be_accepted() -> None:
    group = GroupDriver(records=100)
    number = begun(group)
    gone(group, 100)
    group.complete(number)
    assert group.partition().archived_total == 0
    assert next_plan(group, number).plan.plan_id == ""


def test_the_plan_that_held_a_part_reports_the_whole_loss() -> None:
    group, start = released()
    plan = group.next(start, limit=100).plan.plan_id
    gone(group, 1_000)
    lost = reclaim(group, plan)
    assert sum(count for _, _, count in lost) == 910
    assert group.group.unreported_losses == ()


def test_a_report_that_no_process_read_is_in_the_next_plan() -> None:
    group, start = released()
    gone(group, 1_000)
    assert next_plan(group, start).plan.plan_id == "i.2"
    group.join()
    plan = next_plan(group, start).plan.plan_id
    assert plan == "i.3"
    assert reclaim(group, plan) == [(0, 9, 10), (100, 999, 900)]


def test_a_group_without_queries_reports_no_deleted_topic() -> None:
    group = GroupDriver(records=100)
    group.join("c1", query=False)
    fetched(group, 50)
    acknowledged(group, 0, 49, 1, 2)
    assert gone(group, 100) == [(0, 99, 100)]
    assert group.group.unreported_losses == ()


def test_a_snapshot_keeps_the_names_of_recreated_topics() -> None:
    group, start = released()
    anew = TopicWithId(topic="orders", topic_id="N")
    group.run(InitializePartitions(topics=(anew,), starts=(PartitionStart(topic_id="N", partition=0, start_offset=0),)))
    from_snapshot(group)
    epoch = group.join()
    assert (group.group.topics, past_ids(group.group)) == ({"orders": "N"}, {TOPIC_ID})
    assert group.run(ViewGroup(group_id="billing", member_id="m1", member_epoch=epoch)).topics == {
        TOPIC_ID: "orders",
        "N": "orders",
    }
    assert gone(group, 1_000) == [(0, 9, 10), (100, 999, 900)]
    assert reclaim(group, next_plan(group, start).plan.plan_id)
    assert group.partition().runs.counts[RecordState.AVAILABLE] == 0
