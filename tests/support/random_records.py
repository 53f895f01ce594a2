"""Records of any shape: null, empty and large keys and values, headers of any name, times of any age."""

from __future__ import annotations

import random

from confluent_kafka import KafkaError, Producer

from tests.support.kafka_broker import KafkaBroker


def random_bytes(choose: random.Random, most: int) -> bytes | None:
    """None, nothing, or bytes of any values and of any length up to ``most``."""
    kind = choose.random()
    return None if kind < 0.1 else b"" if kind < 0.2 else choose.randbytes(int(most ** choose.random()))


def random_headers(choose: random.Random) -> list[tuple[str, bytes | None]]:
    names = ["", "a", "trace-id", "größe", "a" * 300, "鍵"]
    return [(choose.choice(names), random_bytes(choose, 2_000)) for _ in range(choose.choice([0, 0, 1, 2, 30]))]


def produce_at_random(kafka: KafkaBroker, name: str, count: int, choose: random.Random) -> None:
    """Write so many records to two partitions of a topic whose max.message.bytes is 2,000,000."""
    refused: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "message.max.bytes": 2_000_000})
    for _ in range(count):
        most = 1_500_000 if choose.random() < 0.01 else 500
        producer.produce(
            name,
            value=random_bytes(choose, most),
            key=random_bytes(choose, 50),
            headers=random_headers(choose) or None,
            timestamp=choose.randrange(1_700_000_000_000),
            partition=choose.randrange(2),
            on_delivery=lambda error, _: error and refused.append(error),
        )
        producer.poll(0)
    assert (producer.flush(60), refused) == (0, [])
