"""A member has a standalone coordinator read and write what its allow lists have, on a real broker."""

import contextlib
import uuid

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordinator.client.connection import Connection
from coordinator.protocol.allowed_topics import DEAD_LETTER_KEY, SOURCE_KEY
from coordinator.protocol.errors import TopicNotAllowed
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquireRecords, JoinGroup, PartitionAcks
from coordinator.protocol.values import AcknowledgeType
from coordinator.protocol.wire import Endpoint
from tests.support.standalone import StandaloneProcess, write_secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

NAME = "errors.deadletterqueue.topic.name"
SALARY = (b"alice", b"alice: 250000")
ANYBODY, BOUND = "token-of-anybody-0123456789", "token-of-billing-0123456789"


@pytest.fixture(scope="module")
def topics(kafka):
    """A topic with a salary, one of orders, and one that is the attacker's own; dead letters of orders have theirs."""
    end = uuid.uuid4().hex[:6]
    names = {name: f"{name}-{end}" for name in ("salaries", "orders", "mine", "dlq-orders")}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names.values()]).values():
        future.result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for name in ("salaries", "orders"):
        producer.produce(names[name], key=SALARY[0], value=SALARY[1])
    producer.flush()
    return names


@contextlib.contextmanager
def standalone(kafka, folder, **configs):
    lists = "groups=billing-.* topics=(orders|salaries)-.* dlq=(dlq-orders|mine)-.*"
    tokens = f"member:{ANYBODY}\nread,member billing:{BOUND} {lists}\n"
    given = {
        "bootstrap.servers": kafka.bootstrap,
        "share.state.store": f"sqlite:{folder / 'state.db'}",
        "share.coordinator.token.file": write_secret(folder / "tokens", tokens),
        **configs,
    }
    with contextlib.closing(StandaloneProcess(folder, given)) as running:
        yield running.wait_ready()


@contextlib.contextmanager
def connected(running, token):
    host, port = running.address
    with contextlib.closing(Connection(Endpoint(host=host, port=port, token=token, pid=0))) as connection:
        yield connection


def joins(group_id, topics, dead_letters="", **fields):
    return JoinGroup(
        group_id=group_id,
        member_id="m",
        process_id="p",
        query=False,
        topics=topics,
        starting_offsets="earliest",
        configs={NAME: dead_letters},
        **fields,
    )


def reject_all(connection, group_id, epoch):
    """Acquire what there is, as a ShareConsumer, and reject it; the topics that it came from."""
    who = {"group_id": group_id, "member_id": "m", "member_epoch": epoch}
    found = wait_until(
        lambda: connection.call(AcquireRecords(**who, max_records=100, wait_ms=500)).partitions, what="records come"
    )
    acks = tuple(
        PartitionAcks(
            topic_id=part.topic_id,
            partition=part.partition,
            batches=tuple(
                AckBatch(first=r.first, last=r.last, delivery_count=r.delivery_count, types=(AcknowledgeType.REJECT,))
                for r in part.ranges
            ),
        )
        for part in found
    )
    assert not connection.call(Acknowledge(**who, partitions=acks)).errors
    return {part.topic for part in found}


def read_first(kafka, topic):
    """Key and value of the topic's first record, once it is there."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = wait_until(lambda: consumer.poll(1.0), what="a record comes")
        return message.key(), message.value()


def end_of(kafka, topic):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "x"})
    with contextlib.closing(consumer):
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]


@pytest.fixture(scope="module")
def limited(kafka, topics, tmp_path_factory):
    """A coordinator that reads orders and what its keys name alone, and writes to dead letter topics of orders."""
    folder = tmp_path_factory.mktemp("limited")
    with standalone(kafka, folder, **{SOURCE_KEY: "orders-.*", DEAD_LETTER_KEY: "dlq-.*"}) as running:
        yield running


def test_a_member_gets_no_copy_of_a_topic_that_is_not_allowed(kafka, topics, limited):
    """The sequence by which a member's token was enough to read any topic that the coordinator's principal can."""
    salaries, orders, mine = (topics[name] for name in ("salaries", "orders", "mine"))
    for token in (ANYBODY, BOUND):
        with connected(limited, token) as connection:
            with pytest.raises(TopicNotAllowed, match=rf"{salaries} may not be read.*{SOURCE_KEY}"):
                connection.call(joins("billing-evil", (salaries,), mine))
            with pytest.raises(TopicNotAllowed, match=rf"{mine} may not be a dead letter topic: {DEAD_LETTER_KEY}"):
                connection.call(joins("billing-evil", (orders,), mine))
    assert end_of(kafka, mine) == 0


def test_a_pattern_meets_the_allowed_topics_alone(kafka, topics, limited):
    with connected(limited, ANYBODY) as connection:
        both = f"{topics['orders']}|{topics['salaries']}"  # a broker has other tests' topics, too
        epoch = connection.call(joins("wide", (), topics["dlq-orders"], topic_pattern=both)).member_epoch

        assert reject_all(connection, "wide", epoch) == {topics["orders"]}
    assert read_first(kafka, topics["dlq-orders"]) == SALARY
    assert any(topics["salaries"] in line for line in limited.said("topics are not read: group=wide"))


def test_without_the_keys_a_member_reads_what_the_coordinator_can(kafka, topics, tmp_path):
    """As docs/run/security.md says: every topic is allowed by default."""
    with standalone(kafka, tmp_path) as running, connected(running, ANYBODY) as connection:
        epoch = connection.call(joins("evil", (topics["salaries"],), topics["mine"])).member_epoch
        reject_all(connection, "evil", epoch)

        assert read_first(kafka, topics["mine"]) == SALARY
