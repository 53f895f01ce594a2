"""A group has one owner, a coordinator on demand or one of a fleet: whichever it is, the others pass requests on to it,
and take the group only when it is gone or has given the group up."""

from __future__ import annotations

import contextlib
import os

import pytest

from coordinator.client.connection import Connection
from coordinator.protocol.errors import GroupNotAllowed, ShareGroupError
from coordinator.protocol.messages import DescribeGroup, Heartbeat
from coordinator.protocol.rights import Tokens
from coordinator.protocol.wire import Endpoint, LaunchSettings
from coordinator.service.coordinator import Coordinator
from coordinator.service.stores.kafka import kafka_store, ownership
from tests.support.host import TOKEN, Host, acquired
from tests.support.standalone import TOKEN as STANDALONE_TOKEN
from tests.support.standalone import StandaloneProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

BOUND = "a-token-for-billing-alone"
TOKENS = Tokens.parse(f"member,read,admin alice:{TOKEN}\nmember bob:{BOUND} groups=billing.*", "the test")


class FleetHost(Host):
    """A coordinator of a fleet, and a client of it."""

    def __init__(self, bootstrap, fleet):
        configs = {"share.coordinator.fleet.group.id": fleet, "share.coordinator.session.timeout.ms": "6000"}
        settings = LaunchSettings(
            bootstrap_servers=bootstrap, kafka_config={}, state_store="kafka", configs=configs, endpoint_path="unused"
        )
        self.coordinator = Coordinator(settings, TOKENS, in_fleet=True)
        self.client = self.connect(TOKEN)
        self.is_closed = False

    def connect(self, token):
        port = self.coordinator.server.port
        return Connection(Endpoint(host="127.0.0.1", port=port, token=token, pid=os.getpid()))


class FleetProcess(Host):
    """A client of a coordinator of a fleet that is a process of its own."""

    def __init__(self, process):
        self.process, self.is_closed = process, False
        host, port = process.address
        self.client = Connection(Endpoint(host=host, port=port, token=STANDALONE_TOKEN, pid=os.getpid()))

    def close(self):
        self.client.close()
        self.process.close()


@pytest.fixture
def patience(request, monkeypatch):
    """An owner may be silent for this many seconds; 6 where a test gives no number."""
    patience_s = getattr(request, "param", ownership.PATIENCE_S)
    monkeypatch.setattr(ownership, "PATIENCE_S", patience_s)
    monkeypatch.setattr(kafka_store, "MEMORY_ANSWER_S", min(kafka_store.MEMORY_ANSWER_S, patience_s / 2))


@pytest.fixture
def start(kafka, tmp_path, unique, patience):
    """Starts coordinators: `start("one")` on demand, `start("fleet")` one more of the fleet. They end with the test."""
    fleet = unique("fleet")
    with contextlib.ExitStack() as started:

        def begin(name):
            if name == "fleet":
                return started.enter_context(contextlib.closing(FleetHost(kafka.bootstrap, fleet)))
            return started.enter_context(contextlib.closing(Host(kafka.bootstrap, tmp_path / name)))

        yield begin


@pytest.fixture
def orders(kafka, topic):
    """A topic with 20 records."""
    name = topic("orders")
    kafka.produce(name, [str(number) for number in range(20)], partition=0)
    return name


@pytest.fixture(params=["fleet", "one"])
def shared(request, start, orders, unique):
    """An owner, a fleet's coordinator or one on demand, another one of the other kind, and a member of each."""
    group = unique("billing")
    owner, other = start(request.param), start("one" if request.param == "fleet" else "fleet")
    first = owner.join(group, orders, "a")
    second = other.join(group, orders, "b")
    assert (owner.owns(group), other.owns(group)) == (True, False)
    return owner, other, first, second


def test_a_fleet_and_a_host_on_demand_share_a_group(shared):
    owner, other, first, second = shared
    group = first["group_id"]
    taken = acquired(owner, first), acquired(other, second)
    assert sorted(taken[0] + taken[1]) == list(range(20))
    seen = [each.ask(DescribeGroup(group_id=group)) for each in (owner, other)]
    assert [sorted(member.member_id for member in each.members) for each in seen] == [["a", "b"]] * 2
    assert not seen[1].read_from
    assert (owner.owns(group), other.owns(group)) == (True, False)


