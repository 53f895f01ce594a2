"""kafka.client.rack (KIP-392): records come from the replica in the reader's rack, and none is lost if that one is
stopped or is behind its leader."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.protocol.values import AcquiredRange
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import NATIVE, PYTHON
from share_source.executor.task_reader import read_task
from sharegroup import ShareConsumer
from tests.support.compiled_reader import ensure_compiled
from tests.support.kafka_broker import KafkaBroker
from tests.support.read_tasks import offsets, reading_with
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.broker]

RECORDS, SIZE = 10_000, 1_000
ROUNDS = 30
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NEAR = "rack-2"


@pytest.fixture(scope="module")
def racks() -> Iterator[list[KafkaBroker]]:
    """Three brokers in racks of their own. Each topic of the tests is on all three, and led by the first."""
    with contextlib.ExitStack() as opened:
        brokers: list[KafkaBroker] = []
        for node in (1, 2, 3):
            config = {"broker_rack": f"rack-{node}", "replica_selector_class": SELECTOR}
            joins = brokers[0] if brokers else None
            brokers.append(opened.enter_context(KafkaBroker(heap="512m", joins=joins, node=node, **config)))
        yield brokers


@pytest.fixture
def orders(racks: list[KafkaBroker], unique: Callable[[str], str]) -> str:
    return racks[0].create_topic(unique("orders"), replicas=[1, 2, 3])


@pytest.fixture
def consumer(
    racks: list[KafkaBroker], orders: str, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[ShareConsumer]:
    """In the second broker's rack. Its requests for records go through the brokers' proxies. Its state is in a file:
    this cluster's topic of transactions has one replica, which a test stops."""
    with ShareConsumer(
        {
            "bootstrap.servers": racks[0].proxied_bootstrap,
            "client.rack": NEAR,
            "group.id": unique("group"),
            "share.auto.offset.reset": "earliest",
            "share.state.store": f"sqlite:{tmp_path / 'state.db'}",
        }
    ) as made:
        made.subscribe([orders])
        yield made


def produce(racks: list[KafkaBroker], topic: str) -> None:
    values = [b"%05d" % number + bytes(SIZE) for number in range(RECORDS)]
    racks[0].produce(topic, values, acks="all", batch_size=20_000)


def answered(racks: list[KafkaBroker]) -> list[int]:
    return [broker.proxy.answered for broker in racks]


def share_of_each(racks: list[KafkaBroker], before: list[int]) -> list[float]:
    """The part of the topic's bytes that each broker has sent since ``before``."""
    return [(now - was) / (RECORDS * SIZE) for was, now in zip(before, answered(racks), strict=True)]


def polled(consumer: ShareConsumer, count: int, when: Callable[[int], Any] = lambda found: None) -> list[int]:
    """The offsets of the next ``count`` records. ``when`` is called after each poll with their number so far."""
    found: list[int] = []

    def came() -> bool:
        found.extend(message.offset() or 0 for message in consumer.poll(1.0))
        when(len(found))
        return len(found) >= count

    wait_until(came, timeout_s=300, what=f"{count} records come")
    return found


@pytest.mark.parametrize("reader", [NATIVE, PYTHON])
@pytest.mark.parametrize(("rack", "near"), [(NEAR, 1), ("rack-1", 0), ("elsewhere", 0), (None, 0)])
def test_a_task_reads_from_the_replica_in_its_rack(
    racks: list[KafkaBroker], orders: str, reader: str, rack: str | None, near: int
) -> None:
    ensure_compiled()
    produce(racks, orders)
    config = {"bootstrap.servers": racks[0].proxied_bootstrap, **({"client.rack": rack} if rack else {})}
    part = PartitionRanges(orders, 0, (AcquiredRange(0, RECORDS - 1, 1),))
    consumers.cache().close()
    with reading_with(reader):
        before = answered(racks)
        task = ReadTask(partitions=(part,), kafka_config=config, isolation_level="read_uncommitted")
        assert offsets(task) == list(range(RECORDS))
        shares = share_of_each(racks, before)
    consumers.cache().close()
    assert shares[near] > 0.9 and sum(shares) - shares[near] < 0.1, shares


def test_a_share_consumer_reads_in_its_rack_or_from_the_leader(
    racks: list[KafkaBroker], orders: str, consumer: ShareConsumer
) -> None:
    produce(racks, orders)
    before = answered(racks)
    assert polled(consumer, RECORDS) == list(range(RECORDS))
    shares = share_of_each(racks, before)
    assert shares[1] > 0.9 and shares[0] + shares[2] < 0.1, shares

    produce(racks, orders)
    paused: list[int] = []

    def pause(found: int) -> None:
        if found > RECORDS // 4 and not paused:
            paused.append(found)
            racks[1].pause()

    try:
        assert sorted(set(polled(consumer, RECORDS, pause))) == list(range(RECORDS, 2 * RECORDS))
    finally:
        racks[1].resume()
    assert paused, "the near replica was stopped while records were left"


def test_records_that_the_near_replica_does_not_have_yet_are_not_lost(
    racks: list[KafkaBroker], orders: str, consumer: ShareConsumer
) -> None:
    """The leader acknowledges alone, so a record is asked for while the follower may be behind."""
    for number in range(ROUNDS):
        racks[0].produce(orders, [f"{number}-{at}" for at in range(20)], acks=1)
        assert polled(consumer, 20) == list(range(20 * number, 20 * number + 20))


def test_a_task_reads_on_when_the_near_replica_is_killed(racks: list[KafkaBroker], orders: str) -> None:
    ensure_compiled()
    produce(racks, orders)
    config = {"bootstrap.servers": racks[0].bootstrap, "client.rack": NEAR, "queued.max.messages.kbytes": "1000"}
    part = PartitionRanges(orders, 0, (AcquiredRange(0, RECORDS - 1, 1),))
    task = ReadTask(partitions=(part,), kafka_config=config, isolation_level="read_uncommitted")
    batches = read_task(task)
    try:
        read = next(batches).column("offset").to_pylist()
        assert len(read) < RECORDS
        racks[1].kill()
        for batch in batches:
            read += batch.column("offset").to_pylist()
    finally:
        racks[1].start()
    assert read == list(range(RECORDS))
