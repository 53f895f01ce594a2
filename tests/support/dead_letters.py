"""The dead letters that lie in a topic, read with a plain consumer; nothing of the project's own reading is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

PREFIX = "__dlq.errors."
ANSWER_WITHIN_S = 60
Headers = tuple[tuple[str, bytes | None], ...]


class DeadLetter(NamedTuple):
    """One dead letter. ``headers``: all, in order; ``said``: the headers of dead letters as text, without their
    prefix."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def said(self) -> dict[str, str]:
        return {name[len(PREFIX) :]: (value or b"").decode() for name, value in self.headers if name.startswith(PREFIX)}

    @property
    def own_headers(self) -> Headers:
        """Those that the record had."""
        return tuple(header for header in self.headers if not header[0].startswith(PREFIX))

    @property
    def origin(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the record: what makes two dead letters one."""
        said = self.said
        return said["topic"], int(said["partition"]), int(said["offset"])


def read_dead_letters(bootstrap: str, topic: str) -> list[DeadLetter]:
    """All that lie there now, by partition and offset."""
    return read_records(bootstrap, topic)


def read_records(bootstrap: str, topic: str) -> list[DeadLetter]:
    """As above, of a topic of any records."""
    return [
        DeadLetter(each.partition(), each.offset(), each.key(), each.value(), tuple(each.headers() or ()))
        for each in _messages(bootstrap, topic)
    ]


def timestamps(bootstrap: str, topic: str) -> dict[tuple[int, int], str]:
    """The records' timestamps as their dead letters have them, by partition and offset."""
    return {(m.partition() or 0, m.offset() or 0): str(m.timestamp()[1]) for m in _messages(bootstrap, topic)}


def _messages(bootstrap: str, topic: str) -> Iterator[Message]:
    with _consumer(bootstrap) as consumer:
        for partition, low, high in _bounds(consumer, topic):
            consumer.assign([TopicPartition(topic, partition, low)])
            while low < high:
                found = consumer.consume(min(high - low, 1_000), ANSWER_WITHIN_S)
                assert found, f"{topic}-{partition}: nothing came from {low} on within {ANSWER_WITHIN_S} s"
                for message in found:
                    assert message.error() is None, message.error()
                    yield message
                    low = message.offset() + 1


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def _bounds(consumer: Consumer, topic: str) -> list[tuple[int, int, int]]:
    partitions = sorted(consumer.list_topics(topic, ANSWER_WITHIN_S).topics[topic].partitions)
    return [
        (each, *consumer.get_watermark_offsets(TopicPartition(topic, each), ANSWER_WITHIN_S)) for each in partitions
    ]
