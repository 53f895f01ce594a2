"""Records that the log lost are archived, counted, and reported once, to the query that held them or reads next."""

from __future__ import annotations

import pytest

from coordinator.core.commands import (
    AcquirePlan,
    ArchiveGaps,
    InitializePartitions,
    MoveLogStarts,
    PartitionStart,
    TopicWithId,
)
from coordinator.protocol.messages import Done, LeftOut, PartitionBounds, PlanReply
from coordinator.protocol.values import OffsetRange
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched, from_snapshot
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, said

Told = list[tuple[str, int, int, int]]


def in_words(lost: tuple[LeftOut, ...]) -> Told:
    assert all(out.reason == "data_loss" for out in lost)
    return [(out.topic, out.partition, out.first, out.last) for out in lost]


def told(reply: PlanReply) -> Told:
    """(topic, partition, first, last) of what the reply says is lost."""
    return in_words(reply.data_loss)


def next_told(group: GroupDriver, start: str = "", member: str = "m1") -> Told:
    """The losses that are reported when the member begins to read its next plan."""
    plan = group.next(start, member)
    return told(group.start(plan.plan.plan_id, member))


def test_losses_are_reported_only_to_a_query_of_the_topic() -> None:
    group = GroupDriver(records=100)
    group.run(
        InitializePartitions(
            topics=(TopicWithId(topic="returns", topic_id="R"),),
            starts=(PartitionStart(topic_id="R", partition=0, start_offset=0),),
        )
    )
    group.join()
    group.join("m2")
    group.move_log_start(10)
    group.run(MoveLogStarts(starts=(PartitionStart(topic_id="R", partition=0, start_offset=5),)))
    returns = (PartitionBounds(topic_id="R", partition=0, log_start=5, end=9),)
    reply = group.run(AcquirePlan(group_id="billing", member_id="m2", member_epoch=1, max_records=10, bounds=returns))
    assert told(group.start(reply.plan.plan_id, "m2")) == [("returns", 0, 0, 4)]
    assert next_told(group) == [("orders", 0, 0, 9)]
    assert group.group.unreported_losses == ()


def test_gaps_that_no_member_holds_are_archived_and_are_no_loss() -> None:
    group = GroupDriver(records=30)
    group.join("c1", query=False)
    group.join()
    fetched(group, 10)
    fetched(group, 10)
    acknowledged(group, 0, 9, 1, 2)
    gaps = tuple(OffsetRange(topic_id=TOPIC_ID, partition=p, first=5, last=14) for p in (0, 7))
    assert group.run(ArchiveGaps(gaps=gaps)) == Done()
    assert group.dump() == ["[0..4] AVAILABLE 1 0 -", "[5..9] ARCHIVED 1 0 -", "[10..19] ACQUIRED 1 0 2"], (
        "what is held is its holder's to decide; what was never acquired is not known yet"
    )
    assert group.group.unreported_losses == ()
    assert group.partition().archived_total == 5


LATE = [("orders", 0, 0, 4)]
"""What Kafka removed before the batch of the records 0 to 19 was completed."""


def late_batch(**configs: str) -> tuple[GroupDriver, str]:
    group = GroupDriver(records=100, **configs)
    group.join()
    plan = group.next(limit=20).plan.plan_id
    group.start(plan)
    return group, plan


@pytest.mark.parametrize(
    ("configs", "row", "reported"),
    [
        ({}, said(0, 6, ACCEPT), []),
        ({}, said(3, 6, RELEASE), [("orders", 0, 3, 4)]),
        ({}, said(3, 6, REJECT), []),
        (DLQ, said(3, 6, REJECT), [("orders", 0, 3, 4)]),
        (DLQ, said(3, 6, REJECT, dead_letter=True), []),
        (EXPLICIT, said(3, 6, ACCEPT), LATE),
    ],
    ids=["accepted", "released", "rejected", "rejected without its dead letter", "dead letter", "accepted too late"],
)
def test_a_sink_that_gives_back_a_removed_record_loses_it(configs, row, reported) -> None:
    group, plan = late_batch(**configs)
    group.pass_time(60_000)
    group.join(process="m1-process-1")
    group.move_log_start(5)
    assert group.stage(row).stale, "the batch does not hold the record any more"
    from_snapshot(group)
    group.join()
    assert next_told(group, plan) == reported
