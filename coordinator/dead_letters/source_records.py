"""The originals of dead letters, read from their topic: the records at given offsets, many or a few of a partition.

Rule: each offset that was asked for is answered once, in order, with its record or with why there is none; the reader
never says that a record is not there because the broker was away. It goes by offsets only: whether the topic is still
the one that had them is the caller's to know (topic ids).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from coordinator.dead_letters.record_format import Header
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused
from coordinator.protocol.librdkafka import UNKNOWN_TOPIC, Silence, new_client

STALL_S = 15.0
"""So long without anything new, and the log can't be read."""
READ_THROUGH_RECORDS = 10_000
"""A hole up to this wide is read through: moving costs as much."""
AT_ONCE = 2_000
_SLICE_S = 0.1  # so long a poll waits for all that it asked for, though some of it is there

_DEFAULTS = {
    "client.id": "sharegroup",
    "group.id": "sharegroup",  # librdkafka wants one to assign partitions; it is joined by nobody
    "log_level": "0",
    "fetch.queue.backoff.ms": "2",  # 1000 by default: a stall each time that the queue is full
    "fetch.wait.max.ms": "25",
    "log.connection.close": "false",
    "max.poll.interval.ms": "86400000",
}
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",  # what is below the log's start is said, and not mistaken for a hole
    "allow.auto.create.topics": "false",
}
_DENSE = {
    "fetch.message.max.bytes": str(1 << 20),
    "queued.min.messages": "20000",
    "queued.max.messages.kbytes": "16384",
}
# Of scattered records nothing that is fetched beyond them is of use.
_SPARSE = {
    "fetch.message.max.bytes": str(1 << 16),
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "64",
}

GONE_OFFSETS = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION))
"""What a client that has no place to go back to says of an offset that the log does not have."""
_REFUSED = frozenset(
    (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
        KafkaError.INVALID_MSG,
    )
)
"""What waiting does not mend. The log's records may be unreadable, too."""


class AbsenceReason(Enum):
    """Why there is no record at an offset."""

    GONE = "below the log's start, or the topic is not there"
    NEVER = "inside the log, which has none there: compaction, a transaction's marker, an aborted batch"
    PAST_END = "at or past the log's end: it is shorter than it was, or not all of it can be seen yet"


