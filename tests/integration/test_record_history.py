"""The history of a record on a real broker: what a script did equals what `Admin.history` and the command line say,
with a coordinator and without one."""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from coordinator.core.log_records import GroupCreated
from coordinator.core.record_codec import encode_record
from coordinator.protocol.admin_messages import ReadHistory
from coordinator.protocol.errors import CoordinatorNotAvailable, UnknownSharePartition
from coordinator.protocol.values import SharePartitionKey
from coordinator.service.handlers import record_history as histories
from coordinator.service.handlers.record_history import Histories, RecordLocation
from coordinator.service.stores.kafka.log_parts import log_parts
from sharegroup import AcknowledgeType, Admin, ShareConsumer
from sharegroup.__main__ import run
from tests.support.coordinator_process import kill_coordinators
from tests.support.state_topics import Hosts, state_topic
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Member:
    """A ShareConsumer of the test's group that polls when it is told."""

    def __init__(self, stack, conf, group, topic, dlq):
        own = {"share.auto.offset.reset": "earliest", "share.acknowledgement.mode": "explicit", "max.poll.records": "1"}
        own |= {"group.id": group, "errors.deadletterqueue.topic.name": dlq, "share.record.lock.duration.ms": "600000"}
        self.consumer = stack.enter_context(ShareConsumer({**conf, **own}))
        self.consumer.subscribe([topic])

    def poll(self):
        """Returns the next record."""
        return wait_until(lambda: self.consumer.poll(1.0), what="a record comes")[0]

    def decide(self, kind):
        """The offset of the next record, decided."""
        message = self.poll()
        self.consumer.acknowledge(message, kind)
        self.consumer.commit_sync()
        return message.offset()


def test_a_script_and_its_history_are_the_same(kafka, topic, unique, runtime, capsys):
    conf = {"bootstrap.servers": kafka.bootstrap}
    orders, dlq, group = topic(), topic("dlq"), unique("group")
    kafka.produce(orders, [b"a", b"b"])
    began_ms = time.time() * 1000
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(Admin(conf))
        members = [Member(stack, conf, group, orders, dlq) for _ in range(2)]
        script = [(0, RELEASE), (1, RELEASE), (0, REJECT), (0, ACCEPT)]
        assert [members[who].decide(kind) for who, kind in script] == [0, 0, 0, 1]
        names = wait_until(lambda: written(admin, group, orders), what="the dead letter is written")
        a, b = names[0], names[2]
        assert a != b
        assert names == [a, a, b, b, a, a, ""]
        history = admin.history(group, orders, 0, 0)
        assert history.is_whole and not history.is_cut and history.more == 0
        told = [(entry.event, entry.delivery_count) for entry in history.entries]
        dead = ("dead letter written, or not possible", 3)
        turns = [(event, count) for count in (1, 2) for event in ("acquired", "released")]
        assert told == [*turns, ("acquired", 3), ("rejected", 3), dead]
        times = [entry.at_ms for entry in history.entries if entry.at_ms is not None]
        assert len(times) == 7
        assert times == sorted(times) and began_ms - 1 <= times[0] <= times[-1] <= time.time() * 1000 + 1
        newest = admin.history(group, orders, 0, 0, limit=2)
        assert (newest.entries, newest.more) == (history.entries[-2:], 5)
        with pytest.raises(UnknownSharePartition):
            admin.history(group, orders, 7, 0)
        kill_coordinators()
        again = admin.history(group, orders, 0, 0)
        assert again.entries == history.entries and again.read_from.startswith("state ")
        options = ["in-flight", "--bootstrap-server", kafka.bootstrap, "--group", group, "--topic", f"{orders}:0"]
        options += ["--history", "0"]
        found = json.loads(said([*options, "--json"], capsys))
        assert [entry["event"] for entry in found["entries"]] == [event for event, _ in told]
        assert "rejected" in said(options, capsys)


def said(arguments, capsys):
    """The output of the command."""
    capsys.readouterr()
    assert run(arguments) == 0
    return capsys.readouterr().out


def written(admin, group, orders):
    """The members of the entries of record 0, once its dead letter is written."""
    entries = admin.history(group, orders, 0, 0).entries
    return len(entries) == 7 and [entry.member_id for entry in entries]


# --- the state topic, and the bounds


@pytest.fixture
def state(kafka):
    """A state topic of the test's own, and stores of its partition."""
    topic = state_topic(kafka)
    topic.ensure()
    hosts = Hosts(topic)
    yield topic, hosts
    hosts.close()


def read(topic):
    """The group's records, in the order of the log."""
    return [data for part in reversed(list(log_parts(topic, "billing"))) for _, data in part]


def owned(store, *groups):
    """The store, once it has taken these groups."""
    for group in groups:
        store.claim(group)
        assert list(store.load(group)) == []
    return store


def test_log_parts_come_newest_first_and_contain_one_group(kafka, state, monkeypatch):
    topic, hosts = state
    monkeypatch.setattr("coordinator.service.stores.kafka.log_parts.FIRST_PART", 6)
    store = owned(hosts(), "billing", "bill")
    for number in range(8):
        append(store, {"billing": [b"%d" % number], "bill": [b"other"]})
    expected = [b"%d" % number for number in range(8)]
    wait_until(lambda: read(topic) == expected, what="the last transaction's marker is written")
    assert len(list(log_parts(topic, "billing"))) > 2
    times = [at_ms for part in log_parts(topic, "billing") for at_ms, _ in part]
    assert all(abs(time.time() * 1000 - at_ms) < 600_000 for at_ms in times)


def test_pruned_records_are_not_in_the_parts(kafka, state):
    topic, hosts = state
    store = owned(hosts(), "billing")
    append(store, {"billing": [b"before"]})
    snapshot(store, "billing", [b"snapshot"])
    append(store, {"billing": [b"after"]})
    whole = [b"before", b"snapshot", b"after"]
    wait_until(lambda: read(topic) == whole, what="the last transaction's marker is written")
    kafka.delete_records(topic.name, store._open["billing"].log.needed_offset)
    assert read(topic) == [b"snapshot", b"after"]


PLACE = RecordLocation(SharePartitionKey("id", 0), "i")
PART = [(1, encode_record(GroupCreated(incarnation="i", topic_ids=True)))]


class Endless:
    """A log without an end."""

    def __init__(self):
        self.parts = 0

    def log_parts(self, group_id):
        while True:
            self.parts += 1
            yield PART * 100


def request():
    return ReadHistory(group_id="billing", topic="orders", partition=0, offset=1)


def test_a_read_ends_at_its_bounds_and_is_marked_as_cut(monkeypatch):
    for bound, value in (("MOST_BYTES", 100_000), ("MOST_S", 0.2)):
        with monkeypatch.context() as patch:
            patch.setattr(histories, bound, value)
            found = Histories(Endless()).read(request(), PLACE)
            assert found.is_cut and not found.is_whole and found.entries == ()


def test_a_second_read_waits_for_the_first_and_not_for_ever(monkeypatch):
    reading = Histories(Endless())
    monkeypatch.setattr(histories, "WAIT_S", 0.1)
    with reading._reading, pytest.raises(CoordinatorNotAvailable, match="other histories"):
        reading.read(request(), PLACE)
