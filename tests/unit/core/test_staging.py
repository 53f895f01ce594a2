"""◆ Staging: which plan a row is about, which rows are refused or stale, and what is durable."""

from __future__ import annotations

import re

import pytest

from coordinator.core.commands import InitializePartitions, PartitionStart, StageRuns, TopicWithId
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.decide import decide
from coordinator.core.log_records import PlanStaged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import MOST_BYTES, encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import ListPlans
from coordinator.protocol.errors import (
    BatchReclaimed,
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
from tests.support.sink_driver import ACCEPT, DLQ, REJECT, RELEASE, batch, run_at, said, second_batch, states


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


def test_the_answer_counts_records_that_two_commits_contradict_each_other_about() -> None:
    group, plan = batch()
    assert group.stage(said(0, 4, ACCEPT), said(5, 9, REJECT)).contradicted == 0
    assert group.stage(said(3, 6, ACCEPT), said(7, 9, REJECT)).contradicted == 2
    assert group.stage(said(5, 7, RELEASE)).contradicted == 1, "5 and 6 were counted before"
    divided = OutcomeRun(0, 9, 1, RELEASE, divided=True)
    assert group.stage(divided).contradicted == 0, "the sink has told these by itself"
    group.restart(plan)
    assert group.stage(said(0, 9, REJECT, 2)).contradicted == 0, "another attempt"


def test_stale_rows_are_counted_with_samples_and_fail_no_other_row() -> None:
    group, plan = second_batch()
    staged = group.stage(said(2, 3, REJECT), said(9, 11, REJECT), said(14, 14, REJECT))
    assert (staged.staged, staged.stale, staged.attempt) == (3, 3, 0)
    assert staged.stale_sample == ("orders-0@2 (1)", "orders-0@9 (1)")
    group.complete(plan)
    assert group.partition().archived_total == 3


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


@pytest.mark.parametrize("held", [1, 10])
def test_rows_of_no_held_record_are_refused_if_no_lock_was_lost(held: int) -> None:
    group, plan = second_batch(second=held)
    text = r"None of the batch's 4 row\(s\), for example orders-0@2 \(1\), orders-0@4 \(1\).*group billing"
    with pytest.raises(NoneHeld, match=text):
        group.stage(said(2, 3, REJECT), said(4, 5, REJECT))
    assert group.stage(said(2, 5, REJECT), said(10, 10, ACCEPT)).stale == 4, "one that is held makes it that batch's"
    group.complete(plan)
    assert group.partition().archived_total == 0


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


def test_samples_are_few() -> None:
    group, _ = second_batch(100, 1)
    staged = group.stage(*(said(n, n, ACCEPT) for n in range(0, 102, 2)))
    assert (staged.stale, len(staged.stale_sample)) == (50, 5)


def test_a_stale_receipt_may_refuse_the_whole() -> None:
    group, plan = second_batch()
    named = r"3 row\(s\).*group billing, for example orders-0@7 \(1\), orders-0@8 \(1\):"
    with pytest.raises(StaleReceipts, match=named):
        group.stage(said(7, 7, REJECT), said(8, 9, REJECT), said(10, 16, REJECT), fail_on_stale=True)
    group.complete(plan)
    assert group.partition().archived_total == 0


def test_rows_that_are_stale_for_one_query_stage_nothing_on_its_plan() -> None:
    group, _ = second_batch(5, 5)
    group.ends[0] = 15
    group.join("m2")
    group.start(group.acquire(member="m2").plan.plan_id, "m2")
    staged = group.stage(said(0, 9, ACCEPT))
    assert (staged.staged, staged.stale) == (5, 5)
    assert [member.decides for member in group.group.members.values()] == [True, False]


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


def test_rows_count_for_the_topic_that_their_receipts_name() -> None:
    """◆ Receipts of the topic that was deleted look like those of the topic that has its name now. m1 still decides the
    records of the old one, which it holds; m2 has the new one's."""
    group, _ = batch()
    made_anew(group, "T2")
    group.join("m2")
    other = group.acquire(member="m2", limit=10).plan
    assert [part.topic_id for part in other.partitions] == ["T2"]
    group.start(other.plan_id, "m2")
    assert group.stage(said(0, 4, REJECT), said(5, 9, ACCEPT)).staged == 10
    assert [kept.plan_id for kept in group.group.plans.values() if kept.staged] == [1]
    assert group.stage(said(0, 9, RELEASE), topic_id="T2").staged == 10
    group.complete(other.plan_id, "m2")
    assert {run.state for _, _, run in group.group.partitions["T2", 0].runs} == {RecordState.AVAILABLE}


def made_anew(group: GroupDriver, topic_id: str, end: int = 10) -> None:
    """The topic was deleted, and another one has its name."""
    group.run(
        InitializePartitions(
            topics=(TopicWithId(topic="orders", topic_id=topic_id),),
            starts=(PartitionStart(topic_id=topic_id, partition=0, start_offset=0),),
        )
    )
    group.topic_id = topic_id


def test_staged_outcomes_outlive_a_crash() -> None:
    """◆ Spark committed; the coordinator died before the plan was completed: the rejected record is not accepted."""
    group, plan = batch(**DLQ)
    group.stage(said(4, 5, RELEASE, delay_ms=30_000), said(6, 9, REJECT, reason="bad"))
    group.crash()
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.complete(plan)
    assert states(group) == ["[4..5] AVAILABLE 1", "[6..9] ARCHIVING 1"]
    assert run_at(group, 4).not_before_ms == group.now_ms + 30_000
    assert run_at(group, 6).reason == "bad"


def test_staged_outcomes_of_all_attempts_outlive_a_snapshot() -> None:
    """◆ Loaded from a snapshot alone, a disagreement is known, and a rejected record is rejected."""
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, ACCEPT), said(1, 2, REJECT, dead_letter=True))
    group.restart(plan)
    from_snapshot(group)
    group.stage(said(0, 0, REJECT, 2), said(1, 1, REJECT, 2))
    from_snapshot(group)
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 2", "[1..1] ARCHIVED 2", "[2..2] AVAILABLE 2"]


