"""◆ Staging: which plan a row is about, which rows are refused or stale, and what is durable."""

from __future__ import annotations

import re

import pytest

from coordinator.core.commands import InitializePartitions, PartitionStart, StageRuns
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.decide import decide
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import ListPlans
from coordinator.protocol.errors import (
    GroupIdNotFound,
    InvalidRequest,
    NeverDelivered,
    NoneHeld,
    SinkOutdated,
    StaleReceipts,
)
from coordinator.protocol.messages import OutcomesStaged, PartitionOutcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, from_snapshot, ranges, started_plan
from tests.support.sink_driver import ACCEPT, REJECT, batch, said, second_batch


def test_a_sink_names_the_batch_of_its_plan_until_a_restart() -> None:
    group, plan = batch()
    group.stage(said(0, 9, ACCEPT), query_id="q", batch_id=0)
    assert batch_ids(group) == {plan: 0}
    group.stage(query_id="q", batch_id=99)
    assert batch_ids(group) == {plan: 0}, "a commit that names no plan"
    from_snapshot(group)
    assert batch_ids(group) == {plan: None}
    group.restart(plan)
    group.silent(batch_id=0)
    assert batch_ids(group) == {plan: 0}, "a commit without rows that names the plan"


def test_a_sink_commits_a_batch_whose_plan_no_record_carries_any_more() -> None:
    group, plan = batch()
    group.stage(said(0, 9, ACCEPT), query_id="q", batch_id=12)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    other = group.acquire(member="m2", limit=10).plan.plan_id
    group.start(other, "m2")
    group.complete(other, "m2")
    group.join()
    group.restart(plan)
    assert not group.group.plans
    assert group.silent(batch_id=12).staged == 0


def batch_ids(group: GroupDriver) -> dict[str, int | None]:
    return {plan.plan_id: plan.batch_id for plan in group.run(ListPlans(group_id="billing")).plans}


@pytest.mark.parametrize(
    ("topic_id", "partition", "rows", "row", "reason"),
    [
        ("payments", 0, said(0, 4, REJECT), "payments-0@0 (1)", "the group does not read this partition"),
        (TOPIC_ID, 9, said(7, 7, REJECT), "orders-9@7 (1)", "the group does not read this partition"),
        (TOPIC_ID, 0, said(10, 12, REJECT), "orders-0@10 (1)", "no offset from 10 on was handed out"),
        (TOPIC_ID, 0, said(5, 12, REJECT), "orders-0@10 (1)", "no offset from 10 on was handed out"),
        (TOPIC_ID, 0, said(5, 6, REJECT, 2), "orders-0@5 (2)", "it was handed out 1 time(s)"),
        (TOPIC_ID, 0, said(5, 6, REJECT, 0), "orders-0@5 (0)", "offsets begin at 0, and delivery counts at 1"),
        (TOPIC_ID, 0, said(-3, 6, REJECT), "orders-0@-3 (1)", "offsets begin at 0, and delivery counts at 1"),
    ],
)
def test_a_row_of_an_impossible_delivery_is_refused_by_name(
    topic_id: str, partition: int, rows: OutcomeRun, row: str, reason: str
) -> None:
    group, plan = batch(10)
    good = PartitionOutcomes(topic_id=TOPIC_ID, partition=0, runs=(said(0, 1, REJECT),))
    bad = PartitionOutcomes(topic_id=topic_id, partition=partition, runs=(rows,))
    if (topic_id, partition) == (TOPIC_ID, 0):
        both = (
            (PartitionOutcomes(topic_id=TOPIC_ID, partition=0, runs=(*good.runs, rows)),) if rows.first > 1 else (bad,)
        )
    else:
        both = (good, bad)
    text = f"The row of {row} matches no delivery of share group billing: {reason}. "
    with pytest.raises(NeverDelivered, match=re.escape(text)):
        group.run(StageRuns(group_id="billing", partitions=both))
    group.complete(plan)
    assert group.partition().archived_total == 0, "nothing was staged"


