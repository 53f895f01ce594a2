"""Staging: attempts, which plan a row is about, what is refused, and that it is durable (docs/protocol.md, "Outcomes of
a sink")."""

from __future__ import annotations

import pytest

from coordinator.core.commands import InitializePartitions, PartitionStart, StageRuns, TopicPartitions
from coordinator.core.decide import decide
from coordinator.core.records import MOST_BYTES, PlanStaged, decode_record, encode_records
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import (
    BatchReclaimed,
    GroupIdNotFound,
    InvalidRequest,
    NoPlanToDecide,
    SinkOutdated,
    StaleReceipts,
)
from coordinator.protocol.messages import OutcomesStaged, PartitionOutcomes
from coordinator.protocol.receipt_errors import NeverDelivered, NoneHeld
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, fetched, from_snapshot, ranges
from tests.support.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, run_at, said, states

# --- attempts


def test_a_replay_that_says_the_same_comes_to_the_same() -> None:
    group, plan = batch(**DLQ)
    for count in (1, 2):
        group.stage(said(0, 3, ACCEPT, count), said(4, 5, RELEASE, count), said(6, 9, REJECT, count))
        if count == 1:
            group.restart(plan)
    group.complete(plan)
    assert states(group) == ["[4..5] AVAILABLE 2", "[6..9] ARCHIVING 2"]
    assert run_at(group, 4).releases == 1


@pytest.mark.parametrize(("first", "last"), [(ACCEPT, REJECT), (REJECT, ACCEPT), (ACCEPT, RELEASE), (RELEASE, REJECT)])
def test_attempts_that_disagree_release(first: AcknowledgeType, last: AcknowledgeType) -> None:
    group, plan = batch(1, **DLQ)
    group.stage(said(0, 0, first))
    group.restart(plan)
    group.stage(said(0, 0, last, 2))
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 2"]
    assert ranges(group.acquire(plan)) == [(0, 0, 3)]


@pytest.mark.parametrize(
    ("configs", "outcome", "after"),
    [
        ({}, ACCEPT, []),
        ({}, REJECT, ["[0..0] AVAILABLE 2"]),
        ({}, RELEASE, ["[0..0] AVAILABLE 2"]),
        (EXPLICIT, ACCEPT, ["[0..0] AVAILABLE 2"]),
        (EXPLICIT, REJECT, ["[0..0] AVAILABLE 2"]),
        (EXPLICIT, RELEASE, ["[0..0] AVAILABLE 2"]),
    ],
)
def test_silence_of_the_last_attempt_is_an_outcome(
    configs: dict[str, str], outcome: AcknowledgeType, after: list[str]
) -> None:
    group, plan = batch(1, **DLQ, **configs)
    group.stage(said(0, 0, outcome))
    group.restart(plan)
    group.complete(plan)
    assert states(group) == after


@pytest.mark.parametrize(
    ("outcomes", "after"),
    [
        ((REJECT, REJECT, REJECT), ["[0..0] ARCHIVING 3"]),
        ((REJECT, None, REJECT), ["[0..0] ARCHIVING 3"]),
        ((None, None, REJECT), ["[0..0] ARCHIVING 3"]),
        ((ACCEPT, REJECT, REJECT), ["[0..0] AVAILABLE 3"]),
        ((REJECT, ACCEPT, REJECT), ["[0..0] AVAILABLE 3"]),
        ((ACCEPT, REJECT, None), ["[0..0] AVAILABLE 3"]),
        ((ACCEPT, None, ACCEPT), []),
    ],
)
def test_three_attempts(outcomes: tuple[AcknowledgeType | None, ...], after: list[str]) -> None:
    """Each explicit outcome can veto; silence counts only where it is the last attempt's."""
    group, plan = batch(1, **DLQ)
    for count, outcome in enumerate(outcomes, 1):
        if outcome is not None:
            group.stage(said(0, 0, outcome, count))
        if count < len(outcomes):
            group.restart(plan)
    group.complete(plan)
    assert states(group) == after


