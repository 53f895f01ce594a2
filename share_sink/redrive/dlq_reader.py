"""Dead letters as they are read back: what stands in one, and the topic that they lie in, from its start to its end.

Rule: nothing is written and no group is joined. What Kafka's own dead letter queue wrote is read alike: it has no
disposition, and no headers of the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordinator.dead_letters.record_format import Header, parse_headers, record_headers
from coordinator.protocol.librdkafka import UNKNOWN_TOPIC, Silence, new_client
from share_sink.errors import DeadLettersNotRead

REDRIVES = "__dlq.redrive.count"
"""How often the record was redriven. It is a header of the record, so that its next dead letter has it too."""

NO_PROGRESS_S = 60.0
_POLL_S = 0.5
_BATCH = 1_000

_DEFAULTS = {"client.id": "sharegroup-redrive", "log_level": "0"}
_FIXED = {
    "group.id": "sharegroup-redrive",  # librdkafka wants one to assign partitions; it is joined by nobody
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "max.poll.interval.ms": "86400000",
    "auto.offset.reset": "earliest",  # retention may go on meanwhile
    "isolation.level": "read_committed",
    "allow.auto.create.topics": "false",
}


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A dead letter. ``partition`` and ``offset`` say where it lies in its topic, ``origin_…`` where its record was."""

    partition: int
    offset: int
    timestamp_ms: int | None
    """When the letter was written, unless its topic has no timestamps."""
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group_id: str
    delivery_count: int
    message: str
    disposition: str
    """rejected, delivery_limit or expired; empty, if Kafka's own queue wrote it."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The letter's headers, all of them: the record's and those that begin with ``__dlq.``."""

    @classmethod
    def of(cls, message: Message) -> DeadLetter | None:
        """None for a record that is no dead letter: the headers that name its origin are missing, or wrong."""
        # Of what came from a log, partition and offset are known, and headers are text and bytes: only its stub doubts.
        raw: Any = message
        headers = tuple(raw.headers() or ())
        parsed = parse_headers(headers)
        if parsed is None or not parsed.origin.topic or min(parsed.origin.partition, parsed.origin.offset) < 0:
            return None
        kind, timestamp = raw.timestamp()
        return cls(
            partition=raw.partition(),
            offset=raw.offset(),
            timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
            origin_topic=parsed.origin.topic,
            origin_partition=parsed.origin.partition,
            origin_offset=parsed.origin.offset,
            group_id=parsed.origin.group_id,
            delivery_count=parsed.origin.delivery_count,
            message=parsed.message,
            disposition=parsed.disposition,
            key=raw.key(),
            value=raw.value(),
            headers=headers,
        )

    @property
    def has_record(self) -> bool:
        """False, if only headers were written (errors.deadletterqueue.copy.record.enable=false, or the record could not
        be read or copied): there is nothing to send again."""
        return self.key is not None or self.value is not None or bool(self.record_headers)

    @property
    def record_headers(self) -> tuple[Header, ...]:
        """The record's own headers, without those that make it a dead letter."""
        return record_headers(self.headers)

    @property
    def redrives(self) -> int:
        """How often the record was redriven before."""
        counts = [value for name, value in self.headers if name == REDRIVES]
        return int(counts[-1]) if counts and counts[-1] and counts[-1].isdigit() else 0

    def header(self, name: str) -> list[str]:
        """The values of a header, in order, as text."""
        return [(value or b"").decode("utf-8", "replace") for each, value in self.headers if each == name]


def read_topic(topic: str, partitions: int, kafka_config: Mapping[str, str]) -> Iterator[Message]:
    """The records of a topic that exists, from its start to its end as of now, those of a partition in order.
    ``kafka_config``: librdkafka's, with bootstrap.servers. DeadLettersNotRead."""
    consumer = new_client(Consumer, {**_DEFAULTS, **kafka_config, **_FIXED})
    try:
        yield from _read(consumer, topic, _ends(consumer, topic, partitions))
    except KafkaException as error:
        raise DeadLettersNotRead(topic=topic, reason=error.args[0].str()) from None
    finally:
        consumer.close()


def _ends(consumer: Any, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """Of each partition that has records: the first offset, and the exclusive end."""
    found = {n: consumer.get_watermark_offsets(TopicPartition(topic, n), NO_PROGRESS_S) for n in range(partitions)}
    return {n: (low, high) for n, (low, high) in found.items() if low < high}


def _read(consumer: Any, topic: str, ends: dict[int, tuple[int, int]]) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in ends.items()])
    left, silence, last = set(ends), Silence(), "no answer"
    while left:
        for message in consumer.consume(_BATCH, _POLL_S):
            number, error = message.partition(), message.error()
            if error is None:
                if number in left and message.offset() < ends[number][1]:
                    yield message
                if message.offset() >= ends[number][1] - 1:
                    left.discard(number)
                silence.ends()  # the reader's time is not the broker's
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(number)
            elif error.fatal() or error.code() in _FOR_GOOD:
                raise KafkaException(error)
            else:
                last = error.str()
        if left and silence.lasts_s() > NO_PROGRESS_S:
            raise DeadLettersNotRead(topic=topic, reason=f"nothing came for {NO_PROGRESS_S:.0f} s; the last: {last}")


_FOR_GOOD = UNKNOWN_TOPIC | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._AUTO_OFFSET_RESET,
}
