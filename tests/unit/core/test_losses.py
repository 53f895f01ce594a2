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
from coordinator.core.log_records import DataLost
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import decode_record
from coordinator.protocol.messages import Done, LeftOut, PartitionBounds, PlanReply
from coordinator.protocol.values import OffsetRange, SharePartitionKey
from tests.support.group_driver import (
    TOPIC_ID,
    GroupDriver,
    acknowledged,
    fetched,
    from_snapshot,
    ranges,
    started_plan,
)
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


def test_losses_of_several_partitions_are_reported_apart() -> None:
    group = GroupDriver(records=100, partitions=2)
    group.join()
    group.move_log_start(10, 1)
    group.move_log_start(10, 0)
    group.move_log_start(20, 1)
    assert in_words(group.group.unreported_losses) == [("orders", 0, 0, 9), ("orders", 1, 0, 19)]
    assert next_told(group) == [("orders", 0, 0, 9), ("orders", 1, 0, 19)]


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


def test_the_log_start_of_an_unknown_partition_is_ignored() -> None:
    group = GroupDriver(records=10)
    group.join()
    group.run(MoveLogStarts(starts=(PartitionStart(topic_id=TOPIC_ID, partition=9, start_offset=5),)))
    assert group.group.unreported_losses == ()
    assert SharePartitionKey(TOPIC_ID, 9) not in group.group.partitions


def test_a_log_start_that_did_not_move_appends_nothing() -> None:
    group = GroupDriver(records=10)
    group.join()
    group.move_log_start(5)
    before = list(group.log)
    group.move_log_start(5)
    group.move_log_start(3)
    assert group.log == before


def test_records_of_an_unsubscribed_topic_are_released_and_reported() -> None:
    group, plan = started_plan()
    group.join()
    back = group.start(plan, unsubscribed_topic_ids=frozenset({TOPIC_ID}))
    assert ranges(back) == [] and told(back) == []
    assert [(o.first, o.last, o.reason) for o in back.left_out] == [(0, 99, "unsubscribed")]
    assert group.dump() == ["[0..99] AVAILABLE 1 0 -"], "anybody's, at no cost"


def test_a_deleted_topic_is_a_loss() -> None:
    group, plan = started_plan()
    group.join()
    back = group.start(plan, deleted_topic_ids=frozenset({TOPIC_ID}))
    assert told(back) == [("orders", 0, 0, 99)]
    assert (group.partition().archived_total, group.partition().start_offset) == (100, 100)


def test_a_plan_of_a_recreated_topic_is_replayed_after_a_snapshot() -> None:
    group, plan = started_plan()
    group.run(
        InitializePartitions(
            topics=(TopicWithId(topic="orders", topic_id="T2"),),
            starts=(PartitionStart(topic_id="T2", partition=0, start_offset=0),),
        )
    )
    from_snapshot(group)
    assert group.group.topics == {"orders": "T2"}
    assert group.group.topic_names == {TOPIC_ID: "orders", "T2": "orders"}
    group.join()
    assert told(group.start(plan, deleted_topic_ids=frozenset({TOPIC_ID}))) == [("orders", 0, 0, 99)]


def test_gaps_that_no_member_holds_are_archived_and_are_no_loss() -> None:
    group = GroupDriver(records=30)
    group.join("c1", query=False)
    group.join()
    fetched(group, 10)
    fetched(group, 10)
    acknowledged(group, 0, 9, 1, 2)
    gaps = tuple(OffsetRange(topic_id=TOPIC_ID, partition=p, first=5, last=14) for p in (0, 7))
    assert group.run(ArchiveGaps(gaps=gaps)) == Done()
    assert group.dump() == [
        "[0..4] AVAILABLE 1 0 -",
        "[5..9] ARCHIVED 1 0 -",
        "[10..19] ACQUIRED 1 0 2",
    ], "what is held is its holder's to decide; what was never acquired is not known yet"
    assert group.group.unreported_losses == ()
    assert group.partition().archived_total == 5


def test_log_starts_of_several_partitions_move_in_one_command() -> None:
    group = GroupDriver(records=100, partitions=4)
    group.join()
    starts = tuple(
        PartitionStart(topic_id=TOPIC_ID, partition=p, start_offset=offset)
        for p, offset in ((0, 10), (9, 5), (1, 0), (2, 20))
    )
    assert group.run(MoveLogStarts(starts=starts)) == Done()
    assert [group.partition(p).start_offset for p in range(4)] == [10, 0, 20, 0]
    assert in_words(group.group.unreported_losses) == [("orders", 0, 0, 9), ("orders", 2, 0, 19)]


def test_a_loss_that_no_member_held_is_appended_without_a_plan() -> None:
    group = GroupDriver(records=100)
    group.join()
    group.move_log_start(10)
    for records in (map(decode_record, group.log), snapshot_of(group.group)):
        assert [(lost.plan_id, lost.member_id) for lost in records if isinstance(lost, DataLost)] == [(None, None)]