@pytest.mark.parametrize(
    ("attempts", "after"),
    [
        ([(ACCEPT, ACCEPT), (None, ACCEPT), (ACCEPT, ACCEPT)], ["[0..0] AVAILABLE 3", "[1..1] ACKNOWLEDGED 3"]),
        ([(None, ACCEPT), (REJECT, ACCEPT)], ["[0..0] AVAILABLE 2", "[1..1] ACKNOWLEDGED 2"]),
        ([(None, ACCEPT), (RELEASE, ACCEPT)], ["[0..0] AVAILABLE 2", "[1..1] ACKNOWLEDGED 2"]),
        ([(None, None), (RELEASE, None), (RELEASE, ACCEPT)], ["[0..1] AVAILABLE 3"]),
        ([(ACCEPT, ACCEPT), (None, None), (ACCEPT, ACCEPT)], []),
        ([(None, None), (None, None), (ACCEPT, ACCEPT)], []),
    ],
    ids=str,
)
def test_what_an_attempt_passed_over_in_explicit_mode_it_released(
    attempts: list[tuple[AcknowledgeType | None, ...]], after: list[str]
) -> None:
    """Attempts at two records; one in which nothing at all is said had no sink that got so far."""
    group, plan = batch(2, **EXPLICIT)
    for count, outcomes in enumerate(attempts, 1):
        if count > 1:
            group.restart(plan)
        rows = [said(offset, offset, what, count) for offset, what in enumerate(outcomes) if what is not None]
        if rows:
            group.stage(*rows)
    group.complete(plan)
    assert states(group) == after


def test_in_implicit_mode_what_an_attempt_passed_over_it_accepted() -> None:
    group, plan = batch(2, **DLQ)
    group.stage(said(1, 1, ACCEPT))
    group.restart(plan)
    group.stage(said(0, 0, REJECT, 2))
    group.complete(plan)
    assert states(group) == ["[0..0] ARCHIVING 2", "[1..1] ACKNOWLEDGED 2"]


def test_a_commit_without_rows_in_explicit_mode_is_appended_once_an_attempt() -> None:
    group, plan = batch(2, **EXPLICIT)
    appended = []
    for _ in range(2):
        for _ in range(2):
            before = len(group.log)
            group.stage()
            appended.append(len(group.log) - before)
        group.restart(plan)
    assert appended == [1, 0, 1, 0]


def explicit_attempts(group: GroupDriver, member: str = "m1") -> tuple[int, ...]:
    plan = group.group.members[member].newest
    assert plan is not None
    return plan.explicit_attempts


def test_the_last_two_attempts_in_which_a_sink_spoke_are_kept() -> None:
    group, plan = batch(1, **EXPLICIT)
    for count in (1, 2, 3):
        group.stage(said(0, 0, ACCEPT, count))
        group.stage(said(0, 0, ACCEPT, count))
        if count < 3:
            group.restart(plan)
    assert explicit_attempts(group) == (1, 2)


@pytest.mark.parametrize(("before", "now"), [("", ""), ("", "q"), ("q", ""), ("q", "q")])
def test_a_commit_without_rows_is_heard_of_its_query_and_of_one_that_is_not_known_yet(before: str, now: str) -> None:
    group, plan = batch(1, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT), query_id=before)
    group.restart(plan)
    group.stage(query_id=now)
    assert explicit_attempts(group) == (0, 1)


def test_a_commit_without_rows_of_another_query_is_not_heard() -> None:
    group, plan = batch(1, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT), query_id="q")
    group.restart(plan)
    group.stage(query_id="another")
    assert explicit_attempts(group) == (0,)


def test_rows_say_whose_they_are_and_nothing_of_other_queries() -> None:
    group, _ = batch(1, **EXPLICIT)
    group.join("m2")
    group.ends[0] = 2
    group.use(group.acquire(member="m2").plan.plan_id, "m2")
    group.stage(said(0, 0, ACCEPT), query_id="q")
    assert (explicit_attempts(group), explicit_attempts(group, "m2")) == ((0,), ())