def test_lost_locks_of_other_queries_excuse_no_row_of_a_named_plan() -> None:
    group, plan = second_batch(**{"share.delivery.count.limit": "5"})
    group.join("m2")
    group.ends[0] = 30
    group.start(group.acquire(member="m2").plan.plan_id, "m2")
    with pytest.raises(NoneHeld):
        group.stage(said(2, 5, REJECT), plans={plan: group.epochs["m1"]})


@pytest.mark.parametrize("start", [0, None])
def test_rows_of_offsets_that_an_administrator_altered_are_stale(start: int | None) -> None:
    """None: the share partition's state is deleted, and begins anew at the query's next poll."""
    group, plan = started_plan(10, **{"share.acknowledgement.mode": "explicit"})
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, start),), execute=True, force=True))
    for _ in range(2):
        assert group.stage(OutcomeRun(3, 4, 1, ACCEPT)) == OutcomesStaged(stale=2, stale_sample=("orders-0@3 (1)",))
        if start is None:
            begun = PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=0)
            group.run(InitializePartitions(topics=(), starts=(begun,)))
    assert ranges(group.next(plan)) == [(0, 9, 2)]


def test_a_stale_receipt_may_refuse_the_whole() -> None:
    group, plan = second_batch()
    named = r"3 row\(s\).*group billing, for example orders-0@7 \(1\), orders-0@8 \(1\):"
    with pytest.raises(StaleReceipts, match=named):
        group.stage(said(7, 7, REJECT), said(8, 9, REJECT), said(10, 16, REJECT), fail_on_stale=True)
    group.complete(plan)
    assert group.partition().archived_total == 0


def test_a_missing_group_is_named() -> None:
    with pytest.raises(GroupIdNotFound, match="group nobody"):
        decide(ShareGroup("nobody"), StageRuns(group_id="nobody"), 0)


@pytest.mark.parametrize(
    ("runs", "what"),
    [
        ((said(5, 6, ACCEPT), said(0, 1, ACCEPT)), "Outcome 1 of 0-1, after 6,"),
        ((said(0, 5, ACCEPT), said(5, 6, ACCEPT)), "Outcome 1 of 5-6, after 5,"),
        ((said(3, 2, ACCEPT),), "Outcome 1 of 3-2, after -1,"),
        ((said(0, 1, AcknowledgeType.RENEW),), "Outcome 4 of 0-1, after -1,"),
        ((said(0, 1, AcknowledgeType.GAP),), "Outcome 0 of 0-1, after -1,"),
    ],
)
def test_unordered_overlapping_or_unknown_outcomes_are_an_invalid_request(
    runs: tuple[OutcomeRun, ...], what: str
) -> None:
    group, _ = batch()
    with pytest.raises(InvalidRequest, match=f"^{what} is unknown or in no order.$"):
        group.stage(*runs)


def test_a_partition_named_twice_is_an_invalid_request() -> None:
    group, _ = batch()
    twice = (PartitionOutcomes(topic_id=TOPIC_ID, partition=0, runs=()),) * 2
    with pytest.raises(InvalidRequest, match=r"^A partition is named twice in one request.$"):
        group.run(StageRuns(group_id="billing", partitions=twice))


def test_a_sink_of_another_incarnation_is_outdated() -> None:
    group, _ = batch()
    with pytest.raises(SinkOutdated, match="billing began before the group was deleted and created anew, so"):
        group.stage(said(0, 9, REJECT), incarnation="before")
    assert group.stage(said(0, 9, REJECT), incarnation="i").staged == 10


def test_samples_are_few() -> None:
    group, _ = second_batch(100, 1)
    staged = group.stage(*(said(n, n, ACCEPT) for n in range(0, 102, 2)))
    assert (staged.stale, len(staged.stale_sample)) == (50, 5)
