"""Forced actions on a group that the coordinator of another host has, in a state topic of a real broker."""

from __future__ import annotations

import contextlib

import pytest

from coordinator.core.commands import CreateGroup
from coordinator.protocol.admin_messages import AlterGroupConfigs, AlterOffsets, DeleteGroup, DeleteOffsets
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupTakenOver, MembersNotKnown
from coordinator.protocol.messages import JoinGroup
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, one
from tests.support.fake_cluster import FakeCluster
from tests.support.one_partition import one_partition
from tests.support.running_service import NothingStored
from tests.support.state_topics import Hosts, state_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

GROUP = {"group_id": "billing"}
FORCED = {**GROUP, "force": True}
ORDERS = ("orders",)
AGAIN = AlterGroupConfigs(**GROUP, set={"share.delivery.count.limit": "7"}, execute=True)


@pytest.fixture
def topic(kafka):
    topic = state_topic(kafka)
    topic.ensure()
    return topic


def answered(ask):
    """The answer; None while the coordinator refuses for a moment, as it does after it stood still."""
    with contextlib.suppress(CoordinatorNotAvailable):
        return ask()


@pytest.fixture
def hosts(topic):
    """The admin services of two hosts, the first of which has the group with the topic orders."""
    cluster, stores = FakeCluster(topic_ids=False), Hosts(topic)
    cluster.add("orders", 2, end=100)
    loops = [one_partition(CoordinatorRuntime(stores(name))) for name in ("one", "two")]
    create = one(CreateGroup(incarnation="i", topic_ids=False))
    wait_until(lambda: answered(lambda: loops[0].call("billing", create, Access.CLAIM)), what="the group is there")
    one_host, other = (AdminService(loop, cluster, NothingStored(), TopicDoubts()) for loop in loops)
    one_host.handle(AlterOffsets(**GROUP, topics={"orders": ()}, execute=True))
    loops[0].call("billing", one(JoinGroup(**GROUP, member_id="m1", process_id="p1")))
    yield one_host, other
    for loop in loops:
        loop.close()


@pytest.mark.parametrize(
    "action", [AlterOffsets(**FORCED, to="latest"), DeleteOffsets(**FORCED, topics=ORDERS), DeleteGroup(**FORCED)]
)
def test_a_dry_run_with_force_leaves_the_group_with_its_host(hosts, action):
    one_host, other = hosts
    altered = other.handle(action)
    assert not altered.executed
    assert altered.notes[0].startswith("The group is taken from the coordinator on one")
    assert one_host.handle(AGAIN).executed


def test_an_action_of_the_owner_before_is_not_carried_out_again(hosts):
    """The answer was lost, and the request comes again, to another host."""
    one_host, other = hosts
    shift = AlterOffsets(**GROUP, to="shift", value=7, execute=True, force=True, action_id="a1")
    answer = one_host.handle(shift)
    assert [row.after for row in answer.partitions] == [7, 7]
    assert wait_until(lambda: answered(lambda: other.handle(shift)), what="the group is taken") == answer
    taken = AlterOffsets(**FORCED, to="shift", value=0, execute=True)
    altered = wait_until(lambda: answered(lambda: other.handle(taken)), what="the group is taken")
    assert [row.before for row in altered.partitions] == [7, 7]


def test_a_forced_action_that_is_executed_takes_the_group(hosts):
    one_host, other = hosts
    with pytest.raises(GroupTakenOver):
        other.handle(AlterOffsets(**GROUP, to="latest", execute=True))
    take = AlterOffsets(**FORCED, to="latest", execute=True)
    assert wait_until(lambda: answered(lambda: other.handle(take)), what="the group is taken").executed
    with pytest.raises(GroupTakenOver, match="the coordinator on two"):
        one_host.handle(AGAIN)


def test_a_dry_run_with_force_waits_for_members_of_a_restarted_coordinator(hosts, topic):
    with contextlib.closing(Hosts(topic)) as stores:
        loop = one_partition(CoordinatorRuntime(stores("one")))
        restarted = AdminService(loop, FakeCluster(), NothingStored(), TopicDoubts())

        def wait_ms():
            with pytest.raises(MembersNotKnown) as refused:
                restarted.handle(DeleteGroup(**FORCED))
            return refused.value.fields["wait_ms"]

        first_ms = wait_ms()
        wait_until(lambda: wait_ms() < first_ms, what="the wait comes to its end")
        loop.close()
