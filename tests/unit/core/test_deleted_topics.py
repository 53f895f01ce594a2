"""A topic that was deleted: what nobody holds of it is archived, counted and told once; the rest is its holder's."""

from __future__ import annotations

from typing import Any

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
from tests.support.group_driver import TOPIC_ID, GroupDriver, from_snapshot


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


def test_of_a_log_with_an_unknown_end_the_known_records_are_counted() -> None:
    group, start = released()
    assert gone(group) == [(0, 9, 10), (100, 100, 0)]
    plan = next_plan(group, start).plan.plan_id
    lost = group.start(plan, deleted_topic_ids=frozenset({TOPIC_ID})).data_loss
    assert [(out.reason, str(out)) for out in lost] == [
        ("data_loss", "orders-0 offsets 0 to 9"),
        ("end_unknown", "orders-0 what it may have had from offset 100 on"),
    ]


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
