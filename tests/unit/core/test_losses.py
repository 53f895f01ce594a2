"""Records that the log lost are archived, counted, and reported once, to the query that held them or reads next."""

from __future__ import annotations

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
