"""Records of any shape: null, empty and large keys and values, headers of any name, times of any age, and in
transactions, of which some are aborted."""

from __future__ import annotations

import random
import uuid
from collections import defaultdict
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, Producer

from tests.support.kafka_broker import KafkaBroker


def random_bytes(choose: random.Random, most: int) -> bytes | None:
    """None, nothing, or bytes of any values and of any length up to ``most``."""
    kind = choose.random()
    return None if kind < 0.1 else b"" if kind < 0.2 else choose.randbytes(int(most ** choose.random()))


def random_headers(choose: random.Random) -> list[tuple[str, bytes | None]]:
    names = ["", "a", "trace-id", "größe", "a" * 300, "鍵"]
    return [(choose.choice(names), random_bytes(choose, 2_000)) for _ in range(choose.choice([0, 0, 1, 2, 30]))]


ANY_SHAPE = {"max_message_bytes": 2_000_000, "retention_ms": -1, "message_timestamp_after_max_ms": 2**63 - 1}
"""Configuration of a topic that takes such records."""


def random_time(choose: random.Random) -> int:
    """Milliseconds: mostly of the past, and rarely later than a column of Arrow can have."""
    return choose.randrange(2**62) if choose.random() < 0.02 else choose.randrange(1_700_000_000_000)


def produce_at_random(kafka: KafkaBroker, name: str, count: int, choose: random.Random) -> None:
    """Writes ``count`` records to two partitions of a topic whose configuration is ANY_SHAPE."""
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "message.max.bytes": 2_000_000})
    for _ in range(count):
        most = 1_500_000 if choose.random() < 0.01 else 500
        producer.produce(
            name,
            value=random_bytes(choose, most),
            key=random_bytes(choose, 50),
            headers=random_headers(choose) or None,
            timestamp=random_time(choose),
            partition=choose.randrange(2),
            on_delivery=lambda error, _: error and refused.append(error),
        )
        producer.poll(0)
    assert (producer.flush(60), refused) == (0, [])


def produce_transactions_at_random(
    kafka: KafkaBroker, name: str, count: int, choose: random.Random
) -> Mapping[bool, Mapping[int, set[int]]]:
    """Writes ``count`` transactions of up to 100 records to two partitions, and aborts a third of them. Returns the
    records' offsets by whether they were committed, and by partition."""
    offsets: dict[bool, dict[int, set[int]]] = {True: defaultdict(set), False: defaultdict(set)}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    for _ in range(count):
        commit = choose.random() > 0.33

        def delivered(error: KafkaError | None, message: Message, commit: bool = commit) -> None:
            assert error is None
            offsets[commit][int(message.partition() or 0)].add(int(message.offset() or 0))

        producer.begin_transaction()
        for _ in range(choose.randrange(1, 100)):
            producer.produce(
                name,
                value=random_bytes(choose, 500),
                key=random_bytes(choose, 50),
                headers=random_headers(choose) or None,
                timestamp=random_time(choose),
                partition=choose.randrange(2),
                on_delivery=delivered,
            )
        producer.flush(60)  # an abort drops what is not sent yet
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    return offsets
