"""Members that are gone, and topics that are no more, are forgotten; what must outlive them is kept."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core import share_group
from coordinator.core.commands import ArchiveDeletedTopics, Expire, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.commands.forget import SWEEP_MS
from coordinator.core.record_codec import decode_record
from coordinator.protocol.errors import MemberForgotten, StalePlan
from coordinator.protocol.messages import Heartbeat, JoinGroup, LeaveGroup
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
LONGEST_MS = RETENTION_MS * 9 // 8 + SWEEP_MS + SESSION_MS


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_group, "MEMBERS_KEPT", 2)


def batch(group: GroupDriver, member: str, start: str = "") -> str:
    """The member joins, and completes a batch of ten records."""
    group.join(member)
    number = group.acquire(start, member, 10).plan.plan_id
    group.start(number, member)
    group.complete(number, member)
    return number


def gone(group: GroupDriver, member: str) -> None:
    group.run(LeaveGroup(group_id="billing", member_id=member, member_epoch=group.epochs[member]))


def known(group: GroupDriver) -> list[str]:
    return sorted(group.group.members)


def of_several(count: int, **fields: Any) -> GroupDriver:
    """``count`` queries completed a batch each and left."""
    group = GroupDriver(records=1_000, **fields)
    for n in range(count):
        batch(group, f"m{n}")
        gone(group, f"m{n}")
    return group


def test_a_member_away_for_the_retention_is_forgotten_except_the_last() -> None:
    group = of_several(5)
    group.pass_time(RETENTION_MS)
    assert len(known(group)) == 5, "not earlier"
    group.pass_time(LONGEST_MS - RETENTION_MS)
    assert known(group) == ["m3", "m4"], "of those that were there last two are kept, whatever their age"
    group.pass_time(100 * DAY_MS)
    assert known(group) == ["m3", "m4"]
    group.crash()
    assert known(group) == ["m3", "m4"]


ODD = {"share.member.retention.ms": str(RETENTION_MS + 1)}
"""A retention that is not divisible by eight."""


def test_a_sweep_is_due_when_the_first_members_retention_ends() -> None:
    group = of_several(3, **ODD)
    group.run(Expire())
    assert group.group.next_deadline_ms() == group.now_ms + RETENTION_MS + 1 + RETENTION_MS // 8 + 1


def test_a_sweep_that_leaves_a_holder_comes_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is left to forget, so the next sweep is due an eighth of the retention later."""
    monkeypatch.setattr("coordinator.core.commands.forget.MOST_AT_ONCE", 1)
    group = GroupDriver(records=1_000, **ODD)
    group.join("held")
    group.start(group.acquire("", "held", 10).plan.plan_id, "held")
    group.pass_time(SESSION_MS + 1)
    for n in range(3):
        group.join(f"m{n}")
        gone(group, f"m{n}")
    group.now_ms += LONGEST_MS
    group.run(Expire())
    assert known(group) == ["held", "m1", "m2"]
    assert group.group.next_deadline_ms() == group.now_ms + RETENTION_MS // 8 + 1


