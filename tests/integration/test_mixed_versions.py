"""Hosts with different versions of sharegroup share a group, or one is refused by name, and nothing is taken."""

from __future__ import annotations

import contextlib
import os

import pytest

from coordinator.client import connection
from coordinator.client.connection import Connection
from coordinator.core.log_records import GroupCreated
from coordinator.core.record_codec import encode_records
from coordinator.protocol.errors import CoordinatorVersionMismatch, GroupTakenOver
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.host_errors import GroupOfAnotherVersion
from coordinator.protocol.host_records import VERSION
from coordinator.protocol.messages import Heartbeat
from coordinator.protocol.wire import Endpoint
from coordinator.service.stores.kafka import ownership
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from tests.support.host import TOKEN, Host, acquired
from tests.support.next_version import NextVersion
from tests.support.state_topics import owner as earlier_owner
from tests.support.state_topics import taken
from tests.support.store_writes import append

pytestmark = pytest.mark.broker

PATIENCE_S = 5.0
LATER = [
    (VERSION + 1, PROTOCOL, GroupOfAnotherVersion),
    pytest.param(VERSION, PROTOCOL + 1, CoordinatorVersionMismatch, marks=pytest.mark.slow),
]


class LaterHost(Host):
    """A client, of the same version, of a coordinator of a later version."""

    def __init__(self, process, protocol):
        self.process, self.is_closed = process, False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "PROTOCOL", protocol)
            endpoint = Endpoint(host="127.0.0.1", port=process.port, token=TOKEN, pid=os.getpid())
            self.client = Connection(endpoint)

    def close(self):
        self.client.close()
        self.process.close()


@pytest.fixture
def one(kafka, tmp_path, monkeypatch):
    """A host with this version."""
    monkeypatch.setattr(ownership, "PATIENCE_S", PATIENCE_S)
    with Host(kafka.bootstrap, tmp_path / "one") as host:
        yield host


@pytest.fixture
def later(kafka, tmp_path):
    """Starts a host with a later version, whose numbers are these."""
    with contextlib.ExitStack() as started:

        def start(transport, protocol):
            process = NextVersion(
                tmp_path / "later",
                bootstrap=kafka.bootstrap,
                token=TOKEN,
                transport=transport,
                protocol=protocol,
                patience_s=PATIENCE_S,
            )
            return started.enter_context(LaterHost(process, protocol))

        yield start


@pytest.fixture
def group(unique):
    return unique("billing")


@pytest.mark.parametrize("owner", [pytest.param("one", marks=pytest.mark.slow), "later"])
def test_versions_that_differ_in_fields_share_a_group(one, later, group, orders, owner):
    next_one = later(VERSION, PROTOCOL)
    hosts = [one, next_one] if owner == "one" else [next_one, one]
    members = [host.join(group, orders, name) for host, name in zip(hosts, "ab", strict=True)]
    records = [acquired(host, member) for host, member in zip(hosts, members, strict=True)]
    assert sorted(records[0] + records[1]) == list(range(20))
    assert one.owns(group) is (owner == "one")


@pytest.mark.parametrize(("transport", "protocol", "error"), LATER)
def test_a_later_version_s_group_is_refused_until_its_owner_is_gone(
    one, later, group, orders, transport, protocol, error
):
    next_one = later(transport, protocol)
    member = next_one.join(group, orders, "a")
    held, before = acquired(next_one, member), one.owner_of(group)
    for _ in range(2):
        with pytest.raises(error):
            one.join(group, orders, "b")
    assert one.owner_of(group) == before
    assert next_one.ask(Heartbeat(**member)).member_epoch == member["member_epoch"]
    next_one.process.close()
    second = one.join(group, orders, "b")
    assert one.owns(group)
    assert sorted(held + acquired(one, second)) == list(range(20))


@pytest.mark.parametrize(("transport", "protocol", "error"), LATER)
def test_a_later_version_takes_no_group_of_an_owner_that_lives(one, later, group, orders, transport, protocol, error):
    member = one.join(group, orders, "a")
    before, next_one = one.owner_of(group), later(transport, protocol)
    for _ in range(2):
        with pytest.raises(error):
            next_one.join(group, orders, "b")
    assert one.owner_of(group) == before
    assert one.owns(group)
    assert one.ask(Heartbeat(**member)).member_epoch == member["member_epoch"]


class Claimant(LivingOwner):
    """The policy of a version before hosts could ask each other: a new member's coordinator takes the group."""

    def check(self, group_id, owner, *, had, claims, end):
        if not claims:
            raise self.lost(group_id, owner)


@pytest.fixture
def earlier(one):
    """Opens the group's partition as an earlier version does: its owner records say nothing of requests."""
    with contextlib.ExitStack() as opened:

        def store(group):
            topic = one.coordinator.state._topic
            claimant = Claimant(earlier_owner("earlier"))
            claimant.new_owner = lambda before, had: claimant.me
            made = KafkaStore(topic, topic.partition_of(group), claimant, updates_per_snapshot=500)
            return opened.enter_context(contextlib.closing(made))

        yield store


def test_an_earlier_version_s_group_is_taken_for_new_members_alone(one, earlier, group, orders):
    store = earlier(group)
    assert taken(store, group) == []
    append(store, {group: encode_records([GroupCreated(incarnation="i", topic_ids=True)])})
    record = one.owner_of(group)
    assert (record.tenure, record.answers) == ("", 0)
    with pytest.raises(GroupTakenOver):
        one.ask(Heartbeat(group_id=group, member_id="a", member_epoch=1))
    assert one.owner_of(group) == record
    member = one.join(group, orders, "a")
    assert one.owns(group)
    assert acquired(one, member) == list(range(10))


def test_an_earlier_version_takes_a_group_once_and_nothing_is_lost(one, earlier, group, orders):
    member, store = one.join(group, orders, "a"), earlier(group)
    held = acquired(one, member)
    assert len(taken(store, group)) > 0
    record = one.owner_of(group)
    assert record.answers == 0
    with pytest.raises(GroupTakenOver, match="earlier"):
        acquired(one, member)
    for _ in range(3):  # whoever was fenced is told who has the group, and takes nothing back by itself
        with pytest.raises(GroupTakenOver, match="earlier"):
            one.ask(Heartbeat(**member))
    assert one.owner_of(group) == record
    second = one.join(group, orders, "b")  # a new member asks here
    assert sorted(held + acquired(one, second)) == list(range(20))