def test_whose_sink_it_is_is_written_when_it_is_news() -> None:
    group, _ = batch(2)
    written = []
    for query_id in ("q", "q", "", "r"):
        group.stage(said(0, 1, ACCEPT), query_id=query_id)
        record = decode_record(group.log[-1])
        assert isinstance(record, PlanStaged)
        written.append((record.query_id, group.group.members["m1"].query_id))
    assert written == [("q", "q"), ("", "q"), ("", "q"), ("r", "r")]


def test_two_sinks_of_one_batch_that_disagree_release() -> None:
    group, plan = batch(1)
    group.stage(said(0, 0, ACCEPT))
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 1"]


def test_two_sinks_of_one_batch_decide_each_its_rows() -> None:
    group, plan = batch(10, **EXPLICIT)
    group.stage(said(0, 2, ACCEPT), said(7, 8, ACCEPT))
    group.stage(said(3, 6, ACCEPT))
    group.complete(plan)
    assert states(group) == ["[9..9] AVAILABLE 1"]


def test_a_repeated_request_changes_nothing_but_delays() -> None:
    group, plan = batch()
    runs = said(0, 3, ACCEPT), said(4, 5, RELEASE, delay_ms=10_000), said(6, 9, REJECT, reason="bad")
    group.stage(*runs)
    once = [record for record in group.group.snapshot() if isinstance(record, PlanStaged)]
    assert group.stage(*runs) == OutcomesStaged(staged=10, attempt=0)
    assert [record for record in group.group.snapshot() if isinstance(record, PlanStaged)] == once
    group.pass_time(5_000)
    group.stage(*runs)
    group.complete(plan)
    assert run_at(group, 4).not_before_ms == group.now_ms + 10_000
    assert group.partition().archived_total == 4


def test_only_what_is_released_is_delayed() -> None:
    group, _ = batch(3)
    group.stage(*(said(n, n, outcome, delay_ms=5) for n, outcome in enumerate((ACCEPT, RELEASE, REJECT))))
    staged = next(record for record in group.group.snapshot() if isinstance(record, PlanStaged))
    (_, _, runs), *_ = staged.partitions
    assert [verdict.not_before_ms for _, _, verdict in runs] == [None, group.now_ms + 5, None]


# --- which plan a row is about


def test_a_batch_may_stage_when_its_lock_was_lost_and_nobody_took_it() -> None:
    group, plan = batch(**DLQ)
    group.pass_time(SESSION_MS + 1)
    assert group.dump() == ["[0..9] AVAILABLE 1 1 1"]
    assert group.stage(said(0, 4, REJECT), said(5, 9, RELEASE)).staged == 10
    group.join()
    group.complete(plan)
    assert states(group) == ["[0..4] ARCHIVING 1", "[5..9] AVAILABLE 1"]
    assert (run_at(group, 5).releases, run_at(group, 5).failures) == (0, 1), "the lost lock was the try"


def test_what_another_member_took_is_stale() -> None:
    group, plan = batch()
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    other = group.acquire(member="m2", limit=10).plan.plan_id
    group.use(other, "m2")
    staged = group.stage(said(0, 9, REJECT))
    assert (staged.staged, staged.stale) == (0, 10)
    group.join()
    group.complete(plan)
    group.complete(other, "m2")
    assert group.partition().archived_total == 0


def test_what_isolation_cut_from_the_batch_is_stale() -> None:
    group, plan = batch(4_000)
    group.restart(plan)
    assert ranges(group.restart(plan)) == [(0, 2153, 3)]
    staged = group.stage(said(0, 2_153, ACCEPT, 3), said(2_154, 3_999, REJECT, 2))
    assert (staged.staged, staged.stale) == (2_154, 1_846)
    group.complete(plan)
    assert states(group) == ["[2154..3999] AVAILABLE 2"]