class SourceRecord(NamedTuple):
    """A record as its log has it; ``headers`` in order."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int


class Absent(NamedTuple):
    """There is no record at the offset."""

    offset: int
    why: AbsenceReason


class SourceRecordReader:
    """Reads on one thread at a time; keeps a connection, until it is closed."""

    def __init__(
        self,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str],
        *,
        read_committed: bool = False,
        stall_s: float = STALL_S,
    ) -> None:
        """``read_committed``: as the group that had the records delivered."""
        self._addresses = bootstrap_servers
        level = "read_committed" if read_committed else "read_uncommitted"
        self._config = {**_DEFAULTS, **kafka_config, **_FIXED, "isolation.level": level}
        self._config["bootstrap.servers"] = bootstrap_servers
        self._stall_s = stall_s
        self._consumers: dict[bool, Consumer] = {}

    def __repr__(self) -> str:
        return f"<SourceRecordReader {self._addresses}>"

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[SourceRecord | Absent]:
        """One answer for each of the offsets, which are ascending and differ. BrokerNotReachable if nothing came for
        a while, which may pass; BrokerRefused for what does not (a missing permission, a record that can't be read)."""
        if not offsets:
            return
        is_dense = (offsets[-1] - offsets[0] + 1) / len(offsets) <= READ_THROUGH_RECORDS / 10
        consumer = self._consumer(is_dense)
        try:
            yield from _Reading(self, consumer, topic, partition, offsets, is_dense=is_dense).run()
        except BaseException:
            self._consumers.pop(is_dense, None)  # where it stands, and what it knows, is in doubt
            consumer.close()
            raise
        consumer.unassign()

    def close(self) -> None:
        """Let go of the connections."""
        consumers, self._consumers = self._consumers, {}
        for consumer in consumers.values():
            consumer.close()

    def not_reachable(self, reason: str) -> BrokerNotReachable:
        """The error for a log that can't be read now."""
        return BrokerNotReachable(addresses=self._addresses, timeout_ms=int(self._stall_s * 1000), reason=reason)

    def refused(self, topic: str, error: KafkaError) -> BrokerRefused:
        """The error for one that can't be read at all."""
        return BrokerRefused(
            addresses=self._addresses, what=f"read the originals of dead letters in {topic}", reason=error.name()
        )

    @property
    def stall_s(self) -> float:
        return self._stall_s

    def _consumer(self, is_dense: bool) -> Consumer:
        if is_dense not in self._consumers:
            self._consumers[is_dense] = new_client(Consumer, {**self._config, **(_DENSE if is_dense else _SPARSE)})
        return self._consumers[is_dense]


class _Reading:
    """One pass over the offsets of one partition."""

    def __init__(
        self,
        originals: SourceRecordReader,
        consumer: Consumer,
        topic: str,
        partition: int,
        offsets: Sequence[int],
        *,
        is_dense: bool,
    ) -> None:
        self._originals = originals
        self._consumer = consumer
        self._topic, self._partition = topic, partition
        self._offsets = offsets
        self._is_dense = is_dense
        self._seen = -1  # the last record that came, or what lies below the first that can come
        self._next = 0  # the first of the offsets that has no answer yet
        self._last_error = "no record came"

    def run(self) -> Iterator[SourceRecord | Absent]:
        self._assign()
        silence = Silence()
        while self._next < len(self._offsets):
            messages = self._consumer.consume(self._most(), _SLICE_S)
            before = self._next
            for message in messages:
                error = message.error()
                answers = self._taken(message) if error is None else self._at(message, error)
                yield from answers
                if self._next == len(self._offsets) or self._moved(message):
                    break  # what else came is not wanted
            if self._next > before or any(message.error() is None for message in messages):
                silence.ends()
            elif silence.lasts_s() >= self._originals.stall_s:
                self._check_topic()
                yield from self._absent_below(self._offsets[-1] + 1, AbsenceReason.GONE)

    # --- what came

    def _taken(self, message: Message) -> Iterator[SourceRecord | Absent]:
        """The answers that a record gives: those below it that were asked for are not in the log."""
        offset = self._seen = _number(message.offset())
        yield from self._absent_below(offset, AbsenceReason.NEVER)
        if self._next < len(self._offsets) and self._offsets[self._next] == offset:
            self._next += 1
            yield _original(message)

    def _at(self, message: Message, error: KafkaError) -> Iterator[Absent]:
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
            raise self._originals.refused(self._topic, error)
        else:
            self._last_error = error.name()

    def _out_of_range(self) -> Iterator[Absent]:
        where = TopicPartition(self._topic, self._partition)
        try:
            low, high = self._consumer.get_watermark_offsets(where, timeout=self._originals.stall_s)
        except KafkaException as raised:
            raise self._originals.not_reachable(raised.args[0].name()) from None
        yield from self._absent_below(low, AbsenceReason.GONE)
        if self._next < len(self._offsets) and self._offsets[self._next] >= high:
            yield from self._absent_below(self._offsets[-1] + 1, AbsenceReason.PAST_END)
        if self._next < len(self._offsets):
            self._assign()

    def _check_topic(self) -> None:
        """Return if the topic or partition is not there; librdkafka does not say so of one that it was assigned."""
        try:
            found = self._consumer.list_topics(self._topic, self._originals.stall_s).topics[self._topic]
        except KafkaException as raised:
            raise self._originals.not_reachable(raised.args[0].name()) from None
        if found.error is not None and found.error.code() in _REFUSED:
            raise self._originals.refused(self._topic, found.error)
        is_there = found.error is None and self._partition in found.partitions
        if is_there or (found.error is not None and found.error.code() not in UNKNOWN_TOPIC):
            raise self._originals.not_reachable(self._last_error)

    def _absent_below(self, end: int, why: AbsenceReason) -> Iterator[Absent]:
        while self._next < len(self._offsets) and self._offsets[self._next] < end:
            self._next += 1
            yield Absent(self._offsets[self._next - 1], why)

    # --- where it stands

    def _most(self) -> int:
        """No more than there can be up to the next wanted one, or, where they lie densely, up to the last."""
        upto = self._offsets[-1] if self._is_dense else self._offsets[self._next]
        return max(1, min(AT_ONCE, upto - self._seen))

    def _assign(self) -> None:
        self._seen = self._offsets[self._next] - 1
        self._consumer.assign([TopicPartition(self._topic, self._partition, self._offsets[self._next])])

    def _moved(self, message: Message) -> bool:
        """Over a large hole; then what was fetched before is not wanted."""
        if message.error() is not None:
            return False
        wanted = self._offsets[self._next]
        if wanted - _number(message.offset()) <= READ_THROUGH_RECORDS:
            return False
        self._seen = wanted - 1
        try:
            self._consumer.seek(TopicPartition(self._topic, self._partition, wanted))
        except KafkaException as raised:
            raise self._originals.not_reachable(raised.args[0].name()) from None
        return True


def _original(message: Message) -> SourceRecord:
    headers: Any = message.headers() or ()  # a list of pairs, whatever its type says
    return SourceRecord(
        _number(message.offset()), message.key(), message.value(), tuple(headers), message.timestamp()[1]
    )


def _number(offset: int | None) -> int:
    return -1 if offset is None else offset