def test_heartbeats_keep_a_member_with_few_appends() -> None:
    group = of_several(4)
    group.join("idle")
    before = len(group.log)
    with group.unchecked():
        for _ in range(60 * 24):
            group.pass_time(RETENTION_MS // 700)
            group.run(JoinGroup(group_id="billing", member_id="idle", process_id="idle-process-1", member_epoch=1))
            group.run(Heartbeat(group_id="billing", member_id="idle", member_epoch=1))
    names = [type(decode_record(data)).__name__ for data in group.log[before:]]
    assert names.count("MemberSeen") <= 17, "eight times in a retention"
    assert set(names) <= {"MemberSeen", "MembersForgotten", "RunsChanged"}
    assert "idle" in known(group)
    group.crash()  # nobody knows when its session ended
    group.pass_time(RETENTION_MS * 3 // 4)
    assert "idle" in known(group)


def test_a_forgotten_query_is_refused_by_name() -> None:
    group = of_several(5)
    group.pass_time(LONGEST_MS)
    assert "m0" not in known(group)
    group.join("m0", "a later process")
    with pytest.raises(StalePlan, match=r" none, since the group does not know .* \(share\.member\.retention\.ms: "):
        group.acquire("i.1", "m0")  # Spark committed the batch, and asks for the next one
    with pytest.raises(StalePlan, match=r"share\.member\.retention\.ms"):
        group.start("i.1", "m0")  # Spark replays the batch
    with pytest.raises(StalePlan):
        group.complete("i.1", "m0")


def test_a_process_stopped_for_longer_than_the_retention_is_refused() -> None:
    group = of_several(5)
    group.pass_time(LONGEST_MS)
    with pytest.raises(MemberForgotten, match="new checkpointLocation"):
        group.run(JoinGroup(group_id="billing", member_id="m0", process_id="m0-process-1", member_epoch=1))


def test_a_forgotten_querys_unreported_loss_is_reported_to_another_query() -> None:
    group = GroupDriver(records=1_000)
    group.join("held")
    group.acquire("", "held", 10)
    group.pass_time(SESSION_MS + 1)
    group.move_log_start(10)
    for n in range(4):
        batch(group, f"m{n}")
        gone(group, f"m{n}")
    group.pass_time(LONGEST_MS)
    assert "held" not in known(group)
    group.join("m9")
    told = group.start(group.acquire("", "m9", 10).plan.plan_id, "m9")
    assert [(out.first, out.last) for out in told.data_loss] == [(0, 9)]


def test_many_members_are_forgotten_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.core.commands.forget.MOST_AT_ONCE", 3)
    group = of_several(9)
    group.pass_time(LONGEST_MS)
    assert known(group) == ["m7", "m8"]
    steps = [decode_record(data) for data in group.log if b"MembersForgotten" in data]
    assert [len(step.member_ids) for step in steps] == [3, 3, 1]  # type: ignore[union-attr]


# --- topics that are no more


def made_anew(group: GroupDriver, topic_id: str) -> None:
    group.run(
        InitializePartitions(
            topics=(TopicWithId(topic="orders", topic_id=topic_id),),
            starts=(PartitionStart(topic_id=topic_id, partition=0, start_offset=0),),
        )
    )


def partitions(group: GroupDriver) -> list[str]:
    return sorted(key.topic_id for key in group.group.partitions)


def test_a_recreated_topic_is_forgotten_whose_offsets_an_administrator_deleted() -> None:
    group = GroupDriver(records=100)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, None),), execute=True, force=True))
    made_anew(group, "new")
    group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,)))
    group.pass_time(SWEEP_MS + 1)
    group.pass_time(SWEEP_MS + 1)
    assert group.group.topic_names == {"new": "orders"}
    assert not group.group.has_forgettable and not group.group.deleted_partitions


def test_a_topic_of_deleted_offsets_is_kept_while_a_plan_names_it() -> None:
    group = GroupDriver(records=100)
    group.join("m1")
    number = group.acquire("", "m1", 10).plan.plan_id
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, None),), execute=True, force=True))
    made_anew(group, "new")
    group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,)))
    group.pass_time(3 * SWEEP_MS)
    assert group.group.topic_names == {TOPIC_ID: "orders", "new": "orders"}
    group.join("m1")
    assert group.start(number, "m1").left_out[0].reason == "altered"


def test_a_recreated_topics_old_id_is_kept_while_requests_may_name_it() -> None:
    group = GroupDriver(records=100)
    made_anew(group, "new")
    group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,)))
    group.run(Expire())
    group.pass_time(SWEEP_MS // 2)
    assert partitions(group) == [TOPIC_ID, "new"]
    group.crash()
    group.run(Expire())
    assert partitions(group) == [TOPIC_ID, "new"]
    group.pass_time(2 * SWEEP_MS)
    assert partitions(group) == ["new"]