def test_a_late_attempt_of_a_replayed_batch_is_refused_whole() -> None:
    """The driver before stages after a part of the batch was taken up again, and the rest was cut."""
    group, plan = batch(3, **{"share.delivery.count.limit": "3", "share.isolation.base": "1"})
    group.restart(plan)
    assert states(group) == ["[0..0] ACQUIRED 2", "[1..2] AVAILABLE 1"]
    for rows in (said(0, 2, REJECT), said(0, 0, REJECT)):
        with pytest.raises(BatchReclaimed, match=r"orders-0@0 \(1\).*group billing"):
            group.stage(rows)
    assert group.stage(said(1, 2, REJECT)).stale == 2, "nobody's any more"
    group.complete(plan)
    assert group.partition().archived_total == 0


def second_batch(first: int = 10, second: int = 10, **configs: str) -> tuple[GroupDriver, str]:
    """m1 has completed a batch of the first records, and is in the next one."""
    group, plan = batch(first, **configs)
    group.ends[0] = first + second
    plan = group.next(plan, limit=second).plan.plan_id
    group.use(plan)
    return group, plan


def test_stale_rows_are_counted_with_samples_and_never_fail_the_rest() -> None:
    group, plan = second_batch()
    staged = group.stage(said(2, 3, REJECT), said(9, 11, REJECT), said(14, 14, REJECT))
    assert staged == OutcomesStaged(staged=3, stale=3, stale_sample=("orders-0@2 (1)", "orders-0@9 (1)"), attempt=0)
    group.complete(plan)
    assert group.partition().archived_total == 3


@pytest.mark.parametrize(
    ("topic", "partition", "rows", "named"),
    [
        ("payments", 0, said(0, 4, REJECT), r"payments-0@0 \(1\).*does not read this partition"),
        ("orders", 9, said(7, 7, REJECT), r"orders-9@7 \(1\).*does not read this partition"),
        ("orders", 0, said(10, 12, REJECT), r"orders-0@10 \(1\).*no offset from 10 on was handed out"),
        ("orders", 0, said(5, 12, REJECT), r"orders-0@10 \(1\).*no offset from 10 on was handed out"),
        ("orders", 0, said(5, 6, REJECT, 2), r"orders-0@5 \(2\).*it was handed out 1 time\(s\)"),
        ("orders", 0, said(5, 6, REJECT, 0), r"orders-0@5 \(0\).*delivery counts at 1"),
        ("orders", 0, said(-3, 6, REJECT), r"orders-0@-3 \(1\).*offsets begin at 0"),
    ],
)
def test_a_row_that_no_delivery_of_the_group_can_have_had_is_refused_by_name(
    topic: str, partition: int, rows: OutcomeRun, named: str
) -> None:
    group, plan = batch(10)
    good = PartitionOutcomes(topic="orders", partition=0, runs=(said(0, 1, REJECT),))
    bad = PartitionOutcomes(topic=topic, partition=partition, runs=(rows,))
    if (topic, partition) == ("orders", 0):
        both = (PartitionOutcomes(topic="orders", partition=0, runs=(*good.runs, rows)),) if rows.first > 1 else (bad,)
    else:
        both = (good, bad)
    with pytest.raises(NeverDelivered, match=f"The row of {named}"):
        group.run(StageRuns(group_id="billing", partitions=both))
    group.complete(plan)
    assert group.partition().archived_total == 0, "nothing was staged"


def test_a_batch_of_which_no_row_is_held_though_no_lock_was_lost_is_refused_by_name() -> None:
    group, plan = second_batch()
    with pytest.raises(NoneHeld, match=r"None of the batch's 4 row\(s\), orders-0@2 \(1\) for example.*group billing"):
        group.stage(said(2, 5, REJECT))
    assert group.stage(said(2, 5, REJECT), said(10, 10, ACCEPT)).stale == 4, "one that is held makes it that batch's"
    group.complete(plan)
    assert group.partition().archived_total == 0


