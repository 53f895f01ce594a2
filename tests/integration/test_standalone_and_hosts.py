"""A group has one owner, a coordinator on demand or a standalone one: whichever it is, the others pass requests on to
it, and take the group only when it is gone or has given the group up."""

from __future__ import annotations

import contextlib
import os

import pytest

from coordinator.client.connection import Connection
from coordinator.protocol.messages import DescribeGroup
from coordinator.protocol.rights import Tokens
from coordinator.protocol.wire import Endpoint, LaunchSettings
from coordinator.service.coordinator import Coordinator
from coordinator.service.server.listener import Listener
from tests.support.host import TOKEN, Host, acquired, patient
from tests.support.standalone import TOKEN as STANDALONE_TOKEN
from tests.support.standalone import StandaloneProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

TOKENS = Tokens.parse(f"member,read,admin alice:{TOKEN}", "the test")


class Standalone(Host):
    """A standalone coordinator, and a client of it."""

    def __init__(self, bootstrap):
        settings = LaunchSettings(bootstrap_servers=bootstrap, kafka_config={}, state_store="kafka", configs={})
        self.coordinator = Coordinator(settings, TOKENS, listener=Listener())
        port = self.coordinator.server.port
        self.client = Connection(Endpoint(host="127.0.0.1", port=port, token=TOKEN, pid=os.getpid()))
        self.is_closed = False


class ClientOfProcess(Host):
    """A client of a standalone coordinator that is a process of its own."""

    def __init__(self, process):
        self.process, self.is_closed = process, False
        host, port = process.address
        self.client = Connection(Endpoint(host=host, port=port, token=STANDALONE_TOKEN, pid=os.getpid()))

    def close(self):
        self.client.close()
        self.process.close()


@pytest.fixture
def start(kafka, tmp_path, patience):
    """Starts coordinators: `start("one")` on demand, `start("standalone")` one more of these. They end with the
    test."""
    with contextlib.ExitStack() as started:

        def begin(name):
            if name == "standalone":
                return started.enter_context(Standalone(kafka.bootstrap))
            return started.enter_context(Host(kafka.bootstrap, tmp_path / name))

        yield begin


KINDS = [("one", "two"), ("standalone", "one"), ("one", "standalone"), ("standalone", "standalone")]
"""The owner, and the other coordinator: both on demand, as where nothing is configured, and the other pairs."""


@pytest.fixture(params=[KINDS[0], *(pytest.param(kinds, marks=pytest.mark.slow) for kinds in KINDS[1:])])
def shared(request, start, orders, unique):
    """An owner, another coordinator of the other kind or of the same, and a member of each."""
    group = unique("billing")
    owner, other = map(start, request.param)
    with patient():
        first = owner.join(group, orders, "a")
        second = other.join(group, orders, "b")
    assert (owner.owns(group), other.owns(group)) == (True, False)
    return owner, other, first, second


def test_two_coordinators_share_a_group(shared):
    owner, other, first, second = shared
    group = first["group_id"]
    taken = acquired(owner, first), acquired(other, second)
    assert sorted(taken[0] + taken[1]) == list(range(20))
    seen = [each.ask(DescribeGroup(group_id=group)) for each in (owner, other)]
    assert [sorted(member.member_id for member in each.members) for each in seen] == [["a", "b"]] * 2
    assert not seen[1].read_from
    assert (owner.owns(group), other.owns(group)) == (True, False)


@pytest.mark.parametrize("patience", [1_000.0], indirect=True)
def test_an_owner_that_leaves_hands_its_groups_to_the_other(shared, orders):
    owner, other, first, second = shared
    held = acquired(other, second)
    owner.close()
    assert other.rejoin(orders, second) == second
    assert other.owns(first["group_id"])
    assert sorted(held + acquired(other, second)) == list(range(20))


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_a_silent_owner_loses_its_groups_to_the_other(shared, orders):
    owner, other, first, second = shared
    owner.be_silent()
    assert other.rejoin(orders, second) == second
    assert other.owns(first["group_id"])
    with patient():
        assert owner.rejoin(orders, first) == first, "its members' requests are passed on now"
    assert (owner.owns(first["group_id"]), other.owns(first["group_id"])) == (False, True)


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_a_killed_standalone_coordinator_loses_its_groups_to_a_host(kafka, tmp_path, unique, start, orders):
    config = {"bootstrap.servers": kafka.bootstrap}
    group = unique("billing")
    with contextlib.closing(ClientOfProcess(StandaloneProcess(tmp_path, config).wait_ready())) as killed:
        first, one = killed.join(group, orders, "a"), start("one")
        with patient():
            second = one.join(group, orders, "b")
            held = acquired(one, second)
        assert not one.owns(group)
        killed.process.close()
        assert one.rejoin(orders, second) == second
        assert one.owns(group)
        # A coordinator that comes later finds an owner that lives.
        later = start("standalone")
        with patient():
            assert later.rejoin(orders, first) == first
        assert (later.owns(group), one.owns(group)) == (False, True)
        assert sorted(held + acquired(later, first)) == list(range(20))


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_pruning_takes_only_groups_whose_owner_is_gone(start, orders, unique):
    group, one, standalone = unique("billing"), start("one"), start("standalone")
    one.join(group, orders, "a")

    def wake():
        standalone.coordinator.state._wake(group)
        return standalone.owns(group)

    with patient():
        assert not wake()
    assert one.owns(group)
    one.be_silent()
    wait_until(wake, what="the standalone coordinator has taken it")
