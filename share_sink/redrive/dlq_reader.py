"""Reads a dead letter topic from its start to its end, and parses the dead letters.

Rules: reading writes nothing and joins no group. An unreadable record batch is skipped, and its offsets are logged.
Dead letters of Kafka's own dead letter queue are read as well: they have no disposition, and no headers of the record.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition
from tenacity import retry_if_exception, wait_fixed

from coordinator.dead_letters.record_format import EMPTY_RECORD, Header, parse_headers, record_headers
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.kafka.damaged_batch import ASKING, DAMAGED, READINGS, end_of_batch
from coordinator.kafka.librdkafka import BY_OFFSET, OLD_LEADER, READING, UNKNOWN_TOPIC, Silence, new_client
from coordinator.kafka.record_headers import headers_of
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import UnknownTopic
from share_sink.errors import DeadLettersNotRead

logger = logging.getLogger(__name__)

REDRIVES = "__dlq.redrive.count"
"""The header with the number of the record's redrives. The record has it, so its next dead letter has it too."""
REDRIVEN_FROM = "__dlq.redrive.from"
"""The header with the dead letter that a redriven record was sent from, as topic-partition@offset. The record's next
dead letter has it too."""
_MOST_DIGITS = 9
"""A redrive count has up to this many digits: redrive writes no longer one, and Python refuses thousands of digits."""

NO_PROGRESS_S = 60.0
"""Reading fails after this many seconds without a record."""
_POLL_S = 0.5
_BATCH = 1_000

_ONE_RECORD = {"queued.min.messages": "1", "fetch.queue.backoff.ms": "10"}
"""Reads little ahead, and checks a full queue again after 10 ms. With librdkafka's default, a reader of one record
would wait for a second."""
_DEFAULTS = {**READING, "client.id": "sharegroup-redrive"}
_FIXED = {
    **BY_OFFSET,
    "auto.offset.reset": "earliest",  # retention may move the log's start meanwhile
    "isolation.level": "read_committed",
}


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A dead letter. ``partition`` and ``offset``: in the dead letter topic; ``origin_…``: of its record."""

    partition: int
    offset: int
    timestamp_ms: int | None
    """When the dead letter was written; None if the topic has no timestamps."""
    origin_timestamp_ms: int | None = None
    """The record's own timestamp; None if the dead letter does not have it, as from Kafka's own queue."""
    origin_topic: str
    origin_partition: int
    origin_offset: int
    group_id: str
    delivery_count: int
    message: str
    disposition: str
    """rejected, delivery_limit, expired, undecided or ttl; empty if Kafka's own queue wrote the dead letter."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """All headers of the dead letter: the record's, and those with the prefix ``__dlq.``."""

    @classmethod
    def of(cls, message: Message) -> DeadLetter | None:
        """Returns the dead letter in a Kafka record; None if the headers with its origin are missing or wrong."""
        # The stubs allow None for partition and offset, which every record of a log has.
        raw: Any = message
        headers = tuple(headers_of(message) or ())
        parsed = parse_headers(headers)
        if parsed is None or not parsed.origin.topic or min(parsed.origin.partition, parsed.origin.offset) < 0:
            return None
        kind, timestamp = raw.timestamp()
        return cls(
            partition=raw.partition(),
            offset=raw.offset(),
            timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
            origin_timestamp_ms=parsed.timestamp_ms,
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

    def named(self) -> dict[str, Any]:
        """Returns place and content under the names that commands print, and that views have as columns."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "group": self.group_id,
            "origin_topic": self.origin_topic,
            "origin_partition": self.origin_partition,
            "origin_offset": self.origin_offset,
            "origin_timestamp_ms": self.origin_timestamp_ms,
            "delivery_count": self.delivery_count,
            "disposition": self.disposition,
            "message": self.message,
        }

    @property
    def has_record(self) -> bool:
        """Whether the dead letter has its record. With errors.deadletterqueue.copy.record.enable=false, or if the
        record could not be read or copied, it has only headers, and there is nothing to send again."""
        is_copied = self.key is not None or self.value is not None or bool(self.record_headers)
        return is_copied or bool(self.header(EMPTY_RECORD))

    @property
    def record_headers(self) -> tuple[Header, ...]:
        """The record's own headers, without those of the dead letter."""
        return record_headers(self.headers)

    @property
    def redrives(self) -> int:
        """How often the record was redriven before; 0 if the header is no number of up to _MOST_DIGITS digits."""
        counts = [value for name, value in self.headers if name == REDRIVES]
        count = (counts[-1] if counts else None) or b""
        return int(count) if count.isdigit() and len(count) <= _MOST_DIGITS else 0

    def header(self, name: str) -> list[str]:
        """Returns the values of a header, in order, as text."""
        return [(value or b"").decode("utf-8", "replace") for key, value in self.headers if key == name]