@pytest.mark.parametrize("loaded", [False, True], ids=["live", "loaded from a snapshot"])
def test_a_batch_of_which_no_row_is_held_since_its_locks_were_lost_is_stale(loaded: bool) -> None:
    """m1 lost all of its batch to m2, which has completed it and is in another one."""
    group, _ = batch()
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    other = group.acquire(member="m2").plan.plan_id
    group.use(other, "m2")
    group.ends[0] = 20
    other = group.next(other, "m2").plan.plan_id
    group.use(other, "m2")
    if loaded:
        from_snapshot(group)
    assert group.stage(said(0, 9, REJECT)).stale == 10


def test_nor_is_one_of_which_the_batch_lost_a_part_refused() -> None:
    """It was taken up without the records that another member took; a sink names just these."""
    group, plan = batch(10, **{"share.acquire.mode": "record_limit"})
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    other = group.acquire(member="m2", limit=4).plan.plan_id
    group.use(other, "m2")
    group.restart(plan)
    assert group.stage(said(0, 0, REJECT)).stale == 1


def test_a_query_whose_batch_is_whole_is_refused_rows_of_none_whatever_others_lost() -> None:
    """Spark's id says whose the rows are."""
    group, _ = second_batch(**{"share.delivery.count.limit": "5"})
    group.stage(said(10, 10, ACCEPT), query_id="q")
    group.join("m2")
    group.ends[0] = 30
    group.use(group.acquire(member="m2").plan.plan_id, "m2")
    with pytest.raises(NoneHeld):
        group.stage(said(2, 5, REJECT), query_id="q")


def test_a_run_of_rows_is_matched_part_by_part() -> None:
    """Rows 0 to 29; 10 to 19 are another delivery's by now."""
    group, plan = batch(30, **{"share.delivery.count.limit": "10"})
    group.stage(said(10, 19, RELEASE))
    group.complete(plan)
    plan = group.acquire(plan, limit=1).plan.plan_id
    group.use(plan)
    staged = group.stage(said(0, 9, REJECT), said(10, 19, REJECT, 2), said(20, 29, REJECT))
    assert (staged.staged, staged.stale) == (10, 20)
    assert staged.stale_sample == ("orders-0@0 (1)", "orders-0@20 (1)")


def test_samples_are_few() -> None:
    group, _ = second_batch(100, 1)
    staged = group.stage(*(said(n, n, ACCEPT) for n in range(0, 102, 2)))
    assert (staged.stale, len(staged.stale_sample)) == (50, 5)


def test_a_stale_receipt_may_refuse_the_whole() -> None:
    group, plan = second_batch()
    with pytest.raises(StaleReceipts, match=r"3 row\(s\).*group billing .*example orders-0@7 \(1\):"):
        group.stage(said(7, 9, REJECT), said(10, 16, REJECT), fail_on_stale=True)
    group.complete(plan)
    assert group.partition().archived_total == 0


def test_a_share_consumers_records_are_not_for_a_sink() -> None:
    group, _ = batch(5)
    group.ends[0] = 10
    group.join("c1", query=False)
    assert fetched(group, 5) == [(5, 9, 1)]
    assert group.stage(said(4, 9, ACCEPT)).stale == 5


def test_a_plan_that_nobody_reads_yet_is_not_for_a_sink() -> None:
    group, plan = batch(5)
    group.ends[0] = 10
    group.next(plan)
    with pytest.raises(NoPlanToDecide, match="group billing"):
        group.stage(said(5, 9, ACCEPT))


def test_nor_is_it_while_another_query_has_a_batch() -> None:
    group, _ = batch(5)
    group.ends[0] = 10
    group.join("m2")
    group.acquire(member="m2")
    staged = group.stage(said(0, 4, ACCEPT), said(5, 9, ACCEPT))
    assert (staged.staged, staged.stale) == (5, 5)