def test_offsets_below_log_start_are_archived_then_fail_once() -> None:
    group, plan = started_plan()
    group.move_log_start(30)
    told = group.restart(plan)
    assert [(o.first, o.last) for o in told.data_loss] == [(0, 29)]
    assert group.partition().archived_total == 30
    after = group.restart(plan)
    assert after.data_loss == ()
    assert ranges(after) == [(30, 99, 3)]


def test_losses_that_no_member_held_are_reported_once_with_the_next_plan() -> None:
    group, plan = started_plan()  # 0 to 99
    group.ends[0] = 300
    group.move_log_start(150)
    group.move_log_start(200)
    group.crash()
    group.complete(plan)
    following = group.acquire(plan).plan.plan_id
    told = group.start(following, fail_on_data_loss=True)
    assert [(o.first, o.last) for o in told.data_loss] == [(100, 199)]
    assert told.left_out == ()
    assert group.group.unreported_losses == (), "no other query is told again"
    after = group.restart(following, fail_on_data_loss=True)
    assert after.data_loss == () and ranges(after) == [(200, 299, 2)]


LATE = [("orders", 0, 0, 4)]
"""What Kafka removed before the batch of the records 0 to 19 was completed."""
RETURNS = [pytest.param(True, id="with its session"), pytest.param(False, id="after its session ended")]


def late_batch(**configs: str) -> tuple[GroupDriver, str]:
    group = GroupDriver(records=100, **configs)
    group.join()
    plan = group.next(limit=20).plan.plan_id
    group.start(plan)
    return group, plan


def remove(group: GroupDriver, *, with_session: bool) -> None:
    """Kafka removes the first five records, while the query is there or after it was away."""
    if not with_session:
        group.pass_time(60_000)
        group.join()
    group.move_log_start(5)
    from_snapshot(group)
    group.join()


@pytest.mark.parametrize("with_session", RETURNS)
@pytest.mark.parametrize(
    ("configs", "rows", "reported"),
    [
        ({}, (), []),
        ({}, (said(0, 19, ACCEPT),), []),
        ({}, (said(0, 19, RELEASE),), LATE),
        ({}, (said(0, 19, REJECT),), []),
        (EXPLICIT, (said(2, 19, ACCEPT),), [("orders", 0, 0, 1)]),
        (EXPLICIT, (), LATE),
        (DLQ, (said(0, 19, REJECT, dead_letter=True),), []),
    ],
    ids=["nothing said", "accepted", "released", "rejected", "some accepted", "explicit silence", "dead letter"],
)
def test_what_a_batch_did_not_accept_and_kafka_removed_is_reported(configs, rows, reported, with_session) -> None:
    group, plan = late_batch(**configs)
    group.silent()
    if rows:
        group.stage(*rows)
    remove(group, with_session=with_session)
    assert next_told(group, plan) == reported
    assert group.group.unreported_losses == ()


def test_without_a_sink_in_explicit_mode_removed_records_are_reported() -> None:
    group, plan = late_batch(**EXPLICIT)
    remove(group, with_session=False)
    assert next_told(group, plan) == LATE


def test_an_unwritten_dead_letter_of_a_removed_record_is_reported() -> None:
    group, plan = late_batch(**DLQ)
    group.stage(said(0, 2, REJECT, dead_letter=True), said(3, 19, REJECT))
    remove(group, with_session=False)
    assert next_told(group, plan) == [("orders", 0, 3, 4)]


@pytest.mark.parametrize(("replaces", "reported"), [(False, LATE), (True, [])])
def test_attempts_that_disagree_about_a_removed_record_lose_it(replaces, reported) -> None:
    group, plan = late_batch()
    group.stage(said(0, 19, RELEASE))
    group.restart(plan)
    group.stage(said(0, 19, ACCEPT, 2), replaces=replaces)
    remove(group, with_session=False)
    assert next_told(group, plan) == reported


def test_a_removed_record_is_reported_only_if_tasks_may_have_skipped_it() -> None:
    for fails, reported in ((True, []), (False, LATE)):
        group, plan = late_batch()
        group.restart(plan, fail_on_data_loss=fails)
        remove(group, with_session=False)
        assert next_told(group, plan) == reported


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


def test_a_batch_that_starts_again_reports_its_losses_once() -> None:
    group, plan = late_batch(**EXPLICIT)
    group.stage(said(5, 19, ACCEPT))
    remove(group, with_session=False)
    assert told(group.start(plan)) == LATE
    assert next_told(group, plan) == []


def test_a_batch_committed_without_reading_it_reports_its_losses_in_explicit_mode() -> None:
    group = GroupDriver(records=100, **EXPLICIT)
    group.join()
    plan = group.next(limit=20).plan.plan_id
    group.pass_time(60_000)
    group.join()
    group.move_log_start(5)
    assert group.next().plan.plan_id == plan, "the process that is back acquires it again"
    assert next_told(group, plan) == LATE
