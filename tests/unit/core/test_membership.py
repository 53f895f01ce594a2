"""Members: epochs, processes, sessions, and when nothing is left to wait for (KIP-932, groups)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.core.commands import AcquireForConsumer, Expire, ExtendDeadlines, membership
from coordinator.core.looks.description import describe_group
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import FencedMemberEpoch, GroupIdNotFound, SubscriptionTooLarge, UnknownMemberId
from coordinator.protocol.messages import Heartbeat, Joined, JoinGroup
from tests.kip932.consumers import ACCEPT, ShareConsumers
from tests.support.group_driver import SESSION_MS, UNSET, GroupDriver, holding, started_plan

Request = Callable[[ShareConsumers], None]


def test_sixteen_fenced_processes_of_a_member_are_remembered() -> None:
    group = GroupDriver()
    for number in range(20):
        group.join(process=f"p{number}")
    assert group.group.members["m1"].fenced_processes == tuple(f"p{number}" for number in range(3, 19))


def test_unknown_members_ended_sessions_and_other_epochs_have_their_own_errors() -> None:
    group = GroupDriver()
    group.join()
    with pytest.raises(UnknownMemberId, match="Member m9 of share group billing"):
        group.run(Heartbeat(group_id="billing", member_id="m9", member_epoch=1))
    with pytest.raises(FencedMemberEpoch) as fenced:
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=2))
    epochs = {"current_epoch": 1, "member_epoch": 2}
    assert fenced.value.fields == {"member_id": "m1", "group_id": "billing", "holder": "not known", **epochs}
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(UnknownMemberId, match="Member m1 of share group billing"):
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=1))
    with pytest.raises(FencedMemberEpoch):
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=0))


def test_the_fields_of_a_join_are_durable() -> None:
    group = GroupDriver()
    came_with = {
        "topics": ("orders",),
        "topic_pattern": "o.*",
        "assign": {"orders": (0, 2)},
        "starting_offsets": "earliest",
        "client_id": "job",
        "client_host": "host",
    }
    group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", query=False, **came_with))
    group.crash()
    member = group.group.members["m1"]
    assert {name: getattr(member, name) for name in came_with} == came_with
    assert (member.process_id, member.query) == ("p", False)


def test_a_heartbeat_is_answered_as_a_join_is() -> None:
    group = GroupDriver(**UNSET)
    joined = group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p"))
    assert joined == Joined(
        member_epoch=1,
        incarnation="i",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=5_000,
        isolation_level="read_uncommitted",
    )
    assert group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=1)) == joined


def test_a_coordinator_may_rest_without_holders_and_members() -> None:
    group = holding()
    assert not group.group.may_rest(group.now_ms), "a member is there"
    group.crash()
    assert not group.group.may_rest(group.now_ms), "something is held"
    group.pass_time(SESSION_MS + 1)
    assert group.group.may_rest(group.now_ms)


def test_after_a_load_every_holder_has_one_session_to_come_back() -> None:
    group, plan = started_plan()
    group.pass_time(SESSION_MS - 1)
    group.crash()
    group.pass_time(SESSION_MS - 1)
    assert group.partition().acquired_count == 100
    group.complete(plan)


def test_a_stall_ends_no_session_and_no_lock() -> None:
    """The coordinator's process was stopped for longer than a session; members sent requests meanwhile, and
    wait."""
    group, _ = started_plan()
    group.join("c1", query=False)
    group.ends[0] = 110
    fetch = AcquireForConsumer(
        group_id="billing", member_id="c1", member_epoch=1, max_records=10, bounds=group.bounds()
    )
    group.run(fetch)
    held = group.dump()
    group.pass_time(5_000)
    group.now_ms += 10 * SESSION_MS
    group.run(ExtendDeadlines(stalled_ms=10 * SESSION_MS))
    group.run(Expire())
    assert group.dump() == held
    group.pass_time(SESSION_MS)
    assert group.dump() == held, "a full session's time to be heard"
    group.pass_time(1)
    assert group.partition().acquired_count == 0


def state_of(group: ShareGroup) -> str:
    return describe_group(group).state


def leave(group: ShareConsumers) -> None:
    group.leave("c1")


def test_a_group_is_dead_empty_or_stable() -> None:
    """KIP-932, Share group states: Dead is what does not exist, Empty what has no members, Stable what has some."""
    assert state_of(ShareGroup("nobody")) == "DEAD"
    group = ShareConsumers(members=0)
    assert state_of(group.group) == "EMPTY"
    group.join("c1", query=False)
    group.join("c2", query=False)
    assert state_of(group.group) == "STABLE"
    group.leave("c1")
    assert state_of(group.group) == "STABLE"
    group.leave("c2")
    assert state_of(group.group) == "EMPTY"


def fetch(group: ShareConsumers) -> None:
    group.fetch("c1")


def acknowledge(group: ShareConsumers) -> None:
    group.acknowledge(ACCEPT, 0)


def process(member: str, name: str, epoch: int | None = None, **fields: object) -> JoinGroup:
    """A process joins, as a new one or naming the epoch that it had."""
    return JoinGroup(group_id="billing", member_id=member, process_id=name, member_epoch=epoch, query=False, **fields)


def test_joining_a_missing_group_is_refused() -> None:
    """KIP-932, Error codes: GROUP_ID_NOT_FOUND. (The service creates a group before its first member joins.)"""
    driver = ShareConsumers(members=0)
    driver.group = ShareGroup("billing")
    with pytest.raises(GroupIdNotFound):
        driver.run(process("c1", "p"))


def heartbeat(group: ShareConsumers) -> None:
    group.heartbeat("c1")


REQUESTS = [heartbeat, fetch, acknowledge, leave]


each_request = pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.__name__)


@each_request
@pytest.mark.parametrize("epoch", [0, 2, 4])
def test_a_request_with_another_epoch_is_fenced(request_: Request, epoch: int) -> None:
    """KIP-932, ShareGroupHeartbeat API: FENCED_MEMBER_EPOCH for an epoch that is not the member's, older or newer. Ours
    asks for the epoch in every request, so that a fenced process can neither fetch nor acknowledge."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    group.join("c1", "second", query=False)
    assert group.join("c1", "third", query=False) == 3
    before = group.states()
    group.epochs["c1"] = epoch
    with pytest.raises(FencedMemberEpoch):
        request_(group)
    assert group.states() == before


@each_request
def test_a_request_of_an_unknown_member_is_refused(request_: Request) -> None:
    """KIP-932, ShareGroupHeartbeat API: UNKNOWN_MEMBER_ID for a member that the group does not have."""
    group = ShareConsumers(members=0)
    group.epochs["c1"] = 1
    with pytest.raises(UnknownMemberId):
        request_(group)


def test_a_subscription_that_fits_into_no_record_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    joins = JoinGroup(group_id="billing", member_id="m" * 90, process_id="p", topics=("orders",))
    group = GroupDriver()
    size = next(len(data) for data in appended(group, joins) if b"orders" in data)
    monkeypatch.setattr(membership, "MOST_BYTES", size)
    assert GroupDriver().run(joins).member_epoch == 1, "it just fits"
    monkeypatch.setattr(membership, "MOST_BYTES", size - 1)
    with pytest.raises(SubscriptionTooLarge) as refused:
        GroupDriver().run(joins)
    fields = {"group_id": "billing", "member_id": "m" * 80, "size_bytes": size, "limit_bytes": size - 1}
    assert refused.value.fields == fields


def appended(group: GroupDriver, command: JoinGroup) -> list[bytes]:
    """The records that the command appends to the log."""
    before = len(group.log)
    group.run(command)
    return group.log[before:]
