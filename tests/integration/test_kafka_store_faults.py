"""The Kafka store while the broker hangs, an owner dies in mid-write, and others leave transactions open."""

import contextlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from confluent_kafka import KafkaException

from coordinator.core.record_state import RecordState
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.protocol.host_records import VERSION as ANSWERS
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.kafka import log_reader
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.hanging_transaction import end_transaction
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from coordinator.state_log.owner_state import OwnerState
from coordinator.state_log.partition_log import MOST_BATCHES
from coordinator.state_log.record_keys import GroupRecordKey, ShareSnapshotKey, ShareUpdateKey, encode_key
from coordinator.state_log.record_values import (
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
    encode_snapshot,
    encode_update,
)
from coordinator.state_log.transaction_size import LastTransaction
from tests.support.kafka_log import messages_of
from tests.support.state_records import TOPIC_ID
from tests.support.state_topics import in_mid_write, owner, state_topic, taken
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

WRITE_TIMEOUT_MS = 4_000


@pytest.fixture
def log_topic(kafka):
    log_topic = state_topic(kafka, write_timeout_ms=WRITE_TIMEOUT_MS)
    log_topic.ensure()
    return log_topic


@pytest.fixture
def hang(kafka):
    """The broker hangs from `hang()` to `hang.end()`."""

    def begin():
        kafka.pause()

    def end():
        kafka.resume()
        kafka.admin.list_topics(timeout=60)  # it answers again

    begin.end = end
    yield begin
    kafka.resume()


def loaded_as_members_do(store):
    """The group's records; None where the broker, which has just gone on, is late: members ask again."""
    with contextlib.suppress(BrokerNotReachable, StoreRefused, StoreOutcomeUnknown):
        return taken(store)


@pytest.mark.slow
def test_an_append_to_a_hung_broker_is_loaded_whole_or_never(open_at, hang):
    store = open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    hang()
    with pytest.raises((StoreOutcomeUnknown, StoreRefused)) as raised:
        append(store, {"billing": [b"b", b"c"]})
    hang.end()
    found = wait_until(lambda: loaded_as_members_do(store), what="the group is loaded")
    assert found in ([b"a"], [b"a", b"b", b"c"])
    assert isinstance(raised.value, StoreOutcomeUnknown) or found == [b"a"]
    append(store, {"billing": [b"d"]})
    assert wait_until(lambda: loaded_as_members_do(open_at()), what="the next owner loads it") == [*found, b"d"]


DIES_IN_MID_WRITE = """
import sys
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.record_keys import GroupRecordKey, encode_key
from tests.support.state_topics import in_mid_write, owner, state_topic, taken
from tests.support.store_writes import append
from types import SimpleNamespace

topic = state_topic(SimpleNamespace(bootstrap=sys.argv[1]), sys.argv[2], write_timeout_ms=300_000)
store = KafkaStore(topic, 0, LivingOwner(owner("one")), updates_per_snapshot=500)
taken(store)
append(store, {"billing": [b"a"]})
writer = store._open["billing"].writer
in_mid_write(writer, encode_key(GroupRecordKey("billing", 1)), b"lost")
print("written", flush=True)
sys.stdin.read()
"""
"""Dies with a transaction open, which the broker would end after ten minutes."""


def test_an_owner_killed_in_mid_write_leaves_no_record_and_no_wait(kafka, log_topic, open_at):
    program = [sys.executable, "-c", DIES_IN_MID_WRITE, kafka.bootstrap, log_topic.name]
    child = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "written\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        child.stdin.close()
    log = messages_of(kafka.bootstrap, log_topic.name, isolation="read_uncommitted")
    assert b"lost" in [each.value() for each in log]
    store = open_at("two")
    assert taken(store) == [b"a"]
    append(store, {"billing": [b"b"]})
    assert taken(open_at("three")) == [b"a", b"b"]


@contextlib.contextmanager
def asking_hosts(log_topic):
    """The stores of two hosts that ask each other, and the second one's rule."""
    living = [LivingOwner(msgspec.structs.replace(owner(host), answers=ANSWERS)) for host in ("one", "two")]
    with contextlib.ExitStack() as stores:
        one, two = (
            stores.enter_context(contextlib.closing(KafkaStore(log_topic, 0, each, updates_per_snapshot=500)))
            for each in living
        )
        yield one, two, living[1]


@pytest.mark.parametrize("writes", ["billing", "shipping"])
def test_a_look_waits_for_no_open_transaction_of_another_hosts_owner(log_topic, monkeypatch, writes):
    """An owner that has died may have left it open: it is asked before, and what it has committed is shown after."""
    monkeypatch.setattr(log_reader, "OPEN_S", 0.0)
    with asking_hosts(log_topic) as (store, other, living):
        taken(store)
        append(store, {"billing": [b"a"]})
        writer = GroupWriter(log_topic, 0, writes)
        writer.fence()
        in_mid_write(writer, encode_key(GroupRecordKey(writes, 1)), b"x")
        with pytest.raises(OwnedElsewhere):
            list(other.peek("billing"))
        living.found("billing", store.tenure("billing"), OwnerState.QUIET, log_topic.offset(0, LATEST))
        assert [data for _, data in other.peek("billing")] == [b"a"]
        writer.close()


