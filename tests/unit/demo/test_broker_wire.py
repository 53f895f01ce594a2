"""The quickstart's broker changes Kafka's answers alike in each version of a request that it tells clients of. The
answers are those of the embedded broker."""

from __future__ import annotations

import socket
import struct

import pytest
from confluent_kafka.admin import AdminClient

from sharegroup.demo import wire
from sharegroup.demo.embedded_broker import EmbeddedBroker

TOPIC = struct.pack(">h", 6) + b"orders"


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic("orders")
    return embedded


def request(key: int, version: int, body: bytes) -> wire.Request:
    return wire.Request(struct.pack(">hhih", key, version, 7, 1) + b"c" + body)


def ask(broker: EmbeddedBroker, asked: wire.Request) -> bytes:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(asked.content)) + asked.content)
        (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(length, socket.MSG_WAITALL)


def metadata(version: int) -> wire.Request:
    flags = b"\1" * ((version >= 4) + 2 * (version >= 8))
    return request(wire.METADATA, version, struct.pack(">i", 1) + TOPIC + flags)


def find_coordinator(version: int) -> wire.Request:
    return request(wire.FIND_COORDINATOR, version, struct.pack(">h", 1) + b"g" + b"\0" * (version >= 1))


def list_offsets(version: int, at: int) -> wire.Request:
    isolation, epoch = b"\0" * (version >= 2), struct.pack(">i", -1) * (version >= 4)
    partition = struct.pack(">i", 0) + epoch + struct.pack(">q", at)
    body = struct.pack(">i", -1) + isolation + struct.pack(">i", 1) + TOPIC + struct.pack(">i", 1) + partition
    return request(wire.LIST_OFFSETS, version, body)


CASES = [
    *(pytest.param(metadata(version), id=f"metadata {version}") for version in range(wire.NEWEST[wire.METADATA] + 1)),
    *(
        pytest.param(find_coordinator(version), id=f"find {version}")
        for version in range(wire.NEWEST[wire.FIND_COORDINATOR] + 1)
    ),
]


@pytest.mark.parametrize("asked", CASES)
def test_only_the_address_the_controller_and_the_cluster_id_change(broker: EmbeddedBroker, asked: wire.Request) -> None:
    answer = ask(broker, asked)
    host, _, port = broker.bootstrap_servers.rpartition(":")
    own_id = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).cluster_id
    same = wire.readdressed(asked, answer, host, int(port), own_id)
    changed = [at for at, (old, new) in enumerate(zip(answer, same, strict=True)) if old != new]
    assert len(changed) == (asked.key == wire.METADATA and asked.version >= 1), "the controller's id, below 256"
    other = wire.readdressed(asked, answer, "localhost", 9092, "another cluster")
    assert struct.pack(">h", 9) + b"localhost" + struct.pack(">i", 9092) in other
    has_id = asked.key == wire.METADATA and asked.version >= 2
    assert (b"another cluster" in other, own_id.encode() in answer) == (has_id, has_id)
    longer = len("another cluster") - len(own_id) if has_id else 0
    assert len(other) == len(answer) + len("localhost") - len(host) + longer
    assert host.encode() not in other and own_id.encode() not in other


@pytest.mark.parametrize("version", [0, 1, 2])
def test_clients_are_told_of_no_newer_version(broker: EmbeddedBroker, version: int) -> None:
    answer = wire.capped_versions(ask(broker, request(wire.VERSIONS, version, b"")))
    (count,) = struct.unpack_from(">i", answer, 6)
    told = {key: (oldest, newest) for key, oldest, newest in struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])}
    assert {key: newest for key, (_, newest) in told.items() if key in wire.NEWEST} == wire.NEWEST
    assert told[wire.CREATE_TOPICS] == (0, 4) and told[wire.LIST_OFFSETS][0] == 1 and max(told) < 68
    assert len(answer) == 10 + 6 * count + 4 * (version >= 1)


@pytest.mark.parametrize("version", range(1, wire.NEWEST[wire.LIST_OFFSETS] + 1))
def test_an_offset_is_put_into_each_version_of_the_answer(broker: EmbeddedBroker, version: int) -> None:
    asked = list_offsets(version, 1_000)
    assert asked.timestamps() == {("orders", 0): 1_000}
    answer = ask(broker, asked)
    assert (
        wire.with_offsets(asked, answer, {})
        == wire.with_offsets(asked, answer, {("orders", 1): wire.ListedOffset(1, 2)})
        == answer
    )
    changed = wire.with_offsets(asked, answer, {("orders", 0): wire.ListedOffset(1_500, 42)})
    assert len(changed) == len(answer) and struct.pack(">qq", 1_500, 42) in changed
    assert list_offsets(version, -1).timestamps() == list_offsets(version, -2).timestamps() == {}


@pytest.mark.parametrize("version", range(5))
def test_topics_are_read_from_each_version_of_a_request(version: int) -> None:
    topic = TOPIC + struct.pack(">ih", 3, 1)
    topic += struct.pack(">iiiii", 1, 0, 2, 1, 2)  # an assignment of partition 0 to the brokers 1 and 2
    topic += struct.pack(">ih", 1, 1) + b"k" + struct.pack(">h", 1) + b"v"
    body = struct.pack(">i", 2) + topic + topic.replace(b"orders", b"others") + struct.pack(">i", 1_000)
    for only_validated in (False, True):
        asked = request(wire.CREATE_TOPICS, version, body + struct.pack(">?", only_validated) * (version >= 1))
        assert asked.new_topics() == ({"orders": ["k"], "others": ["k"]}, only_validated and version >= 1)
    answer = wire.created_topics(asked, {"orders": wire.topic_error("orders", (), exists=True), "others": None})
    assert answer.startswith(struct.pack(">i", 7)) and TOPIC + struct.pack(">h", 36) in answer


def test_a_topic_with_configs_that_the_broker_lacks_is_refused() -> None:
    assert wire.topic_error("dlq", ["message.timestamp.type"], exists=False) is None
    code, message = wire.topic_error("orders", ["retention.ms", "cleanup.policy"], exists=False)
    assert (code, message) == (40, "The broker in memory has no topic configs (cleanup.policy, retention.ms).")


@pytest.mark.parametrize("version", range(wire.NEWEST[wire.PRODUCE] + 1))
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_records_without_acknowledgement_have_no_answer(version: int, acks: int) -> None:
    body = struct.pack(">h", -1) * (version >= 3) + struct.pack(">h", acks)
    assert request(wire.PRODUCE, version, body).is_answered is (acks != 0)


@pytest.mark.parametrize("version", range(wire.NEWEST[wire.INIT_PRODUCER_ID] + 1))
def test_a_transactional_producer_alone_is_refused(broker: EmbeddedBroker, version: int) -> None:
    timeout = struct.pack(">i", 1_000)
    idempotent = request(wire.INIT_PRODUCER_ID, version, struct.pack(">h", -1) + timeout)
    transactional = request(wire.INIT_PRODUCER_ID, version, struct.pack(">h", 1) + b"t" + timeout)
    assert (idempotent.begins_transactions, transactional.begins_transactions) == (False, True)
    refusal = wire.refused_transactions(transactional)
    assert len(refusal) == len(ask(broker, idempotent))
    assert struct.unpack_from(">iih", refusal) == (7, 0, 53)
