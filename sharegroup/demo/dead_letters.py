"""Reads the dead letter topic as any consumer may: a dead letter is a Kafka record with headers (KIP-1191).

Rule: it only reads, from the topic's start. A dead letter that was written twice is returned twice."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from coordinator.dead_letters.record_format import parse_headers
from coordinator.kafka.librdkafka import WITHOUT_A_GROUP
from coordinator.kafka.record_headers import headers_of
from sharegroup.demo.embedded_broker import PARTITIONS_PER_TOPIC
from sharegroup.demo.orders import Record
from sharegroup.demo.processes import DemoFailed

TOPIC = "dlq.billing"
_AT_ONCE = 1_000
_ANSWER_WITHIN_S = 10.0


class DeadLetter(NamedTuple):
    """One dead letter: its order and topic, the reason, and the copy of the record."""

    topic: str
    order: int
    reason: str
    record: Record


class DeadLetters:
    """The dead letters that were read so far."""

    def __init__(self, bootstrap_servers: str) -> None:
        start = {**WITHOUT_A_GROUP, "auto.offset.reset": "earliest", "log_level": 0}
        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, **start})
        self._partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS_PER_TOPIC)]
        self._consumer.assign(self._partitions)
        self._read: list[DeadLetter] = []

    def look(self, within_s: float = 0.0) -> list[DeadLetter]:
        """Returns the dead letters read so far, the oldest first. With ``within_s``, waits so long for another one."""
        messages: list[Any] = self._consumer.consume(1 if within_s else _AT_ONCE, within_s)
        for message in messages:
            parsed = None if message.error() else parse_headers(headers_of(message))
            if parsed is not None:
                record = Record(message.key(), message.value(), parsed.record_headers)
                self._read.append(DeadLetter(parsed.origin.topic, parsed.origin.offset, parsed.message, record))
        return self._read

    def all(self) -> tuple[DeadLetter, ...]:
        """Returns all dead letters that are in the topic now. Raises DemoFailed if some can't be read."""
        end = sum(self._consumer.get_watermark_offsets(part, _ANSWER_WITHIN_S)[1] for part in self._partitions)
        while (read := len(self._read)) < end:
            if len(self.look(_ANSWER_WITHIN_S)) == read:
                raise DemoFailed(f"the dead letter topic has {end} dead letters, and {read} could be read")
        return tuple(self._read)

    def close(self) -> None:
        self._consumer.close()
