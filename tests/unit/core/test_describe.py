"""The group as others see it: its description, for people, and the ranges of a plan, for its readers."""

from __future__ import annotations

import pytest

from coordinator.core.looks import description as group_look
from coordinator.core.looks.description import WithLag
from coordinator.core.record_state import RecordState
from coordinator.protocol.admin_messages import ListInFlight, RunInFlight
from coordinator.protocol.messages import (
    DescribeGroup,
    GroupDescription,
    JoinGroup,
    LeaveGroup,
    MemberDescription,
    PartitionDescription,
    TopicPartitions,
)
from tests.kip932.consumers import ACCEPT, ShareConsumers
from tests.support.group_driver import TOPIC_ID, UNSET, GroupDriver, acknowledged, fetched
from tests.support.sink_driver import DLQ, REJECT, batch, said

RELEASE = 2


def described(group: GroupDriver, *, ends: bool = True) -> GroupDescription:
    look = DescribeGroup(group_id="billing")
    return group.run(WithLag(group_id="billing", request=look, bounds=group.bounds()) if ends else look)


def test_a_description_has_all_of_a_group() -> None:
    group = GroupDriver(records=10, partitions=2, **{**UNSET, "share.delivery.count.limit": "4"})
    group.join("c1", query=False)
    fetched(group, 8)
    acknowledged(group, 0, 1, 1, RELEASE)
    acknowledged(group, 3, 3, 1, 3)
    group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", topics=("orders",)))
    group.epochs["m1"] = 1
    plan = group.acquire(limit=1).plan.plan_id
    assert plan == "i.2"
    said = described(group)
    assert (said.group_id, said.state, said.incarnation) == ("billing", "STABLE", "i")
    assert said.configs == {"share.delivery.count.limit": "4"}
    assert said.members == (
        MemberDescription(member_id="c1", member_epoch=1, active=True),
        MemberDescription(
            member_id="m1",
            member_epoch=1,
            active=True,
            newest_plan="i.2",
            topics=("orders",),
            assigned_total=2,
            assignment=(TopicPartitions(topic="orders", partitions=(0, 1)),),
        ),
    )
    first, second = said.partitions
    assert second == PartitionDescription(
        topic="orders",
        topic_id=TOPIC_ID,
        partition=1,
        start_offset=0,
        end_offset=0,
        lag=10,
        acquired=0,
        archived_total=0,
    )
    assert (first.start_offset, first.end_offset, first.lag, first.acquired, first.archived_total) == (0, 8, 9, 7, 1)
    assert first.archived == {"rejected": 1}
    assert (said.lag, described(group, ends=False).lag) == (19, None)
    assert [shown(run) for run in runs_of(group)] == [
        (0, 1, "ACQUIRED", 2, "i.2", "m1", 1),
        (2, 2, "ACQUIRED", 1, "i.1", "c1", 0),
        (3, 3, "ARCHIVED", 1, "", "", 0),
        (4, 7, "ACQUIRED", 1, "i.1", "c1", 0),
    ]


def runs_of(group: GroupDriver) -> tuple[RunInFlight, ...]:
    return group.run(ListInFlight(group_id="billing", states=tuple(RecordState.__members__))).runs


def shown(run: RunInFlight) -> tuple[int, int, str, int, str, str, int]:
    return run.first, run.last, run.state, run.delivery_count, run.plan_id, run.member_id, run.releases


def test_a_run_in_flight_has_the_reason_of_an_archiving_record() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT, reason="no customer"))
    group.complete(plan)
    first, rest = runs_of(group)
    assert shown(first) == (0, 0, "ARCHIVING", 1, "", "", 0)
    assert (first.disposition, first.reason) == ("rejected", "no customer")
    assert shown(rest) == (1, 2, "ACKNOWLEDGED", 1, "", "", 0)
    partition = described(group).partitions[0]
    assert (partition.archiving, partition.archived_total) == (1, 0)


def test_a_group_without_sessions_is_empty_and_still_lists_its_members() -> None:
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    group.run(LeaveGroup(group_id="billing", member_id="c1", member_epoch=1))
    said = described(group, ends=False)
    assert said.state == "EMPTY"
    assert said.members == (MemberDescription(member_id="c1", member_epoch=1, active=False),)
    assert said.partitions[0].lag is None, "nobody said where the log ends"


def test_a_description_lists_members_with_a_session_first_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupDriver(records=10)
    for member in ("c1", "c2", "c3"):
        group.join(member, query=False)
    group.run(LeaveGroup(group_id="billing", member_id="c1", member_epoch=1))
    assert [member.member_id for member in described(group).members] == ["c2", "c3", "c1"]
    monkeypatch.setattr(group_look, "MOST_MEMBERS", 2)
    said = described(group)
    assert ([member.member_id for member in said.members], said.members_total) == (["c2", "c3"], 3)


def lag(group: ShareConsumers, partition: int = 0) -> int | None:
    return group.describe().partitions[partition].lag


def test_a_lag_that_cannot_be_known_is_none() -> None:
    """KIP-1226, Public Interfaces: where the end of the log is not known there is no lag (Kafka shows -1)."""
    group = ShareConsumers()
    group.ends.clear()
    assert lag(group) is None


def test_a_log_that_ends_before_the_window_has_no_negative_lag() -> None:
    """KIP-1226, Share Partition Lag Computation: an end that was asked for before the last acquisition is answered
    late; the lag is 0 at least."""
    group = ShareConsumers()
    group.fetch("c1", 60)
    group.acknowledge(ACCEPT, 0, 59)
    group.ends[0] = 50
    assert lag(group) == 0
