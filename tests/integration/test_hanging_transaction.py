"""A group's transaction that Kafka never ends, since its marker is lost: no group is kept from being loaded by it, and
what was answered stays."""

import contextlib
import struct

import pytest

from coordinator.protocol.errors import StateTransactionOpen
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.kafka import hanging_transaction, log_reader
from coordinator.service.stores.kafka.group_list import groups_in
from coordinator.service.stores.kafka.hanging_transaction import end_transaction
from coordinator.service.stores.store import StoreOutcomeUnknown
from tests.support.kafka_broker import KafkaBroker
from tests.support.state_topics import taken
from tests.support.store_writes import append
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

BATCH = struct.Struct(">qi")
"""The first fields of a batch in Kafka's log: its first offset, and the number of bytes that follow."""
ATTRIBUTES_AT, IS_CONTROL = 21, 0x20
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture(scope="module")
def kafka():
    """A broker of this module's own: its files are changed while it is down."""
    with KafkaBroker(heap="512m") as broker:
        yield broker


@pytest.fixture
def impatient(monkeypatch):
    """Each transaction that blocked a read counts as hanging."""
    monkeypatch.setattr(hanging_transaction, "TRANSACTION_TIMEOUT_FACTOR", 0)
    monkeypatch.setattr(hanging_transaction, "LOOKS_EVERY_S", 0.0)
    monkeypatch.setattr(hanging_transaction, "SPREAD_S", 0.0)


def committed_end(topic):
    """The end of partition 0 when all of it is committed: a commit is answered before its marker is written."""
    wait_until(lambda: topic.offset(0, LATEST, read_committed=True) == topic.offset(0, LATEST), what="it is committed")
    return topic.offset(0, LATEST)


def lose_the_end(kafka, topic, batches=1):
    """The broker dies, and comes back without the last batches in partition 0 of the topic: one is a marker. It has
    noted before that billing's transaction is complete: else it would write the marker again."""
    committed_end(topic)
    state = ("--bootstrap-server", kafka.bootstrap, "describe", "--transactional-id", f"{topic.name}-billing")
    wait_until(lambda: "CompleteCommit" in kafka.run_tool(TRANSACTIONS, *state), what="the transaction is complete")
    kafka.kill()
    try:
        (log,) = kafka.directory.rglob(f"{topic.name}-0/*.log")
        content, at, begins = log.read_bytes(), 0, []
        while at < len(content):
            begins.append(at)
            at += BATCH.size + BATCH.unpack_from(content, at)[1]
        assert content[begins[-1] + ATTRIBUTES_AT + 1] & IS_CONTROL, "the last batch is a marker"
        log.write_bytes(content[: begins[-batches]])
        for snapshot in log.parent.glob("*.snapshot"):
            snapshot.unlink()
    finally:
        kafka.start()


def load_blocked(store, group_id):
    """The group's records, once its load is not blocked; it is at first."""

    def loaded():
        with contextlib.suppress(StateTransactionOpen):
            return [taken(store, group_id)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "OPEN_S", 1.0)
        with pytest.raises(StateTransactionOpen):
            taken(store, group_id)
        (records,) = wait_until(loaded, what=f"{group_id} is loaded")
        return records


@pytest.mark.slow
def test_a_commit_whose_marker_is_lost_blocks_no_other_group(kafka, log_topic, open_at, impatient):
    owner = open_at("one")
    taken(owner)
    append(owner, {"billing": [b"a"]})
    append(owner, {"billing": [b"b"]})
    owner.close()
    lose_the_end(kafka, log_topic)
    assert load_blocked(open_at("two"), "shipping") == []
    assert groups_in(log_topic, [0])["billing"].installation_id == "one", "its owner is who it was"
    assert taken(open_at("three")) == [b"a", b"b"]


@pytest.mark.slow
def test_an_owner_that_still_runs_loads_its_group_again(kafka, log_topic, open_at, impatient):
    owner = open_at("one")
    taken(owner)
    append(owner, {"billing": [b"a"]})
    lose_the_end(kafka, log_topic)
    assert load_blocked(open_at("two"), "shipping") == []
    with pytest.raises(StoreOutcomeUnknown):
        append(owner, {"billing": [b"b"]})
    assert taken(owner, claim=False) == [b"a"]
    append(owner, {"billing": [b"c"]})
    assert taken(open_at("three")) == [b"a", b"c"]


A_BATCH_EACH = [b"x" * 900_000, b"y" * 900_000]
"""One transaction of two records that are together too large for a batch."""


@pytest.mark.slow
@pytest.mark.parametrize("first", ["shipping", "billing"])
def test_a_part_of_a_transaction_never_counts(kafka, log_topic, open_at, impatient, first):
    owner = open_at("one")
    taken(owner)
    append(owner, {"billing": [b"a"]})
    append(owner, {"billing": A_BATCH_EACH})
    owner.release("billing")  # as a process that is killed: it writes nothing more
    lose_the_end(kafka, log_topic, batches=2)
    load = load_blocked if first == "shipping" else taken  # its own transaction blocks no load
    load(open_at("two"), first)
    last = open_at("three")
    assert taken(last) == [b"a"]
    append(last, {"billing": [b"b"]})
    assert taken(open_at("four")) == [b"a", b"b"]


@pytest.mark.slow
def test_a_transaction_of_a_forgotten_producer_is_said_not_to_end(kafka, log_topic, open_at, caplog):
    owner = open_at("one")
    taken(owner)
    append(owner, {"billing": [b"a"]})
    open_since = committed_end(log_topic)
    log = owner._open["billing"].log
    forgotten = kafka.open_transaction(log_topic.name, [b"x"], partition=0, keys=[log.keyed([b"b"], 1)[0][0]])
    assert not end_transaction(log_topic, 0, open_since)
    assert "could not end the transaction in" in caplog.text and "(transactional.id.expiration.ms)" in caplog.text
    forgotten.abort_transaction(30)
    assert taken(open_at("two")) == [b"a"]