@pytest.mark.parametrize("patience", [1_000.0], indirect=True)
def test_an_owner_that_leaves_hands_its_groups_to_the_other_kind(shared, orders):
    """The last coordinator of a fleet ends, or the one on demand."""
    owner, other, first, second = shared
    held = acquired(other, second)
    owner.close()
    assert other.rejoin(orders, second) == second
    assert other.owns(first["group_id"])
    assert sorted(held + acquired(other, second)) == list(range(20))


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_a_silent_owner_loses_its_groups_to_the_other_kind(shared, orders):
    owner, other, first, second = shared
    owner.be_silent()
    assert other.rejoin(orders, second) == second
    assert other.owns(first["group_id"])
    assert owner.rejoin(orders, first) == first, "its members' requests are passed on now"
    assert (owner.owns(first["group_id"]), other.owns(first["group_id"])) == (False, True)


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_a_killed_coordinator_of_a_fleet_loses_its_groups_to_a_host(kafka, tmp_path, unique, start, orders):
    config = {"bootstrap.servers": kafka.bootstrap, "share.coordinator.fleet.group.id": unique("fleet")}
    group = unique("billing")
    with contextlib.closing(FleetProcess(StandaloneProcess(tmp_path, config).wait_ready())) as killed:
        first, one = killed.join(group, orders, "a"), start("one")
        second = one.join(group, orders, "b")
        held = acquired(one, second)
        assert not one.owns(group)
        killed.process.close()
        assert one.rejoin(orders, second) == second
        assert one.owns(group)
        # A fleet that comes later finds an owner that lives.
        fleet = start("fleet")
        assert fleet.rejoin(orders, first) == first
        assert (fleet.owns(group), one.owns(group)) == (False, True)
        assert sorted(held + acquired(fleet, first)) == list(range(20))


def test_each_group_has_one_owner_while_the_fleet_grows_and_shrinks(start, orders, unique):
    groups, one, fleet = [unique("billing") for _ in range(6)], start("one"), [start("fleet")]
    members = {group: fleet[0].join(group, orders, "a") for group in groups}
    assert all(fleet[0].owns(group) for group in groups)

    def served():
        """Every member comes back, through the host on demand, and each group has one owner."""
        for member in members.values():
            assert one.rejoin(orders, member) == member
        owners = [[each for each in (one, *fleet) if not each.is_closed and each.owns(group)] for group in groups]
        assert [len(each) for each in owners] == [1] * 6

    served()
    fleet.append(start("fleet"))
    wait_until(lambda: fleet[1].coordinator.state._fleet.owned, what="it has partitions")
    served()
    fleet[0].close()
    served()
    fleet[1].close()
    served()
    assert all(one.owns(group) for group in groups)


def test_a_token_s_allow_lists_hold_for_groups_that_a_host_owns(start, orders, unique):
    one, fleet = start("one"), start("fleet")
    allowed, other = unique("billing"), unique("payroll")
    members = {group: one.join(group, orders, "a") for group in (allowed, other)}
    for group in members:
        fleet.join(group, orders, "b")
        assert one.owns(group)
    with contextlib.closing(fleet.connect(BOUND)) as bob:
        assert bob.call(Heartbeat(**members[allowed])).member_epoch == members[allowed]["member_epoch"]
        with pytest.raises(GroupNotAllowed):
            bob.call(Heartbeat(**members[other]))


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_pruning_takes_only_groups_whose_owner_is_gone(start, orders, unique):
    group, one, fleet = unique("billing"), start("one"), start("fleet")
    one.join(group, orders, "a")

    def wake():
        try:
            fleet.coordinator.state._wake(group)
        except ShareGroupError:  # its partition is not assigned yet
            return False
        return True

    wait_until(wake, what="the fleet has looked at the group")
    assert (one.owns(group), fleet.owns(group)) == (True, False)
    one.be_silent()
    wait_until(lambda: wake() and fleet.owns(group), what="the fleet has taken it")