@pytest.mark.slow
def test_a_load_waits_until_another_groups_open_transaction_ends(log_topic, open_at):
    store, late = open_at("one"), open_at("two")
    taken(store)
    append(store, {"billing": [b"a"]})
    writer = GroupWriter(log_topic, 0, "shipping")  # Kafka ends its transactions after twice the write timeout
    writer.fence()
    in_mid_write(writer, encode_key(GroupRecordKey("shipping", 0)), b"x")
    append(store, {"billing": [b"b"]})
    with ThreadPoolExecutor(1) as thread:
        loaded = thread.submit(taken, late)
        assert loaded.result(60) == [b"a", b"b"]
    with pytest.raises(KafkaException):
        writer._producer.commit_transaction(30)
    writer.close()


def test_a_load_waits_for_no_transaction_that_a_dead_owner_left_open(log_topic, monkeypatch):
    """A host that dies has several groups in mid-transaction: the first that is taken waits for none of them."""
    monkeypatch.setattr(log_reader, "OPEN_S", 0.0)
    with asking_hosts(log_topic) as (dead, other, living):
        for group_id in ("billing", "shipping", "audit"):
            taken(dead, group_id)
            append(dead, {group_id: [b"a"]})
        for group_id in ("shipping", "billing", "audit"):
            in_mid_write(dead._open[group_id].writer, encode_key(GroupRecordKey(group_id, 1)), b"x")
        living.found("billing", dead.tenure("billing"), OwnerState.SILENT, log_topic.offset(0, LATEST))
        assert taken(other) == [b"a"]
        with pytest.raises(StoreOutcomeUnknown):  # where the owner still lives, it finds its own group again
            append(dead, {"audit": [b"b"]})
        assert taken(dead, "audit", claim=False) == [b"a"]
        with pytest.raises(OwnedElsewhere):
            taken(other, "shipping")


@pytest.mark.parametrize("before", [[], [b"a"]], ids=["a new group", "a group whose owner is gone"])
def test_a_host_that_is_too_late_does_not_fence_the_new_owner(log_topic, monkeypatch, before):
    """The second one looks again, just before it would fence the first."""
    with asking_hosts(log_topic) as (dead, other, living), contextlib.ExitStack() as stack:
        if before:
            taken(dead)
            append(dead, {"billing": before})
        also = LivingOwner(msgspec.structs.replace(owner("three"), answers=ANSWERS))
        third = KafkaStore(log_topic, 0, also, updates_per_snapshot=500)
        stack.callback(third.close)
        end = log_topic.offset(0, LATEST)
        for each in (living, also):
            each.found("billing", dead.tenure("billing"), OwnerState.SILENT, end)

        def connect(writer):
            monkeypatch.undo()
            assert taken(third) == before
            writer.connect()

        monkeypatch.setattr(GroupWriter, "connect", connect)
        with pytest.raises(OwnedElsewhere):
            taken(other)
        append(third, {"billing": [b"b"]})


@pytest.mark.slow
def test_a_snapshot_of_many_megabytes_loads_unchanged(open_at):
    store = open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    batches = tuple(StateBatch(at, at, RecordState.ACKNOWLEDGED, 1) for at in range(2, 1_000_002, 2))
    head = ShareSnapshotValue(0, 0, 0, 0, 1, 1, batches[:MOST_BATCHES], 500_000)
    rest = ShareUpdateValue(0, 0, 0, batches[MOST_BATCHES:], 500_000)
    shown = [
        (encode_key(ShareSnapshotKey("billing", TOPIC_ID, 0)), encode_snapshot(head)),
        (encode_key(ShareUpdateKey("billing", TOPIC_ID, 0)), encode_update(rest)),
    ]
    assert len(shown[0][1]) > 7_900_000
    own = [bytes([number]) * 1_000_000 for number in range(8)]
    store._open["billing"].log.snapshot_records = lambda *_: shown
    snapshot(store, "billing", own)
    assert taken(open_at())[-8:] == own


def test_what_ends_a_part_never_counts_itself(log_topic):
    """The abort of a part whose marker is lost: its own marker may be lost, too, and a later commit ends both then."""
    writer, last = GroupWriter(log_topic, 0, "billing"), LastTransaction()
    writer.fence()
    writer.abort([(b"key", b"value")])
    writer.close()
    with LogReader(log_topic, 0, committed=False) as reader:
        for message in reader.read_to(1):
            last.add(message.headers())
    assert last.is_cut


def test_a_transaction_of_another_program_is_left_alone(kafka, log_topic):
    foreign = kafka.open_transaction(log_topic.name, [b"hello"], partition=0)
    assert not end_transaction(log_topic, 0, 0)
    foreign.commit_transaction(30)
