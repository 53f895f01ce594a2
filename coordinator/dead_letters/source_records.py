"""Reads source records: the records at given offsets of a partition, which dead letters copy.

Rule: each requested offset gets one answer, in order: its record, or the reason why there is none. An unreachable
broker is never such a reason. The reader knows offsets only, so check beforehand that the topic still has its id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordinator.dead_letters.record_format import Header
from coordinator.kafka.damaged_batch import ASKING, DAMAGED, READINGS, end_of_batch
from coordinator.kafka.librdkafka import BY_OFFSET, IN_BULK, READING, UNKNOWN_TOPIC, Silence, new_client
from coordinator.kafka.record_headers import headers_of
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused

STALL_S = 15.0
"""A read fails after this many seconds without a record."""
READ_THROUGH_RECORDS = 10_000
"""A gap of up to this many offsets is read through: a seek costs as much."""
BATCH_RECORDS = 2_000
_POLL_S = 0.1  # a poll waits for this many seconds until it has all wanted records

_DEFAULTS = {**READING, "client.id": "sharegroup", "fetch.error.backoff.ms": "10"}
_DENSE = {**IN_BULK, "queued.max.messages.kbytes": "16384"}
# For scattered records: what is fetched beyond a record is useless.
_SPARSE = {"fetch.message.max.bytes": str(1 << 16), "queued.min.messages": "1", "queued.max.messages.kbytes": "64"}

GONE_OFFSETS = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION))
"""Errors of a consumer without a reset policy for an offset that is not in the log."""
_REFUSED = frozenset(
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.INVALID_MSG)
)
"""Errors that a retry does not correct: missing permissions."""


class AbsenceReason(Enum):
    """The reason why there is no record at an offset."""

    GONE = "below the log's start, or the topic is not there"
    NEVER = "inside the log, which has none there: compaction, a transaction's marker, an aborted batch"
    DAMAGED = "inside a record batch that can't be read"
    PAST_END = "at or past the log's end: it is shorter than it was, or not all of it can be seen yet"


class SourceRecord(NamedTuple):
    """A record of the log; ``headers`` in order."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


class Absent(NamedTuple):
    """The answer for an offset without a record."""

    offset: int
    why: AbsenceReason


class SourceRecordReader:
    """Reads source records, for one thread at a time. It keeps its connections until it is closed."""

    def __init__(
        self,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str],
        *,
        read_committed: bool = False,
        stall_s: float = STALL_S,
    ) -> None:
        """Connects nowhere yet. ``read_committed``: the isolation level of the group that got the records."""
        self._addresses = bootstrap_servers
        level = "read_committed" if read_committed else "read_uncommitted"
        self._config = {**_DEFAULTS, **kafka_config, **BY_OFFSET, "isolation.level": level}
        self._config["bootstrap.servers"] = bootstrap_servers
        self.stall_s = stall_s
        self._consumers: dict[bool, Consumer] = {}

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[SourceRecord | Absent]:
        """Yields one answer for each of the offsets, which are ascending and differ.

        Raises:
            BrokerNotReachable: no record came for ``stall_s``; a retry may help.
            BrokerRefused: a permission is missing, or a record can't be read; a retry does not help."""
        if not offsets:
            return
        is_dense = (offsets[-1] - offsets[0] + 1) / len(offsets) <= READ_THROUGH_RECORDS / 10
        try:
            yield from _Reading(self, topic, partition, offsets, is_dense=is_dense).run()
        except BaseException:
            self.drop_consumer(is_dense)
            raise
        self.consumer(is_dense).unassign()

    def close(self) -> None:
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            consumer.close()

    def not_reachable(self, reason: str) -> BrokerNotReachable:
        return BrokerNotReachable(addresses=self._addresses, timeout_ms=int(self.stall_s * 1000), reason=reason)

    def refused(self, topic: str, error: KafkaError) -> BrokerRefused:
        return BrokerRefused(
            addresses=self._addresses, what=f"read the originals of dead letters in {topic}", reason=error.name()
        )

    def asking_consumer(self) -> Consumer:
        asking: Consumer = new_client(Consumer, {**self._config, **_SPARSE, **ASKING})
        return asking

    def drop_consumer(self, is_dense: bool) -> None:
        if (consumer := self._consumers.pop(is_dense, None)) is not None:
            consumer.close()

    def consumer(self, is_dense: bool) -> Consumer:
        if is_dense not in self._consumers:
            self._consumers[is_dense] = new_client(Consumer, {**self._config, **(_DENSE if is_dense else _SPARSE)})
        return self._consumers[is_dense]


