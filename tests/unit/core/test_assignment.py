"""Partitions are assigned to ShareConsumers (KIP-932, "Share group assignment"): who acquires where, and epochs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from coordinator.core.commands import AssignPartitions, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.looks import description as group_look
from coordinator.protocol.messages import DescribeGroup, GroupDescription, JoinGroup, LeaveGroup
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched

INTERVAL_MS = 1_000


def group_of(*members: str, partitions: int = 4, records: int = 10, **configs: str) -> GroupDriver:
    """A group in which these ShareConsumers have joined and been assigned partitions."""
    group = GroupDriver(records=records, partitions=partitions, **configs)
    for member in members:
        subscribe(group, member)
    group.run(AssignPartitions())
    return group


def subscribe(
    group: GroupDriver, member: str, topics: tuple[str, ...] = ("orders",), pattern: str | None = None
) -> None:
    """The member joins with this subscription; the same one again is another join of it."""
    epoch = group.epochs.get(member, 0)
    joined = group.run(
        JoinGroup(
            group_id="billing",
            member_id=member,
            process_id=f"{member}-{epoch}",
            query=False,
            topics=topics,
            topic_pattern=pattern,
            client_id="app",
            client_host="host-1",
        )
    )
    group.epochs[member] = joined.member_epoch


def leave(group: GroupDriver, member: str) -> None:
    group.run(LeaveGroup(group_id="billing", member_id=member, member_epoch=group.epochs[member]))


def assign_after(group: GroupDriver, ms: int = INTERVAL_MS) -> None:
    group.now_ms += ms
    group.run(AssignPartitions())


def described(group: GroupDriver) -> GroupDescription:
    return group.run(DescribeGroup(group_id="billing"))


def assigned(group: GroupDriver) -> dict[str, dict[str, tuple[int, ...]]]:
    return {m.member_id: {t.topic: t.partitions for t in m.assignment} for m in described(group).members}


def epochs(group: GroupDriver) -> tuple[int, int]:
    """The group epoch and the assignment epoch."""
    return described(group).group_epoch, described(group).assignment_epoch


def taken(group: GroupDriver, member: str) -> list[int]:
    """The partitions of which the member is given records, all that it may have."""
    before = {index: partition_held(group, index) for index in group.ends}
    fetched(group, 1_000, member)
    return [index for index, held in before.items() if partition_held(group, index) > held]


def partition_held(group: GroupDriver, index: int) -> int:
    return group.partition(index).acquired_count


def add_partitions(group: GroupDriver, topic: str, topic_id: str, indexes: Iterable[int]) -> None:
    starts = tuple(PartitionStart(topic_id=topic_id, partition=index, start_offset=0) for index in indexes)
    group.run(InitializePartitions(topics=(TopicWithId(topic=topic, topic_id=topic_id),), starts=starts))


def test_a_share_consumer_beyond_its_partitions_acquires_from_all() -> None:
    group = group_of("c1", "c2")
    assert len(fetched(group, 1_000, "c1", beyond=True)) == 4
    assert taken(group, "c2") == []
    assert assigned(group) == {"c1": {"orders": (0, 2)}, "c2": {"orders": (1, 3)}}, "it is assigned no more than before"


def test_a_query_acquires_from_all_partitions() -> None:
    group = group_of("c1", "c2")
    group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", topics=("orders",)))
    group.epochs["m1"] = 1
    assert len(group.acquire(limit=None).plan.partitions) == 4
    assert assigned(group)["m1"] == {"orders": (0, 1, 2, 3)}
    assert epochs(group) == (1, 1), "queries are assigned nothing"


def test_a_new_member_waits_for_the_assignment_interval() -> None:
    group = group_of("c1", "c2")
    subscribe(group, "c3")
    assign_after(group, INTERVAL_MS - 1)
    assert assigned(group)["c3"] == {}
    assert epochs(group) == (2, 1), "the assignment is older than the group"
    assert taken(group, "c3") == []
    assign_after(group, 1)
    assert assigned(group)["c3"] != {}
    assert epochs(group) == (2, 2)


def test_the_partitions_of_a_member_that_left_are_assigned_again() -> None:
    """◆ A partition with records and a subscribed member is assigned to somebody."""
    group = group_of("c1", "c2", "c3")
    leave(group, "c2")
    group.group.keep_session(group.group.members["c3"], group.now_ms + 1)
    group.pass_time(3)
    assign_after(group)
    assert taken(group, "c1") == [0, 1, 2, 3]
    assert assigned(group)["c2"] == assigned(group)["c3"] == {}


def test_new_partitions_and_new_topics_of_a_pattern_are_assigned() -> None:
    group = group_of("c1")
    subscribe(group, "c2", topics=(), pattern="orders.*")
    assign_after(group)
    add_partitions(group, "orders", TOPIC_ID, [4, 5])
    add_partitions(group, "orders-eu", "EU", [0])
    assert epochs(group) == (3, 2)
    assign_after(group)
    found = assigned(group)
    assert sorted(index for part in found.values() for index in part.get("orders", ())) == [0, 1, 2, 3, 4, 5]
    assert found["c2"]["orders-eu"] == (0,)
    assert "orders-eu" not in found["c1"]


def test_a_consumer_that_names_its_partitions_is_assigned_no_others() -> None:
    group = GroupDriver(records=10, partitions=2)
    join = JoinGroup(group_id="billing", member_id="c1", process_id="p", query=False, assign={"orders": (1,)})
    group.epochs["c1"] = group.run(join).member_epoch
    group.run(AssignPartitions())
    assert assigned(group) == {"c1": {"orders": (1,)}}
    assert epochs(group) == (1, 0)


def test_nothing_is_assigned_while_nothing_has_changed() -> None:
    group = group_of("c1", "c2")
    for _ in range(3):
        assign_after(group)
    assert epochs(group) == (1, 1)
    assert not [record for record in group.log[-1:] if b"AssignmentMade" not in record]


def test_a_description_lists_a_bounded_number_of_assigned_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_look, "MOST_ASSIGNED", 6)
    group = group_of()
    for member in ("m1", "m2", "m3"):
        group.run(JoinGroup(group_id="billing", member_id=member, process_id="p", topics=("orders",)))
    members = described(group).members
    assert [member.assigned_total for member in members] == [4, 4, 4]
    assert [sum(len(t.partitions) for t in member.assignment) for member in members] == [4, 2, 0]