def test_two_queries_each_have_their_rows() -> None:
    group, plan = batch(5)
    group.ends[0] = 10
    group.join("m2")
    other = group.acquire(member="m2").plan.plan_id
    group.use(other, "m2")
    assert group.stage(said(3, 6, RELEASE)) == OutcomesStaged(staged=4, attempt=0)
    assert (group.group.decided, group.group.rejected) == (4, 0), "counted once"
    group.complete(plan)
    assert states(group) == ["[3..4] AVAILABLE 1", "[5..9] ACQUIRED 1"]
    group.complete(other, "m2")
    assert states(group) == ["[3..6] AVAILABLE 1", "[7..9] ACKNOWLEDGED 1"]


def test_rows_that_are_stale_for_one_query_stage_nothing_on_its_plan() -> None:
    group, _ = second_batch(5, 5)
    group.ends[0] = 15
    group.join("m2")
    group.use(group.acquire(member="m2").plan.plan_id, "m2")
    staged = group.stage(said(0, 9, ACCEPT))
    assert (staged.staged, staged.stale) == (5, 5)
    assert [member.decides for member in group.group.members.values()] == [True, False]


def test_a_sink_without_a_batch_is_refused() -> None:
    group = GroupDriver(records=10)
    group.join()
    with pytest.raises(NoPlanToDecide):
        group.stage(said(0, 1, ACCEPT))
    plan = group.next().plan.plan_id
    with pytest.raises(NoPlanToDecide):
        group.stage(said(0, 1, ACCEPT))
    group.use(plan)
    group.complete(plan)
    with pytest.raises(NoPlanToDecide):
        group.stage(said(0, 1, ACCEPT))
    assert group.stage() == OutcomesStaged(), "but one without rows has nothing to be refused for"


def test_a_group_that_is_not_there_is_named() -> None:
    with pytest.raises(GroupIdNotFound, match="group nobody"):
        decide(ShareGroup("nobody"), StageRuns(group_id="nobody"), 0)


@pytest.mark.parametrize(
    ("runs", "what"),
    [
        ((said(5, 6, ACCEPT), said(0, 1, ACCEPT)), "outcome 1 of 0-1, after 6"),
        ((said(0, 5, ACCEPT), said(5, 6, ACCEPT)), "outcome 1 of 5-6, after 5"),
        ((said(3, 2, ACCEPT),), "outcome 1 of 3-2, after -1"),
        ((said(0, 1, AcknowledgeType.RENEW),), "outcome 4 of 0-1, after -1"),
        ((said(0, 1, AcknowledgeType.GAP),), "outcome 0 of 0-1, after -1"),
    ],
)
def test_unordered_overlapping_or_unknown_outcomes_are_an_invalid_request(
    runs: tuple[OutcomeRun, ...], what: str
) -> None:
    group, _ = batch()
    with pytest.raises(InvalidRequest, match=f"^{what}$"):
        group.stage(*runs)


def test_a_partition_named_twice_is_an_invalid_request() -> None:
    group, _ = batch()
    twice = (PartitionOutcomes(topic="orders", partition=0, runs=()),) * 2
    with pytest.raises(InvalidRequest, match=r"^a partition is named twice in one request$"):
        group.run(StageRuns(group_id="billing", partitions=twice))


# --- a sink that is older than the group, or than a topic


def test_a_sink_of_another_incarnation_is_outdated() -> None:
    group, _ = batch()
    with pytest.raises(SinkOutdated, match="billing began before the group was deleted and created anew:"):
        group.stage(said(0, 9, REJECT), incarnation="before")
    assert group.stage(said(0, 9, REJECT), incarnation="i", topic_ids={"orders": TOPIC_ID, "later": "X"}).staged == 10


def test_a_sink_from_before_a_topic_was_made_anew_is_outdated() -> None:
    group, _ = batch()
    group.run(
        InitializePartitions(
            topics=(TopicPartitions(topic="orders", topic_id="T2", partitions=1),),
            starts=(PartitionStart(topic_id="T2", partition=0, start_offset=0),),
        )
    )
    with pytest.raises(SinkOutdated, match="billing began before the topic orders was deleted and created anew:"):
        group.stage(said(0, 9, REJECT), topic_ids={"orders": TOPIC_ID})
    with pytest.raises(NeverDelivered, match="no offset from 0 on was handed out"):
        group.stage(said(0, 9, REJECT))  # not pinned: these receipts are of the topic before


