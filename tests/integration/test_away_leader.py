"""One broker of two goes away: ShareConsumers get the records of the other, and lose none of the one that is away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.messages import DescribeGroup, PartitionPlan
from coordinator.protocol.values import AcquiredRange
from share_consumer import fetching, silent_partitions
from share_consumer.fetching import collector_of
from share_consumer.reading import NotRead, read_records
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import NATIVE
from sharegroup import AcknowledgeType, ShareConsumer
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


# --- reading


def read(task: ReadTask, reader: str) -> tuple[NotRead, list[tuple[int, int]]]:
    """Returns what was not read, and the (partition, offset) of each record."""
    plans = [PartitionPlan(topic=p.topic, topic_id="", partition=p.partition, ranges=p.ranges) for p in task.partitions]
    collector = collector_of(plans, reader == NATIVE)
    not_read = read_records(task, collector, native=reader == NATIVE, patience_s=2.0)
    return not_read, sorted((m.partition(), m.offset()) for run in collector.runs() for m in run.messages)


def task_of(first: KafkaBroker, topic: str, partitions: list[int]) -> ReadTask:
    ranges = (AcquiredRange(0, RECORDS - 1, 1),)
    parts = tuple(PartitionRanges(topic, partition, ranges) for partition in partitions)
    return ReadTask(partitions=parts, kafka_config={"bootstrap.servers": first.bootstrap}, poll_timeout_ms=60_000)


def test_records_of_the_other_broker_are_read(first, away, unique, reader) -> None:
    """With a consumer for each partition, and with one for all of many."""
    topics = {count: first.create_topic(unique("orders"), nodes=[2] + [1] * (count - 1)) for count in (2, 6)}
    for count, topic in topics.items():
        produce(first, topic, *range(count))
    away.pause()
    for count, topic in topics.items():
        not_read, found = read(task_of(first, topic, list(range(count))), reader)
        assert not_read == NotRead({}, {(topic, 0): [(0, RECORDS - 1)]}, {}, {})
        assert found == [(partition, offset) for partition in range(1, count) for offset in range(RECORDS)]
    assert read(task_of(first, topics[2], [0]), reader)[0].given_up, "another broker answers"
    away.resume()

    def is_whole() -> bool:
        not_read, found = read(task_of(first, topics[2], [0]), reader)
        return (not_read, len(found)) == (NotRead({}, {}, {}, {}), RECORDS)

    wait_until(is_whole, what="the broker that was away sends its records")


# --- a consumer


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
        with contextlib.closing(
            CoordinatorClient.connect(first.bootstrap, {"bootstrap.servers": first.bootstrap}, configs=store)
        ) as client:
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


def wait_parked() -> None:
    """Wait until the kept consumers have dropped what they have prefetched."""
    wait_until(lambda: not any(kept.positions for kept in consumers.cache()._idle), what="the consumers are parked")


def test_records_acquired_of_a_leader_that_is_away_come_later(first, away, unique, make, caplog) -> None:
    """The coordinator has not noticed it: it knows the ends of the logs, and asks for none."""
    topic = first.create_topic(unique("orders"), nodes=[1, 2])
    first.produce(topic, ["x"] * 4, partition=0)
    first.produce(topic, ["x"] * 300, partition=1)
    consumer = make(topic, max_poll_records=10, share_coordinator_metadata_refresh_ms=600_000)
    with pytest.MonkeyPatch.context() as patch:
        # A broker that has just started may be slow: it is not given up, nor are its records left to the next poll.
        patch.setattr(silent_partitions, "PATIENCE_S", 60.0)
        patch.setattr(fetching, "PART_S", 60.0)
        of_both = list(consumer.poll(60.0))
    assert {message.partition() for message in of_both} == {0, 1}
    for message in of_both:
        consumer.acknowledge(message, AcknowledgeType(2 if message.partition() == 0 else 1))
    consumer.commit_sync()
    more = accepted(consumer, 10)
    assert {partition for partition, _, _ in more} == {1}
    done = [message.offset() for message in of_both if message.partition() == 1] + [offset for _, offset, _ in more]
    wait_parked()
    away.pause()
    assert where(accepted(consumer, 4)) == [(0, offset) for offset in range(4)]
    first.produce(topic, ["later"] * RECORDS, partition=0)
    assert where(accepted(consumer, RECORDS)) == [(0, 4 + number) for number in range(RECORDS)]
    away.resume()
    rest = accepted(consumer, 300 - len(done))
    assert sorted([*done, *(offset for _, offset, _ in rest)]) == list(range(300))
    assert make.described() == {0: (4 + RECORDS, 0), 1: (300, 0)}
    lines = [record.getMessage() for record in caplog.records if "brokers of some partitions" in record.getMessage()]
    assert "no answer for" in lines[0] and "answers again" in lines[-1]
