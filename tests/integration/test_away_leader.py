"""One broker of two goes away: ShareConsumers get the records of the other, and lose none of the one that is away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.client.group_options import connect
from coordinator.protocol.messages import DescribeGroup
from share_source.executor import consumers
from sharegroup import ShareConsumer
from tests.support.kafka_broker import BrokerError, KafkaBroker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.broker]

RECORDS = 5


@pytest.fixture
def away(second: KafkaBroker) -> Iterator[KafkaBroker]:
    """The second broker, which the test may pause."""
    consumers.cache().close()
    yield second
    with contextlib.suppress(BrokerError):  # it was killed, and the test has failed before its start
        second.resume()
    consumers.cache().close()


@pytest.fixture
def make(first: KafkaBroker, unique: Callable[[str], str], runtime: Any, tmp_path: Any) -> Iterator[Callable[..., Any]]:
    """Makes consumers of one group, whose state is in a file: a broker that is away has no part in it."""
    group, made = unique("group"), []
    store = {"share.state.store": f"sqlite:{tmp_path / 'state.db'}"}

    def consumer(topic: str, **settings: object) -> ShareConsumer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        base = {"bootstrap.servers": first.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
        made.append(ShareConsumer({**base, **store, "share.acknowledgement.mode": "explicit", **named}))
        made[-1].subscribe([topic])
        return made[-1]

    def described() -> dict[int, tuple[int, int]]:
        with contextlib.closing(connect(first.bootstrap, {"bootstrap.servers": first.bootstrap}, store)) as client:
            partitions = client.call(DescribeGroup(group_id=group)).partitions
        return {p.partition: (p.start_offset, p.archived_total) for p in partitions}

    consumer.described = described  # type: ignore[attr-defined]
    yield consumer
    for each in made:
        each.close()


def accepted(consumer: ShareConsumer, count: int) -> list[tuple[int, int, int]]:
    """(partition, offset, delivery count) of the next ``count`` records, which are accepted as they come."""
    found: list[tuple[int, int, int]] = []

    def came() -> bool:
        for message in consumer.poll(1.0):
            found.append((message.partition(), message.offset(), message.delivery_count()))
            consumer.acknowledge(message)
        assert not [error for error in consumer.commit_sync().values() if error]
        return len(found) >= count

    wait_until(came, timeout_s=60, what=f"{count} records come")
    return sorted(found)


@pytest.mark.parametrize("gone", [pytest.param("killed", marks=pytest.mark.soak), "paused"])
def test_a_consumer_continues_while_one_leader_is_away(first, away, unique, make, runtime, gone) -> None:
    topic = first.create_topic(unique("orders"), nodes=[1, 2])
    consumer = make(topic)
    produce(first, topic, 0, 1)
    # A busy machine's broker may be given up too; its records come again, with a higher count, and cost no try.
    assert where(accepted(consumer, 2 * RECORDS)) == [(at, offset) for at in (0, 1) for offset in range(RECORDS)]
    produce(first, topic, 0, 1)
    (away.kill if gone == "killed" else away.pause)()
    assert where(accepted(consumer, RECORDS)) == [(0, offset) for offset in range(RECORDS, 2 * RECORDS)]
    produce(first, topic, 0)
    assert where(accepted(consumer, RECORDS)) == [(0, offset) for offset in range(2 * RECORDS, 3 * RECORDS)]
    (away.start if gone == "killed" else away.resume)()
    assert where(accepted(consumer, RECORDS)) == [(1, at) for at in range(RECORDS, 2 * RECORDS)]
    assert make.described() == {0: (3 * RECORDS, 0), 1: (2 * RECORDS, 0)}
    (log,) = runtime.glob("coordinator-*.log")

    def of_leaders() -> list[str]:
        return [line for line in log.read_text().splitlines() if "the leaders of some partitions" in line]

    assert "no answer for" in of_leaders()[0]
    wait_until(lambda: "answers again" in of_leaders()[-1], what="the log says that the leader is back")


def where(records: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Partition and offset of the records."""
    return [record[:2] for record in records]


def produce(first: KafkaBroker, topic: str, *partitions: int) -> None:
    for partition in partitions:
        first.produce(topic, ["x"] * RECORDS, partition=partition)
