"""The topics of the benchmark: order-like JSON records of an exact size, the same number in each partition."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from tests.support.kafka_broker import BrokerError, KafkaBroker

PARTITIONS = 4
_CHUNK = 5_000


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic with its records."""

    name: str
    records: int
    value_bytes: int


def fill(
    broker: KafkaBroker, name: str, records: int, value_bytes: int, nodes: Sequence[int] = (), **config: object
) -> Topic:
    """Create and fill a topic; ``config`` is the producer's, with _ for the dots. ``nodes``: for each partition the
    broker that has it."""
    broker.create_topic(name, PARTITIONS, nodes=nodes)
    producer = Producer(_producer_config(broker, config))
    chunk = [{"value": value} for value in _values(value_bytes)]
    per_partition = records // PARTITIONS
    for written in range(0, per_partition, _CHUNK):
        for partition in range(PARTITIONS):
            _send(producer, name, chunk[: min(_CHUNK, per_partition - written)], partition)
    if producer.flush(120):
        raise BrokerError(f"{name} could not be filled")
    return Topic(name=name, records=per_partition * PARTITIONS, value_bytes=value_bytes)


def _send(producer: Producer, name: str, chunk: list[dict[str, bytes]], partition: int) -> None:
    while chunk:
        done = producer.produce_batch(name, [dict(each) for each in chunk], partition=partition)
        chunk = chunk[done:]
        producer.poll(0.05 if chunk else 0)


def _producer_config(broker: KafkaBroker, config: Mapping[str, object]) -> dict[str, object]:
    given = {key.replace("_", "."): value for key, value in config.items()}
    return {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 50,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 262_144,
        "log_level": 0,
        **given,
    }


def _values(value_bytes: int) -> list[bytes]:
    """Make values of exactly this size; they compress like such records, to about a quarter."""
    chance = random.Random(7)
    values = []
    for order in range(_CHUNK):
        record = {
            "order": f"{chance.getrandbits(64):016x}",
            "customer": chance.randrange(100_000),
            "status": chance.choice(["placed", "paid", "sent", "returned"]),
            "amount": round(chance.uniform(1, 500), 2),
            "at": f"2025-06-{1 + order % 28:02d}T12:{order % 60:02d}:{chance.randrange(60):02d}Z",
        }
        text = json.dumps(record)
        while len(text) < value_bytes:
            text += json.dumps({"item": chance.randrange(10_000), "pieces": chance.randrange(9), "gift": False})
        values.append(text[:value_bytes].encode())
    return values