def dead_letters(
    topic: str,
    kafka_config: Mapping[str, str],
    *,
    newest: int | None = None,
    watch: Callable[[bool], None] = lambda is_dead_letter: None,
) -> Iterator[DeadLetter]:
    """Yields the dead letters that are in the topic now, and skips other records. ``newest``: only up to this many, the
    newest, of each partition. ``watch`` is called for each record. Raises UnknownTopic, and as :func:`read_topic`."""
    read = read_topic(topic, _partitions_of(topic, kafka_config), kafka_config, newest=newest)
    for message in read:
        found = DeadLetter.of(message)
        watch(found is not None)
        if found is not None:
            yield found


def dead_letter_at(topic: str, partition: int, offset: int, kafka_config: Mapping[str, str]) -> DeadLetter | None:
    """Returns the dead letter at this offset; None if there is none. Raises as :func:`dead_letters`."""
    message = record_at(topic, partition, offset, kafka_config)
    return None if message is None else DeadLetter.of(message)


def record_at(topic: str, partition: int, offset: int, kafka_config: Mapping[str, str]) -> Message | None:
    """Returns the record at this offset of any topic; None if the log has none. Raises as :func:`dead_letters`."""
    if not 0 <= partition < _partitions_of(topic, kafka_config):
        return None
    with _consumer_of(topic, kafka_config, _ONE_RECORD) as consumer:
        low, high = _bounds(consumer, topic, partition)
        if not low <= offset < high:
            return None
        return next(_read(consumer, topic, {partition: (offset, offset + 1)}, _asking(kafka_config), batch=1), None)


@contextmanager
def _consumer_of(topic: str, kafka_config: Mapping[str, str], more: Mapping[str, str]) -> Iterator[Any]:
    """A consumer for a ``with`` block. Raises DeadLettersNotRead for librdkafka's errors within the block."""
    consumer = new_client(Consumer, {**_DEFAULTS, **kafka_config, **_FIXED, **more})
    try:
        yield consumer
    except KafkaException as error:
        raise DeadLettersNotRead(topic=topic, reason=error.args[0].str()) from None
    finally:
        consumer.close()


def _partitions_of(topic: str, kafka_config: Mapping[str, str]) -> int:
    known = cluster_metadata(kafka_config["bootstrap.servers"], kafka_config).topics.get(topic)
    if known is None or known.error is not None:
        raise UnknownTopic(topic=topic, addresses=kafka_config["bootstrap.servers"])
    return len(known.partitions)


def read_topic(
    topic: str,
    partitions: int,
    kafka_config: Mapping[str, str],
    *,
    newest: int | None = None,
    upto: Mapping[int, int] | None = None,
) -> Iterator[Message]:
    """Yields the records of an existing topic, from its start to its end at the time of the call, in order within a
    partition. ``kafka_config``: librdkafka's, with bootstrap.servers. ``newest``: only this many offsets before each
    end. ``upto``: exclusive ends of the partitions, if lower. Raises DeadLettersNotRead if the brokers refuse, or if no
    record came for NO_PROGRESS_S."""
    with _consumer_of(topic, kafka_config, {}) as consumer:
        ends = _ends(consumer, topic, partitions)
        _say_open(topic, partitions, ends, kafka_config)
        if newest is not None:
            ends = {number: (max(low, high - newest), high) for number, (low, high) in ends.items()}
        if upto is not None:
            cut = {number: (low, min(high, upto.get(number, 0))) for number, (low, high) in ends.items()}
            ends = {number: (low, high) for number, (low, high) in cut.items() if low < high}
        yield from _read(consumer, topic, ends, _asking(kafka_config))


def _asking(kafka_config: Mapping[str, str]) -> Callable[[], Consumer]:
    return lambda: new_client(Consumer, {**_DEFAULTS, **kafka_config, **_FIXED, **ASKING})


def ends_of(topic: str, partitions: int, kafka_config: Mapping[str, str]) -> dict[int, int]:
    """Returns the current exclusive ends of the partitions that have records. Raises as :func:`read_topic`."""
    with _consumer_of(topic, kafka_config, _ONE_RECORD) as consumer:
        return {number: high for number, (_, high) in _ends(consumer, topic, partitions).items()}


