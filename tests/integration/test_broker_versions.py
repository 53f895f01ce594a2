"""Brokers of other versions than the one that all other tests have: a group's whole story on each of them.

`make test-broker KAFKA=3.9.2` runs all tests with a broker on one version; docs/run/brokers.md has what was seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.dead_letters.record_format import Origin
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from coordinator.state_log.placement import state_partition_of
from sharegroup import AcknowledgeType, Admin, ShareConsumer
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_log import messages_of
from tests.support.reader_query import Query, read
from tests.support.rejecting import origins
from tests.support.waiting import wait_until
from tools.bootstrap import OLDER_KAFKA, OTHER_KAFKAS

pytestmark = [pytest.mark.slow, pytest.mark.broker, pytest.mark.usefixtures("own_runtime")]

VERSIONS = [OLDER_KAFKA, *(pytest.param(version, marks=pytest.mark.soak) for version in OTHER_KAFKAS)]
DLQ = "errors.deadletterqueue.topic.name"


@pytest.fixture(scope="module", params=VERSIONS)
def older(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """A broker of that version."""
    with KafkaBroker(version=request.param, heap="512m") as broker:
        yield broker


def polled(consumer: ShareConsumer, count: int) -> list[Any]:
    """Polls until there are ``count`` records, and returns them."""
    found: list[Any] = []

    def came() -> bool:
        found.extend(consumer.poll(1.0))
        return len(found) >= count

    wait_until(came, what=f"{count} records come")
    return found


def test_a_group_of_consumers_outlives_its_coordinator(older: KafkaBroker, unique: Callable[[str], str]) -> None:
    """One record is accepted, one rejected, one released, and one is of an aborted transaction."""
    orders, dlq, group = older.create_topic(), older.create_topic(), unique("group")
    older.produce_transaction(orders, ["accepted", "rejected", "released"])  # 0 to 2, and the marker
    older.produce_transaction(orders, ["aborted"], commit=False)  # 4, and the marker
    older.produce(orders, ["last"])
    config = {
        "bootstrap.servers": older.bootstrap,
        "group.id": group,
        "share.auto.offset.reset": "earliest",
        "share.isolation.level": "read_committed",
        "share.acknowledgement.mode": "explicit",
        DLQ: dlq,
    }
    with ShareConsumer(config) as consumer, Admin({"bootstrap.servers": older.bootstrap}) as admin:
        consumer.subscribe([orders])
        first = polled(consumer, 4)
        assert [message.offset() for message in first] == [0, 1, 2, 6]
        for message, outcome in zip(first, ("ACCEPT", "REJECT", "RELEASE", "ACCEPT"), strict=True):
            consumer.acknowledge(message, AcknowledgeType[outcome])
        assert set(consumer.commit_sync().values()) == {None}
        assert kill_coordinators()
        (again,) = polled(consumer, 1)
        assert again.offset() == 2
        wait_until(lambda: messages_of(older.bootstrap, dlq), what="the rejected record is a dead letter")
        assert list(origins(messages_of(older.bootstrap, dlq))) == [Origin(orders, 0, 1, group, 1)]
        consumer.acknowledge(again)
        consumer.commit_sync()

        assert group in [listed.group_id for listed in admin.list_groups().groups]
        described = admin.describe_groups([group])[group]
        assert described.state == "STABLE"
        wait_until(lambda: starts(admin, group) == [7], what="all is done")
    own = state_partition_of(group, 50)
    assert any(each.partition() == own for each in messages_of(older.bootstrap, STATE_TOPIC)), (
        "the state is in Kafka's topic"
    )


def starts(admin: Admin, group: str) -> list[int]:
    return [partition.start_offset for partition in admin.list_offsets(group).partitions]


def test_a_querys_batch_is_replayed_by_another_coordinator(
    older: KafkaBroker, unique: Callable[[str], str], reader: str
) -> None:
    """Two queries share a topic; the coordinator is killed inside of a batch; the admin resets the group at the end."""
    orders, group = older.create_topic(partitions=2), unique("group")
    for partition in range(2):
        older.produce(orders, [f"{n}" for n in range(50)], partition=partition)
    older.delete_records(orders, 10)
    options = {"kafka.bootstrap.servers": older.bootstrap, "kafka.group.id": group, "subscribe": orders}
    with contextlib.ExitStack() as stack:
        one, other = Query(**options, startingOffsets="earliest"), Query(**options)
        for query in (one, other):
            stack.callback(query.reader.stop)
        tasks = one.wait_batch(30)
        kill_coordinators()
        held = [(row["partition"], row["offset"]) for task in tasks for row in read(task)]
        replayed = [part.task for part in one.reader.partitions(one.committed, one.end)]
        rows = [row for task in replayed for row in read(task)]
        assert sorted((row["partition"], row["offset"]) for row in rows) == sorted(held)
        one.commit(rows)
        other.run()
        other.next_batch()
        one.next_batch()
        expected = {(0, n) for n in range(10, 50)} | {(1, n) for n in range(50)}
        assert one.delivered + other.delivered == dict.fromkeys(expected, 1)
        with Admin({"bootstrap.servers": older.bootstrap}) as admin:
            assert starts(admin, group) == [50, 50]
            assert admin.list_offsets(group).partitions[0].topic_id == older.topic_id(orders)


def test_a_recreated_topic_is_read_from_its_beginning(older: KafkaBroker, unique: Callable[[str], str]) -> None:
    """The broker's topic ids show it."""
    orders, group = older.create_topic(), unique("group")
    older.produce(orders, ["a", "b"])
    options = {"kafka.bootstrap.servers": older.bootstrap, "kafka.group.id": group, "subscribe": orders}
    query = Query(**options, startingOffsets="earliest", failOnDataLoss="false")
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(query.reader.stop)
        assert [row["offset"] for row in query.run()] == [0, 1]
        older.recreate_topic(orders)
        older.produce(orders, ["c"])
        assert [(row["offset"], row["value"]) for row in query.run()] == [(0, b"c")]
