"""Reads the dead letter topic as any consumer may: a dead letter is a Kafka record with headers (KIP-1191).

Rule: it only reads, from the topic's start. A dead letter that was written twice is returned twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from coordinator.dead_letters.record_format import parse_headers
from coordinator.protocol.librdkafka import WITHOUT_A_GROUP
from sharegroup.demo.embedded_broker import PARTITIONS_PER_TOPIC
from sharegroup.demo.errors import DemoFailed
from sharegroup.demo.orders import Record

TOPIC = "dlq.billing"
_AT_ONCE = 1_000
_ANSWER_WITHIN_S = 10.0


class DeadLetter(NamedTuple):
    """One dead letter: its order and topic, the reason, and the copy of the record."""

    topic: str
    order: int
    delivery_count: int
    reason: str
    record: Record


class DeadLetters:
    """The dead letters that were read so far."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                **WITHOUT_A_GROUP,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self._partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS_PER_TOPIC)]
        self._consumer.assign(self._partitions)
        self._dead_letters: list[DeadLetter] = []

    def __repr__(self) -> str:
        return f"<DeadLetters {len(self._dead_letters)}>"

    def look(self) -> list[DeadLetter]:
        """The dead letters that the consumer has fetched so far, oldest first."""
        for message in self._consumer.consume(_AT_ONCE, 0):
            if message.error() is None:
                self._dead_letters.append(_dead_letter(message))
        return self._dead_letters

    def all(self) -> tuple[DeadLetter, ...]:
        """All dead letters that are in the topic now.

        Raises:
            DemoFailed: they could not all be read.
        """
        end = sum(self._consumer.get_watermark_offsets(part, _ANSWER_WITHIN_S)[1] for part in self._partitions)
        while len(self._dead_letters) < end:
            messages = self._consumer.consume(1, _ANSWER_WITHIN_S)
            if not messages:
                raise DemoFailed(
                    f"the dead letter topic has {end} dead letters, and {len(self._dead_letters)} could be read"
                )
            self._dead_letters += [_dead_letter(message) for message in messages if message.error() is None]
        return tuple(self._dead_letters)

    def close(self) -> None:
        """Close the consumer and its connection."""
        self._consumer.close()


def _dead_letter(message: Any) -> DeadLetter:
    parsed = parse_headers(message.headers())
    assert parsed is not None, "the topic has dead letters only"
    return DeadLetter(
        topic=parsed.origin.topic,
        order=parsed.origin.offset,
        delivery_count=parsed.origin.delivery_count,
        reason=parsed.message,
        record=Record(message.key(), message.value(), parsed.record_headers),
    )