class _Reading:
    """One pass over the offsets of one partition."""

    def __init__(
        self, reader: SourceRecordReader, topic: str, partition: int, offsets: Sequence[int], *, is_dense: bool
    ) -> None:
        self._reader = reader
        self._consumer = reader.consumer(is_dense)
        self._topic, self._partition = topic, partition
        self._offsets = offsets
        self._is_dense = is_dense
        self._seen = -1  # the offset of the last record read; at first, the offset before the first wanted one
        self._next = 0  # the first of the offsets that has no answer yet
        self._silence = Silence()
        self._last_error = "no record came"
        self._readings = 0  # how often the batch of the next wanted offset could not be read

    def run(self) -> Iterator[SourceRecord | Absent]:
        self._assign()
        while self._next < len(self._offsets):
            messages = self._consumer.consume(self._most(), _POLL_S)
            before = self._next
            for message in messages:
                error = message.error()
                answers = self._answers(message) if error is None else self._answers_to_error(message, error)
                yield from answers
                is_damaged = error is not None and error.code() in DAMAGED
                if self._next == len(self._offsets) or is_damaged or self._moved(message):
                    break  # the rest of the messages is not wanted
            if self._next > before:
                self._silence.ends()
            elif self._silence.lasts_s() >= self._reader.stall_s:
                self._check_topic()
                yield from self._absent_below(self._offsets[-1] + 1, AbsenceReason.GONE)

    # --- messages

    def _answers(self, message: Message) -> Iterator[SourceRecord | Absent]:
        """Yield the answers that follow from a record: the log has no record at the wanted offsets below this one."""
        offset = self._seen = _number(message.offset())
        self._silence.came((self._topic, self._partition), offset + 1)
        yield from self._absent_below(offset, AbsenceReason.NEVER)
        if self._next < len(self._offsets) and self._offsets[self._next] == offset:
            self._next += 1
            headers = tuple(headers_of(message) or ())
            yield SourceRecord(offset, message.key(), message.value(), headers, message.timestamp()[1])

    def _answers_to_error(self, message: Message, error: KafkaError) -> Iterator[Absent]:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            end = _number(message.offset())
            yield from self._absent_below(end, AbsenceReason.NEVER)
            yield from self._absent_below(self._offsets[-1] + 1, AbsenceReason.PAST_END)
        elif code in GONE_OFFSETS:
            yield from self._out_of_range()
        elif code in UNKNOWN_TOPIC:
            yield from self._absent_below(self._offsets[-1] + 1, AbsenceReason.GONE)
        elif code in _REFUSED:
            raise self._reader.refused(self._topic, error)
        elif code in DAMAGED:
            yield from self._damaged(_number(message.offset()), error)
        else:
            self._last_error = error.name()

    def _damaged(self, first: int, error: KafkaError) -> Iterator[Absent]:
        """Read a batch that failed again with a new client, from the next wanted offset on. (The old one may begin at
        the log's start.) That offset is in the batch if it can't be read after READINGS tries; else it lies after the
        batch. ``first``: the batch's first offset, which the error names."""
        self._last_error = error.name()
        was_asked = self._seen == self._offsets[self._next] - 1
        self._readings = self._readings + 1 if was_asked else 0
        if self._readings >= READINGS:
            self._readings = 0
            yield from self._absent_below(self._end_of_batch(first), AbsenceReason.DAMAGED)
        self._reader.drop_consumer(self._is_dense)
        self._consumer = self._reader.consumer(self._is_dense)
        if self._next < len(self._offsets):
            self._assign()

    def _end_of_batch(self, first: int) -> int:
        """Returns the end of the batch that has the next wanted offset, but no further than offsets are wanted. Returns
        the offset after that one if no other offset is wanted, or a broker does not answer."""
        at, where = self._offsets[self._next], (self._topic, self._partition)
        end = None
        if self._next + 1 < len(self._offsets):
            try:
                _, high = self._consumer.get_watermark_offsets(TopicPartition(*where), timeout=self._reader.stall_s)
            except KafkaException as raised:
                raise self._reader.not_reachable(raised.args[0].name()) from None
            end = end_of_batch(self._reader.asking_consumer, where, at, first, min(high, self._offsets[-1] + 1))
        return at + 1 if end is None else max(end, at + 1)

    def _out_of_range(self) -> Iterator[Absent]:
        where = TopicPartition(self._topic, self._partition)
        try:
            low, high = self._consumer.get_watermark_offsets(where, timeout=self._reader.stall_s)
        except KafkaException as raised:
            raise self._reader.not_reachable(raised.args[0].name()) from None
        yield from self._absent_below(low, AbsenceReason.GONE)
        if self._next < len(self._offsets) and self._offsets[self._next] >= high:
            yield from self._absent_below(self._offsets[-1] + 1, AbsenceReason.PAST_END)
        if self._next < len(self._offsets):
            self._assign()

    def _check_topic(self) -> None:
        """Check that the topic or partition does not exist. librdkafka does not report this for an assigned partition.
        Raises BrokerNotReachable or BrokerRefused if it exists, or the broker gives no answer."""
        try:
            found = self._consumer.list_topics(self._topic, self._reader.stall_s).topics[self._topic]
        except KafkaException as raised:
            raise self._reader.not_reachable(raised.args[0].name()) from None
        if found.error is not None and found.error.code() in _REFUSED:
            raise self._reader.refused(self._topic, found.error)
        is_there = found.error is None and self._partition in found.partitions
        if is_there or (found.error is not None and found.error.code() not in UNKNOWN_TOPIC):
            raise self._reader.not_reachable(self._last_error)

    def _absent_below(self, end: int, why: AbsenceReason) -> Iterator[Absent]:
        while self._next < len(self._offsets) and self._offsets[self._next] < end:
            self._next += 1
            yield Absent(self._offsets[self._next - 1], why)

    # --- position

    def _most(self) -> int:
        """The largest number of records up to the next wanted one or, where they lie densely, up to the last one."""
        upto = self._offsets[-1] if self._is_dense else self._offsets[self._next]
        return max(1, min(BATCH_RECORDS, upto - self._seen))

    def _assign(self) -> None:
        self._seen = self._offsets[self._next] - 1
        self._consumer.assign([TopicPartition(self._topic, self._partition, self._offsets[self._next])])

    def _moved(self, message: Message) -> bool:
        """Whether the reader seeks over a large gap. If so, the records that were fetched before are useless."""
        if message.error() is not None:
            return False
        wanted = self._offsets[self._next]
        if wanted - _number(message.offset()) <= READ_THROUGH_RECORDS:
            return False
        self._seen = wanted - 1
        try:
            self._consumer.seek(TopicPartition(self._topic, self._partition, wanted))
        except KafkaException as raised:
            raise self._reader.not_reachable(raised.args[0].name()) from None
        return True


def _number(offset: int | None) -> int:
    return -1 if offset is None else offset