def _ends(consumer: Any, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """Returns the first offset and the exclusive end of each partition that has records."""
    bounds = {n: _bounds(consumer, topic, n) for n in range(partitions)}
    return {n: (low, high) for n, (low, high) in bounds.items() if low < high}


def _bounds(consumer: Any, topic: str, partition: int) -> tuple[int, int]:
    """Returns the first offset and the exclusive end of a partition. Asks again while its leader changes, as just after
    the topic was created."""
    has_old_leader = retry_if_exception(lambda e: isinstance(e, KafkaException) and e.args[0].code() in OLD_LEADER)
    asking = retry_until(NO_PROGRESS_S, wait_fixed(0.1), has_old_leader)
    low, high = asking(consumer.get_watermark_offsets, TopicPartition(topic, partition), NO_PROGRESS_S)
    return low, high


def _next_of(consumer: Any, most: int) -> list[Any]:
    """Returns up to ``most`` messages and errors that have come, or the next one if it comes within _POLL_S. (If asked
    for many, librdkafka waits until all have come, or the time is over.)"""
    first = consumer.consume(1, _POLL_S)
    return [*first, *consumer.consume(most - 1, 0)] if first and most > 1 else list(first)


def _say_open(
    topic: str, partitions: int, ends: Mapping[int, tuple[int, int]], kafka_config: Mapping[str, str]
) -> None:
    """Log each partition with an open transaction: records after the transaction's first record are not read."""
    with _consumer_of(topic, kafka_config, {"isolation.level": "read_uncommitted"}) as beyond:
        for number, (low, high) in _ends(beyond, topic, partitions).items():
            end = ends.get(number, (low, low))[1]
            if end < high:
                text = "%d offsets of %s-%d, from %d on, are not read: a transaction that began there is still open"
                logger.warning(text, high - end, topic, number, end)


class _Damage:
    """The unreadable batches found while the topic is read once."""

    def __init__(
        self, consumer: Any, topic: str, ends: dict[int, tuple[int, int]], make: Callable[[], Consumer]
    ) -> None:
        self._consumer, self._topic, self._ends, self._make = consumer, topic, ends, make
        self._readings: Counter[tuple[int, int]] = Counter()
        self._after: dict[tuple[int, int], int] = {}
        """The offset after each skipped batch. librdkafka may come to such a batch again."""

    def goes_on(self, message: Any) -> bool:
        """Read the message's batch again or, after READINGS times, continue after it. Returns False if nothing of the
        partition is left. Raises DeadLettersNotRead if the batch's end can't be found."""
        number, first = message.partition(), message.offset()
        low, high = self._ends[number]
        self._readings[number, first] += 1
        at = max(first, low) if self._readings[number, first] < READINGS else self._passed(message, high)
        self._consumer.incremental_unassign([TopicPartition(self._topic, number)])
        self._consumer.incremental_assign([TopicPartition(self._topic, number, at)])
        return at < high

    def _passed(self, message: Any, end: int) -> int:
        number, first, reason = message.partition(), message.offset(), message.error().str()
        if (number, first) in self._after:
            return self._after[number, first]
        after = end_of_batch(self._make, (self._topic, number), first, first, end) if 0 <= first < end else None
        if after is None:
            raise DeadLettersNotRead(topic=self._topic, reason=reason)
        logger.warning(
            "the records of %s-%d with the offsets %d to %d can't be read, and are skipped: %s",
            *(self._topic, number, first, after - 1, reason),
        )
        self._after[number, first] = after
        return after


def _read(
    consumer: Any, topic: str, ends: dict[int, tuple[int, int]], make: Callable[[], Consumer], *, batch: int = _BATCH
) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, number, low) for number, (low, _) in ends.items()])
    unread, silence, last_error = set(ends), Silence(), "no answer"
    damage = _Damage(consumer, topic, ends, make)
    while unread:
        behind: set[int] = set()
        for message in _next_of(consumer, batch):
            if message.partition() in behind:
                continue  # what comes after a damaged batch says nothing
            number, error = message.partition(), message.error()
            if error is None:
                (low, high), offset = ends[number], message.offset()
                if number in unread and low <= offset < high and silence.came((topic, number), offset + 1):
                    yield message
                    silence.ends()  # do not count the time that the caller took
                if offset >= high - 1:
                    unread.discard(number)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(number)
            elif error.code() in DAMAGED and number in unread:
                behind.add(number)
                if not damage.goes_on(message):
                    unread.discard(number)
            elif error.fatal() or error.code() in _FATAL:
                raise KafkaException(error)
            else:
                last_error = error.str()
        if unread and silence.lasts_s() > NO_PROGRESS_S:
            raise DeadLettersNotRead(topic=topic, reason=f"no record for {NO_PROGRESS_S:.0f} s: {last_error}")


_FATAL = UNKNOWN_TOPIC | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._AUTO_OFFSET_RESET,
}
