"""Reads offset ranges with one consumer, whose records are Python's messages: :class:`Reader`. Its promises are those
of :mod:`share_source.executor.task_reader`."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from coordinator.kafka.damaged_batch import ASKING, DAMAGED, INVALID_HEADERS, READINGS, Damage, end_of_batch
from coordinator.kafka.librdkafka import NO_ANSWER, Silence, new_client
from coordinator.protocol.errors import BrokerSecurityFailed
from coordinator.protocol.repeated_lines import Outage
from share_source.errors import ReadDenied, ReadFailed, ReadTimeout, RecordsDamaged, RecordsGone
from share_source.executor.consumers import (
    MISSING_TOPIC,
    READ_THROUGH_RECORDS,
    FetchEvent,
    FetchPosition,
    KeptConsumer,
    client_config,
    next_offset,
)
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_cursor import Key, RangeCursor, Run
from share_source.executor.record_batches import timestamps_of

logger = logging.getLogger(__name__)

MISSING_TOPIC_PAUSES_S = (0.0, 0.3, 0.7)
"""Pauses, in seconds, before each request for a missing partition: a broker may not know a new topic yet."""
_SLICE_S = 0.5
"""One wait in librdkafka lasts this many seconds, since signals do not interrupt it."""

SILENT_S = 5.0
"""A task logs that it waits after this many seconds without a record."""
RENEW_S = 20.0
"""A task makes a new client after this many seconds without a record: a client that lost its brokers for a while does
not always fetch again (docs/trust/facts.md)."""
REFUSED_S = 15.0
"""A client that the brokers refuse retries for this many seconds: the broker may be shutting down."""
_outage = Outage(logger, "sharegroup, a task's records", ", reading again for as long as its timeout says")

_RESTART = (
    "Restart the query: before the batch is replayed, exactly these records are given up by name (rejected, with a "
    "dead letter where the group has them), and all others are delivered."
)
_BESIDE = "These records are given up by name, and all others are delivered."
_MISSING_OFFSETS = frozenset(
    (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)
)


Built = TypeVar("Built", covariant=True)


class Batches(Protocol[Built]):
    """Collects the records of a task, with the methods of :class:`~share_source.executor.record_batches.Rows`."""

    @property
    def room(self) -> int: ...
    def __len__(self) -> int: ...
    def build(self) -> Built: ...


class Collector(Batches[Built], Protocol[Built]):
    """Collects messages: :class:`~share_source.executor.record_batches.Rows`, or a ShareConsumer's collection."""

    needs_timestamps: bool

    def add(self, key: Key, messages: list[Message], runs: list[Run], timestamps: list[int]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """The ranges of one task, and how to read them. ``fail_on_damage``: whether a damaged batch fails the task; else
    the reader skips it. ``group_id`` is for the log. Picklable; ``repr`` shows no configuration."""

    partitions: tuple[PartitionRanges, ...]
    kafka_config: dict[str, Any] = field(repr=False)
    group_id: str = ""
    isolation_level: str = "read_uncommitted"
    include_headers: bool = False
    fail_on_data_loss: bool = True
    fail_on_damage: bool = True
    poll_timeout_ms: int = 120_000


class Reader:
    """Reads the ranges of several partitions with one consumer."""

    def __init__(self, task: ReadTask, consumer: KeptConsumer, cursors: list[RangeCursor]) -> None:
        self.consumer = consumer
        self._task = task
        self._cursors = {cursor.key: cursor for cursor in cursors}
        self._open = dict(self._cursors)
        self._ended: set[Key] = set()
        """Partitions whose broker has reported the end of the log."""
        self.lost: dict[Key, list[tuple[int, int]]] = {}
        """Offsets that the log lost before the reader came to them, if that does not fail the task."""
        self.given_up: dict[Key, list[tuple[int, int]]] = {}
        """Offsets that the brokers did not send in time."""
        self.damaged: dict[Key, list[Damage]] = {}
        """Offsets of damaged batches, if these do not fail the task."""
        self._readings: dict[tuple[Key, int], int] = {}
        self._came = False
        self._until_s = inf
        """After this monotonic time, damaged batches are no longer examined."""
        self._silence = Silence()
        self._of_this_client = Silence()

    def drain(self, rows: Batches[Built]) -> Iterator[Built]:
        """Read all ranges to their end. Yields full batches; the remaining records stay in ``rows``."""
        self.begin(rows)
        while self._open:
            if not rows.room:
                yield rows.build()
                self._silence.ends()  # do not count the time that Spark took
            self._read_more(rows)

    def pass_through(self, rows: Any, most_bytes: int, until_s: float) -> int:
        """Read without keeping records until the ranges end, ``most_bytes`` are read, or the monotonic clock reaches
        ``until_s``. The rest is ``given_up``. Returns how many bytes may still be read."""
        self._until_s = until_s
        self.begin(rows)
        while self._open and most_bytes > 0 and time.monotonic() < until_s:
            if not rows.room:
                most_bytes -= rows.build().nbytes
                self._silence.ends()
            self._read_more(rows)
        if self._open:
            self.give_up()
        return most_bytes

    def begin(self, rows: Any) -> None:
        """Take the records that the consumer has prefetched."""
        self._silence.ends()
        self._of_this_client.ends()
        self.consumer.refused = ""  # the reason may be that of an earlier task
        self._take_held(rows)

    @property
    def done(self) -> bool:
        return not self._open

    @property
    def has_begun(self) -> bool:
        return any(cursor.begun for cursor in self._cursors.values())

    @property
    def others_answer(self) -> bool:
        """Whether a broker answers that leads none of the partitions still to be read."""
        return self.consumer.another_broker_answers(self._open, _SLICE_S)

    @property
    def left(self) -> dict[Key, int]:
        """The next offset of each partition that is not read to its end."""
        return {key: cursor.position for key, cursor in self._open.items()}

    def read_on(self, rows: Batches[Any], until_s: float = inf) -> bool:
        """Read until two waits in a row bring nothing, all is read, or the monotonic clock has reached ``until_s`` and
        something came. Returns whether anything came."""
        came, in_vain = False, 0
        while self._open and in_vain < 2 and not (came and time.monotonic() >= until_s):
            if not rows.room:
                rows.build()
            self._came = False
            self._read_more(rows)
            came, in_vain = came or self._came, 0 if self._came else in_vain + 1
        return came

    def give_up(self) -> None:
        """Stop reading. The rest of the ranges is ``given_up``."""
        self.stop_waiting()
        for key, cursor in self._open.items():
            self.given_up[key] = cursor.lose(cursor.last + 1)
        self._open.clear()

    def stop_waiting(self) -> None:
        """Tell the outage log that nobody waits for the rest any more."""
        for cursor in self._open.values():
            _outage.forget(_label(cursor))

    def _read_more(self, rows: Any) -> None:
        if min(self._silence.lasts_s(), self._of_this_client.lasts_s()) > RENEW_S and not self.is_answered:
            self._renew()
        self._read_on(rows)

    @property
    def is_answered(self) -> bool:
        """Whether the brokers answer the client, with a refusal or at the log's end: a new client would get no more."""
        return bool(self.consumer.refused) or self._ended.issuperset(self._open)

    def _renew(self, why: str = f"No record came for {RENEW_S:.0f} s") -> None:
        """Continue with a new client, where the old one stopped."""
        stuck = self.consumer
        logger.info("%s: reading on with a new client instead of %r", why, stuck)
        self.consumer = type(stuck)(stuck.config)
        self.consumer.last_error = stuck.last_error
        self.consumer.position(positions_of(list(self._open.values())))
        self._of_this_client.ends()
        close_stuck(stuck)

    def _take_held(self, rows: Any) -> None:
        for key, cursor in self._cursors.items():
            position = self.consumer.positions[key]
            held, position.held, position.held_bytes = position.held, [], 0
            if held:
                self._take(cursor, held, rows, None)
            self._seen(cursor, position.seen)

    def _read_on(self, rows: Any) -> None:
        unread = sum(cursor.last - cursor.position + 1 for cursor in self._open.values())
        messages, timestamps, events = self.consumer.fetch(
            min(rows.room, unread), self._wait_s(), timestamps=rows.needs_timestamps
        )
        damaged, events = _without_damage(events)
        if damaged:
            messages, timestamps = [m for m in messages if not _is_behind(m, damaged)], []
        for key, of_key in self.consumer.by_partition(messages):
            if cursor := self._cursors.get(key):
                self._take(cursor, of_key, rows, timestamps if of_key is messages and timestamps else None)
                self._seen(cursor, next_offset(of_key))
        for event in (*events, *damaged.values()):
            self._handle(event)
        if self.consumer.misses_topic:
            self._check_topics()

    def _take(
        self, cursor: RangeCursor, messages: list[Message], rows: Collector[Any], timestamps: list[int] | None
    ) -> None:
        self._ended.discard(cursor.key)
        picked, runs, beyond = cursor.take(messages)
        if picked:
            if rows.needs_timestamps and (timestamps is None or picked is not messages):
                timestamps = timestamps_of(picked)
            rows.add(cursor.key, picked, runs, timestamps or [])
        if beyond and (position := self.consumer.positions.get(cursor.key)):
            position.hold(beyond)

    def _seen(self, cursor: RangeCursor, end: int) -> None:
        """Everything below ``end`` was fetched."""
        position = self.consumer.positions.get(cursor.key)
        if position is None:
            return  # the consumer left the partition, since it held enough of it
        position.seen = max(position.seen, end)
        if cursor.key in self._open:
            self._came |= self._silence.came(cursor.key, end)
            _outage.answered(_label(cursor))
            cursor.reached(min(position.seen, cursor.last + 1))
            position.start = cursor.position
            if cursor.done:
                del self._open[cursor.key]
            elif cursor.wanted - position.seen > widest_hole():
                self.consumer.move(cursor.key, cursor.fetch_position)
        elif position.is_full:
            self.consumer.leave(cursor.key)

    def _handle(self, event: FetchEvent) -> None:
        error, topic, partition, offset = event
        affected = [
            cursor for cursor in self._cursors.values() if cursor.topic == topic and partition in (cursor.partition, -1)
        ]
        code = error.code()
        if code in DAMAGED:
            for cursor in affected:
                self._check_damage(cursor, event)
        elif code == KafkaError._PARTITION_EOF:
            self.consumer.last_error = error.str()
            for cursor in affected:
                self._ended.add(cursor.key)
                if cursor.key in self._open:  # a broker answers, maybe a new leader whose log's end is still to rise
                    self._came = True
                    self._silence.ends()
                self._seen(cursor, offset)
        elif code in _MISSING_OFFSETS:
            for cursor in affected:
                self._check_log_bounds(cursor, error.str())
        elif code in MISSING_TOPIC:
            self.consumer.misses_topic = True
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise ReadDenied(topic=topic, reason=error.str())
        elif error.fatal() or (affected and not error.retriable() and code not in NO_ANSWER):
            raise ReadFailed(topic=topic, partition=partition, offset=offset, reason=error.str())
        else:
            self.consumer.last_error = error.str()

    def _check_topics(self) -> None:
        """Count the ranges of missing topics as lost. librdkafka has reported a missing topic without its name."""
        self.consumer.misses_topic = False
        for cursor in list(self._cursors.values()):
            try:
                if self._exists(cursor):
                    continue
            except KafkaException as error:
                self.consumer.last_error = error.args[0].str()
                continue
            self._lose(cursor, cursor.last + 1, "the topic does not exist")
            self.consumer.leave(cursor.key)

    def _exists(self, cursor: RangeCursor) -> bool:
        """Whether the partition exists. Asks several times, since a broker may not know a new topic yet."""
        for pause_s in MISSING_TOPIC_PAUSES_S:
            time.sleep(pause_s)
            if self.consumer.exists(cursor.key, max(self._wait_s(), 1.0)):
                return True
        return False

    def _check_log_bounds(self, cursor: RangeCursor, reason: str) -> None:
        """Count offsets outside of the log as lost, since the log begins later or ends earlier. Then position the
        consumer again: it has stopped."""
        if cursor.key not in self._open:
            self.consumer.leave(cursor.key)
            return
        try:
            low, high = self.consumer.watermarks(cursor.key, max(self._wait_s(), 1.0))
        except KafkaException as error:
            self.consumer.last_error = error.args[0].str()
        else:
            end = low if cursor.wanted < low else cursor.last + 1 if cursor.wanted > high else cursor.wanted
            self._lose(cursor, end, f"the log has offsets {low} to {high - 1} now")
        if cursor.done:
            self.consumer.leave(cursor.key)
        else:
            self.consumer.move(cursor.key, cursor.fetch_position)

    def _check_damage(self, cursor: RangeCursor, event: FetchEvent) -> None:
        """Read a damaged batch again, with a new client. At the last attempt find the batch's end, and continue after
        it. Raises RecordsDamaged with ``fail_on_damage``."""
        reason = event.error.str()
        self.consumer.last_error = reason
        if cursor.key not in self._open:
            self.consumer.leave(cursor.key)
            return
        try:
            _, high = self.consumer.watermarks(cursor.key, max(self._wait_s(), 1.0))
        except KafkaException as error:
            self.consumer.last_error = error.args[0].str()
            self.consumer.move(cursor.key, cursor.fetch_position)
            return
        first = event.offset if 0 <= event.offset < high else cursor.wanted
        cursor.reached(min(first, cursor.last + 1))
        if cursor.done:
            self._pass(cursor)
            return
        readings = self._readings[cursor.key, first] = self._readings.get((cursor.key, first), 0) + 1
        if readings < READINGS:
            self._renew(f"{_label(cursor)}, offset {first}: {reason}")
        elif (end := self._end_of(cursor, event, first, high)) is None:
            self.consumer.move(cursor.key, cursor.fetch_position)
        else:
            self._pass_damaged(cursor, Damage(first, end - 1, event.error.code(), reason))

    def _end_of(self, cursor: RangeCursor, event: FetchEvent, first: int, high: int) -> int | None:
        """Returns the offset after the damaged batch; None if a broker does not answer."""
        if event.error.code() == INVALID_HEADERS:
            return first + 1
        config = {**dict(client_config(self._task.kafka_config, self._task.isolation_level)), **ASKING}
        of_batch = cursor.key, max(first, cursor.wanted), event.offset, high
        return end_of_batch(lambda: new_client(Consumer, config), *of_batch, self._until_s)

    def _pass_damaged(self, cursor: RangeCursor, damage: Damage) -> None:
        """Skip a damaged batch. Raises RecordsDamaged with ``fail_on_damage``."""
        parts = cursor.lose(damage.last + 1)
        self._silence.ends()
        self._came = True
        if parts:
            at = {"topic": cursor.topic, "partition": cursor.partition, "first": damage.first, "last": damage.last}
            then = _RESTART if self._task.fail_on_damage else _BESIDE
            damaged = RecordsDamaged(**at, readings=READINGS, reason=damage.reason, then=then)
            if self._task.fail_on_damage:
                raise damaged
            of_key = self.damaged.setdefault(cursor.key, [])
            of_key += [Damage(first, last, damage.code, damage.reason) for first, last in parts]
            logger.warning("%s", damaged)
        if cursor.done:
            self._pass(cursor)
        else:
            self.consumer.move(cursor.key, cursor.fetch_position)

    def _pass(self, cursor: RangeCursor) -> None:
        """Close a partition whose ranges are read, and whose consumer stands before a damaged batch."""
        del self._open[cursor.key]
        _outage.forget(_label(cursor))
        self.consumer.leave(cursor.key)

    def _lose(self, cursor: RangeCursor, end: int, reason: str) -> None:
        """Count the unread offsets below ``end`` as lost. Raises RecordsGone with ``fail_on_data_loss``."""
        lost = cursor.lose(end)
        if cursor.done:
            self._open.pop(cursor.key, None)
            _outage.forget(_label(cursor))
        if not lost:
            return
        at = {"topic": cursor.topic, "partition": cursor.partition, "first": lost[0][0], "last": lost[-1][1]}
        gone = RecordsGone(**at, count=sum(last - first + 1 for first, last in lost), reason=reason)
        if self._task.fail_on_data_loss:
            raise gone
        self.lost.setdefault(cursor.key, []).extend(lost)
        first_sentence = str(gone).partition(" They were removed")[0]  # the rest says how to go on, as this task does
        logger.warning("%s The batch goes on without them (failOnDataLoss=false)", first_sentence)

    def _wait_s(self) -> float:
        """Returns how long the next wait for a record may take, in seconds.

        Raises:
            ReadTimeout: no record came within ``poll_timeout_ms``.
            RecordsGone: that, and a log ends below the records that are still to be read, with failOnDataLoss=true.
            BrokerSecurityFailed: the brokers have refused the client's credentials for REFUSED_S."""
        silent_s = self._silence.lasts_s()
        remaining_s = self._task.poll_timeout_ms / 1000 - silent_s
        if not self._open:
            return min(remaining_s, _SLICE_S)
        late = next(iter(self._open.values()))
        if self.consumer.refused and silent_s > REFUSED_S:
            addresses = self._task.kafka_config["bootstrap.servers"]
            raise BrokerSecurityFailed(addresses=addresses, reason=self.consumer.refused)
        if silent_s > SILENT_S:
            _outage.failed(_label(late), time.monotonic() - silent_s, f"{_label(late)}: {self.consumer.last_error}")
        if remaining_s <= 0:
            if not self._lose_beyond_log_ends():
                at = {"topic": late.topic, "partition": late.partition, "offset": late.wanted, "last": late.last}
                reason = self.consumer.last_error
                raise ReadTimeout(**at, timeout_ms=self._task.poll_timeout_ms, reason=reason)
            self._silence.ends()
            return _SLICE_S
        return min(remaining_s, _SLICE_S)

    def _lose_beyond_log_ends(self) -> bool:
        """Count records beyond the ends of the logs as lost: an unclean leader election shortens a log. Returns whether
        any log ended before its cursor. Raises RecordsGone with failOnDataLoss=true.

        For a while, a new leader's high watermark may be lower than the old leader's, without any loss. That leader
        returns no records, as at the end of a log, but answers the request for the end with OFFSET_NOT_AVAILABLE
        (KIP-207), so no records are given up. Brokers without KIP-207 return the lower end: only the poll timeout
        protects their records, since this is called after it."""
        lost = False
        for cursor in [cursor for key, cursor in self._open.items() if key in self._ended]:
            try:
                low, high = self.consumer.watermarks(cursor.key, SILENT_S)
            except KafkaException as error:
                self.consumer.last_error = error.args[0].str()
                break
            if low <= cursor.wanted >= high:
                self._lose(cursor, cursor.last + 1, f"the log has offsets {low} to {high - 1} now")
                self.consumer.leave(cursor.key)
                lost = True
        return lost


def positions_of(group: list[RangeCursor]) -> dict[Key, FetchPosition]:
    """Returns where the consumer of these ranges begins, by partition."""
    return {cursor.key: cursor.fetch_position for cursor in group}


def close_stuck(consumer: KeptConsumer) -> None:
    """Close a client in a thread of its own, since closing may never end."""
    threading.Thread(target=consumer.close, name="sharegroup-stuck-client", daemon=True).start()


def _without_damage(events: list[FetchEvent]) -> tuple[dict[Key, FetchEvent], list[FetchEvent]]:
    """Returns the first damaged batch of each partition, and the other events, except those after such a batch."""
    damaged: dict[Key, FetchEvent] = {}
    others = []
    for event in events:
        key = event.topic, event.partition
        if key not in damaged and event.error.code() in DAMAGED:
            damaged[key] = event
        elif key not in damaged:
            others.append(event)
    return damaged, others


def _is_behind(message: Message, damaged: dict[Key, FetchEvent]) -> bool:
    """Whether a message is from a damaged batch, or comes after it in the log."""
    event = damaged.get((message.topic() or "", message.partition() or 0))
    return event is not None and (message.offset() or 0) >= event.offset


def widest_hole() -> int:
    """Gaps of up to this many offsets between two ranges are read through; a wider one moves the consumer."""
    return READ_THROUGH_RECORDS


def _label(cursor: RangeCursor) -> str:
    return f"{cursor.topic}-{cursor.partition}"