def test_a_staging_in_many_parts_has_the_same_effect() -> None:
    """No stored record is of any size; what is stored is what was replayed."""
    group = GroupDriver(records=30_000)
    group.join()
    plan = group.next(limit=None).plan.plan_id
    group.start(plan)
    runs = [said(n, n, REJECT if n % 2 else ACCEPT, reason="" if n % 3 else f"row {n}" * 5) for n in range(30_000)]
    group.stage(*runs)
    record = next(record for record in snapshot_of(group.group) if isinstance(record, PlanStaged))
    parts = encode_records([record])
    assert len(parts) > 1 and max(map(len, parts)) <= MOST_BYTES
    from_snapshot(group)
    group.complete(plan)
    assert group.partition().archived_total == 15_000


def test_a_completed_plan_leaves_no_staged_outcomes() -> None:
    group, plan = batch()
    group.stage(said(0, 9, ACCEPT))
    group.complete(plan)
    assert not any(isinstance(record, PlanStaged) for record in snapshot_of(group.group))
    assert all(not kept.staged for kept in group.group.plans.values())


def test_a_reset_partition_keeps_no_staged_outcomes() -> None:
    """The plan stays, as it has records of another partition."""
    group = GroupDriver(records=10, partitions=2)
    group.join()
    group.start(group.next().plan.plan_id)
    for partition in (0, 1):
        group.stage(said(0, 9, ACCEPT), partition=partition)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=True, force=True))
    (kept,) = [record for record in snapshot_of(group.group) if isinstance(record, PlanStaged)]
    assert [index for _, index, _ in kept.partitions] == [1]


def test_a_replay_reads_records_that_a_sink_has_decided() -> None:
    group, plan = batch(3)
    group.stage(said(0, 1, ACCEPT), said(2, 2, REJECT))
    assert ranges(group.restart(plan)) == [(0, 2, 2)]


def test_rows_are_staged_on_the_plan_with_their_offset_and_count() -> None:
    """Another member has taken a record since the lock was lost; that member decides it, at whatever count it is."""
    group, plan = batch(3, **DLQ, **{"share.acquire.mode": "record_limit"})
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    taken = group.next(member="m2", limit=1).plan.plan_id
    group.start(taken, member="m2")
    group.join()
    staged = group.stage(said(0, 2, REJECT, 1))
    assert (staged.staged, staged.stale) == (2, 1)
    group.complete(plan)
    assert states(group) == ["[0..0] ACQUIRED 2", "[1..2] ARCHIVING 1"]


def test_a_driver_whose_batch_was_reclaimed_since_is_refused() -> None:
    """A stopped driver continues after its successor died. If it could commit the output that it wrote, record 0 would
    be accepted and record 1 nowhere. This holds however often the batch was reclaimed, and after a load."""
    group, plan = batch(3, **DLQ)
    for count in (1, 2):
        group.restart(plan)
        for older in range(1, count + 1):
            with pytest.raises(BatchReclaimed, match=rf"orders-0@0 \({older}\)"):
                group.stage(said(0, 0, REJECT, older), said(1, 1, RELEASE, older), said(2, 2, ACCEPT, older))
        group.log = encode_records(snapshot_of(group.group))
        group.crash()
    group.stage(said(0, 0, REJECT, 3), said(1, 1, RELEASE, 3), said(2, 2, ACCEPT, 3))
    group.complete(plan)
    assert states(group) == ["[0..0] ARCHIVING 3", "[1..1] AVAILABLE 3", "[2..2] ACKNOWLEDGED 3"]
