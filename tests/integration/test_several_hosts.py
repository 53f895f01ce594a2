"""Several hosts share a group over Kafka alone: a host here is a coordinator with a runtime folder of its own."""

from __future__ import annotations

import contextlib
import time

import pytest

from coordinator.protocol.errors import CoordinatorNotAvailable, InvalidRequest
from coordinator.protocol.messages import AcquireRecords, Heartbeat
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.kafka import kafka_store
from coordinator.service.stores.store import StoreRefused
from tests.support.host import Host, acquired, patient

pytestmark = pytest.mark.broker


@pytest.fixture
def hosts(kafka, tmp_path):
    """Starts hosts: ``hosts("one")``; they end with the test."""
    with contextlib.ExitStack() as started:
        yield lambda name: started.enter_context(Host(kafka.bootstrap, tmp_path / name))


@pytest.fixture
def shared(kafka, topic, unique, hosts, patience):
    """Two hosts with a member each in one group, which the first one owns, and the records that there are."""
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, [str(number) for number in range(20)], partition=0)
    one, two = hosts("one"), hosts("two")
    long = {"share_session_timeout_ms": "600000", "share_record_lock_duration_ms": "600000"}
    with patient():
        first = one.join(group, orders, "a", **long)
        second = two.join(group, orders, "b")
    assert one.owns(group)
    assert not two.owns(group)
    one.topic = two.topic = orders
    return one, two, first, second


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_an_owner_that_goes_on_writing_keeps_its_group(shared, monkeypatch):
    """It can't hear other hosts, and serves its own members: these are not to lose it."""
    one, two, first, second = shared
    one.be_silent()
    asked, write = one.coordinator.hosts.gateway, two.gateway._echo

    def writes(writer, group_id, owner_):
        one.ask(AcquireRecords(**first, max_records=1))
        write(writer, group_id, owner_)

    monkeypatch.setattr(two.gateway, "_echo", writes)
    with pytest.raises(CoordinatorNotAvailable, match="and answers no other host"):
        two.client.call(Heartbeat(**second))
    assert one.owns(first["group_id"])
    assert asked.owner_of(first["group_id"]) is None


def test_a_body_of_several_parts_is_read_as_one(shared):
    _, two, first, _ = shared
    body = b'{"group_id": "' + b"x" * 2_000_000 + b'"'
    with pytest.raises(InvalidRequest):  # of the whole body, which is no JSON
        two.pass_on(first["group_id"], None, name="Heartbeat", body=body)


def store_of(host, group):
    state = host.coordinator.state
    return state._stores[state._topic.partition_of(group)]


@pytest.mark.slow
@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_hosts_that_find_each_other_silent_take_the_group_ever_later(shared):
    """Each one hears nothing from the other, as with bad networks; its own members' requests alone reach it."""
    one, two, first, second = shared
    found = []
    for claimant, member in [(two, second), (one, first), (two, second)]:
        for host in (one, two):
            host.be_silent()
        claimant.rejoin(claimant.topic, member)
        assert claimant.owns(first["group_id"])
        found.append(claimant.owner_of(first["group_id"]).patience_s)
    # The first one may follow a death: one took the group back, and then two did.
    assert found == [2.0, 4.0, 8.0]


def dies(*arguments):
    raise StoreRefused("the process was killed")


def open_transaction(host, group):
    """A transaction of the owner that nobody ends, as of a process that was killed in it."""
    store = store_of(host, group)
    store.load = store.append = dies
    open_ = store._open[group]
    open_.writer._deliver([kafka_store._owner_record(group, open_.owner)], time.monotonic() + 10, count=1)
    end = store.topic.offset(store.partition, LATEST)
    assert store.topic.offset(store.partition, LATEST, read_committed=True) < end, "it is open"


@pytest.mark.parametrize("patience", [2.0], indirect=True)
def test_the_group_of_an_owner_that_died_in_a_transaction_is_taken(shared):
    one, two, first, second = shared
    held = acquired(two, second)
    open_transaction(one, first["group_id"])
    one.be_silent()
    assert two.rejoin(two.topic, second) == second
    assert two.owns(first["group_id"])
    assert sorted(held + acquired(two, second)) == list(range(20))
