"""Quarantine: at the limit a query's record leaves its batch, is tried alone, and backs off."""

from __future__ import annotations

from coordinator.core.commands import AcquirePlan
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.messages import LeaveGroup, PartitionBounds, PlanReply
from tests.kip932.consumers import ShareConsumers
from tests.support.group_driver import (
    TOPIC_ID,
    GroupDriver,
)
from tests.support.quarantine import quarantined_plan, quarantined_record


def test_the_least_recently_tried_partition_is_next() -> None:
    group = GroupDriver(records=1, partitions=3, **{"share.delivery.count.limit": "2"})
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    for _ in range(2):
        group.restart(plan)
    tried = []
    for _ in range(6):
        alone = group.next(plan)
        plan = alone.plan.plan_id
        tried.append(alone.plan.partitions[0].partition)
        group.start(plan)
        group.restart(plan)
        group.pass_time(10_000)
    assert tried[:3] == [0, 1, 2], "none was tried yet: the partition whose turn it is"
    assert tried[3:] == tried[:3]


def bound(partition: int, end: int) -> PartitionBounds:
    return PartitionBounds(topic_id=TOPIC_ID, partition=partition, log_start=0, end=end)


def test_no_quarantined_record_beyond_the_log_end_is_acquired() -> None:
    group, plan = quarantined_plan()
    group.complete(plan)
    reply = group.run(
        AcquirePlan(
            group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan, bounds=(bound(0, 0),)
        )
    )
    assert reply == PlanReply()


def test_an_owner_whose_clock_is_behind_delays_no_record_beyond_its_backoff() -> None:
    group, plan = quarantined_plan()
    alone = group.next(plan).plan.plan_id
    group.start(alone)
    group.restart(alone)
    backoff_ms = group.partition().runs.first().run.delay_ms  # type: ignore[union-attr]
    group.now_ms -= 600_000
    group.crash()
    group.pass_time(0)
    group.join()
    assert not group.next(alone).plan.plan_id
    group.pass_time(backoff_ms)  # type: ignore[arg-type]
    assert group.next(alone).plan.plan_id


def test_a_failure_at_the_limit_quarantines() -> None:
    group, _ = quarantined_record()
    assert group.partition().archived_total == 0


def test_no_count_of_failures_archives_a_querys_record() -> None:
    """KIP-932, In-flight records: ours differs for Spark's queries. At the limit their record is quarantined, to be
    delivered alone, since a batch that fails says nothing of each record in it; only a failed trial archives it."""
    group = ShareConsumers(end=1, share_delivery_count_limit=2)
    group.join("q")
    number = group.acquire(member="q").plan.plan_id
    group.start(number, "q")
    for _ in range(2):
        group.restart(number, "q")
    assert group.states() == ["0 AVAILABLE 2"]
    (run,) = group.run(ListInFlight(group_id="billing")).runs
    assert run.stage == "failed alone"


def test_a_coordinator_rests_once_no_backoff_is_to_be_waited_for() -> None:
    group, plan = quarantined_record()
    group.start(group.next(plan).plan.plan_id)
    group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    assert not group.group.may_rest(group.now_ms)
    assert group.group.may_rest(group.now_ms + 1_000)