# --- durable


def test_staged_outcomes_outlive_a_crash() -> None:
    group, plan = batch(**DLQ)
    group.stage(said(4, 5, RELEASE, delay_ms=30_000), said(6, 9, REJECT, reason="bad"))
    group.crash()
    assert group.dump() == ["[0..9] ACQUIRED 1 0 1"]
    group.complete(plan)
    assert states(group) == ["[4..5] AVAILABLE 1", "[6..9] ARCHIVING 1"]
    assert run_at(group, 4).not_before_ms == group.now_ms + 30_000
    assert run_at(group, 6).reason == "bad"


def test_staged_outcomes_outlive_a_snapshot_with_what_attempts_said_before() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, ACCEPT), said(1, 2, REJECT, letter=True))
    group.restart(plan)
    from_snapshot(group)
    group.stage(said(0, 0, REJECT, 2), said(1, 1, REJECT, 2))
    from_snapshot(group)
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 2", "[1..1] ARCHIVED 2", "[2..2] AVAILABLE 2"]


def test_a_staging_in_many_parts_comes_to_the_same() -> None:
    """No stored record is of any size; what is stored is what was replayed."""
    group = GroupDriver(records=30_000)
    group.join()
    plan = group.next(limit=None).plan.plan_id
    group.use(plan)
    runs = [said(n, n, REJECT if n % 2 else ACCEPT, reason="" if n % 3 else f"row {n}" * 5) for n in range(30_000)]
    group.stage(*runs)
    record = next(record for record in group.group.snapshot() if isinstance(record, PlanStaged))
    parts = encode_records([record])
    assert len(parts) > 1 and max(map(len, parts)) <= MOST_BYTES
    from_snapshot(group)
    group.complete(plan)
    assert group.partition().archived_total == 15_000


def test_nothing_is_left_of_a_staging_once_its_plan_is_completed() -> None:
    group, plan = batch()
    group.stage(said(0, 9, ACCEPT))
    group.complete(plan)
    assert not any(isinstance(record, PlanStaged) for record in group.group.snapshot())
    assert all(not kept.staged for kept in group.group.plans.values())


# --- a target that replaces its output


def test_what_isolation_cut_away_from_a_replay_comes_again_though_an_attempt_before_accepted_it() -> None:
    """It was in the output that the smaller replay's takes the place of."""
    group, plan = batch(4_000)
    group.stage(said(0, 3_999, ACCEPT), replaces=True)
    group.restart(plan)
    group.stage(said(0, 3_999, ACCEPT, 2), replaces=True)
    kept = ranges(group.restart(plan))
    assert kept == [(0, 2_153, 3)]
    group.stage(said(0, 2_153, ACCEPT, 3), replaces=True)
    assert ranges(group.next(plan)) == [(2_154, 3_999, 3)]
    assert group.partition().start_offset == 2_154


def test_an_attempt_whose_driver_died_before_its_sinks_commit_says_nothing_of_its_target() -> None:
    """Neither of the one before, which is gone, nor of the next."""
    group, plan = batch(1, **DLQ)
    group.stage(said(0, 0, REJECT), replaces=True)
    group.restart(plan)
    group.restart(plan)
    group.crash()
    group.join()
    group.stage(said(0, 0, ACCEPT, 3), replaces=True)
    group.complete(plan)
    assert group.partition().start_offset == 1


def test_stale_rows_say_nothing_of_a_target() -> None:
    group, plan = second_batch(1, 2, **DLQ)
    group.stage(said(1, 1, REJECT))
    group.restart(plan)
    with pytest.raises(NoneHeld):
        group.stage(said(0, 0, ACCEPT), replaces=True)
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2", "[2..2] ACKNOWLEDGED 2"]
