"""A task's offset ranges, read on an executor: from the brokers into Arrow batches.

Promises: exactly the records whose offsets lie in the ranges, once, those of a partition in order, each with its
range's delivery count; the end is found over compaction, transaction markers, aborted batches and the log's end. What
is gone is named, and fails the task or is logged (failOnDataLoss).

A topic deleted and created anew: a kept consumer never goes on from one topic's records to another's (a plan says the
topic's id). Whether the cluster still has that topic is not asked here, since it costs each task a round trip on a
connection of its own: the coordinator compares ids when the plan is used, just before its tasks start.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message

from coordinator.protocol.errors import BrokerSecurityFailed
from coordinator.protocol.librdkafka import Silence
from coordinator.protocol.outage import Outage
from share_source.consumers import (
    GONE_TOPIC,
    READ_THROUGH_RECORDS,
    Event,
    KeptConsumer,
    cache,
    client_config,
    next_offset,
)
from share_source.errors import ReadDenied, ReadFailed, ReadTimeout, RecordsGone
from share_source.offset_ranges import PartitionRanges
from share_source.range_cursor import RangeCursor
from share_source.record_batches import Rows, timestamps_of

logger = logging.getLogger(__name__)

SEPARATE_CONSUMERS = 4
"""A task of up to so many partitions has a consumer for each: it can stop at the end of a range to the record."""
HELD_RECORDS = 10_000
"""So much is held of a partition that is read to its end while others of the same consumer are not."""

GONE_PAUSES_S = (0.0, 0.3, 0.7)
_SLICE_S = 0.5  # a wait in C is not interrupted by signals

SILENT_S = 5.0
"""A task that had no record for so long says so."""
REFUSED_S = 15.0
"""So long a client that the brokers refuse tries again: one of them may have been just about to leave."""
_outage = Outage(logger, "sharegroup, a task's records", ", reading again for as long as its timeout says")

_GONE_OFFSETS = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION))


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """What one task reads, and how. Picklable; ``repr`` shows no configuration."""

    partitions: tuple[PartitionRanges, ...]
    kafka_config: dict[str, str] = field(repr=False)
    isolation_level: str = "read_uncommitted"
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The task's records. Ended early or failed, it keeps no consumer that could stand in a wrong place."""
    cursors = [RangeCursor(part) for part in task.partitions if part.ranges]
    rows = Rows(task.include_headers)
    with _no_collector():
        readers = _take_consumers(task, cursors)
        try:
            for reader in readers:
                yield from reader.drain(rows)
            if len(rows):
                yield rows.build()
        except BaseException:
            for reader in readers:
                reader.consumer.close()
            raise
        for reader in readers:
            cache().give_back(reader.consumer)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of young objects, none in a cycle: the collector would look at each of them, for nothing."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _take_consumers(task: ReadTask, cursors: list[RangeCursor]) -> list[_Reader]:
    """All are positioned up front, so that the later ones fetch while the first is read."""
    config = client_config(task.kafka_config, task.isolation_level)
    groups = [[cursor] for cursor in cursors] if len(cursors) <= SEPARATE_CONSUMERS else [cursors]
    readers: list[_Reader] = []
    try:
        for group in groups:
            consumer = cache().take(config, {cursor.key: cursor.fetch_position for cursor in group})
            readers.append(_Reader(task, consumer, group))
    except BaseException:
        for reader in readers:
            reader.consumer.close()
        raise
    return readers


class _Reader:
    """One consumer, and the ranges to read with it."""

    def __init__(self, task: ReadTask, consumer: KeptConsumer, cursors: list[RangeCursor]) -> None:
        self.consumer = consumer
        self._task = task
        self._cursors = {cursor.key: cursor for cursor in cursors}
        self._open = dict(self._cursors)
        self._silence = Silence()

    def drain(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Read to the end of all ranges; full batches come out, the rest stays in ``rows``."""
        self._silence.ends()
        self.consumer.refused = ""  # what was told an earlier task
        self._take_held(rows)
        while self._open:
            if not rows.room:
                yield rows.build()
                self._silence.ends()  # the time that Spark took is not the broker's
            self._read_on(rows)

    def _take_held(self, rows: Rows) -> None:
        for key, cursor in self._cursors.items():
            at = self.consumer.standings[key]
            held, at.held = at.held, []
            if held:
                self._take(cursor, held, rows, None)
            self._seen(cursor, at.seen)

    def _read_on(self, rows: Rows) -> None:
        left = sum(cursor.last - cursor.position + 1 for cursor in self._open.values())
        messages, timestamps, events = self.consumer.fetch(min(rows.room, left), self._patience_s())
        for key, of_key in self.consumer.by_partition(messages):
            if cursor := self._cursors.get(key):
                self._take(cursor, of_key, rows, timestamps if of_key is messages else None)
                self._seen(cursor, next_offset(of_key))
        for event in events:
            self._handle(event)
        if self.consumer.misses_topic:
            self._find_topics_again()

    def _take(self, cursor: RangeCursor, messages: list[Message], rows: Rows, timestamps: list[int] | None) -> None:
        picked, runs, beyond = cursor.take(messages)
        if picked:
            if timestamps is None or picked is not messages:
                timestamps = timestamps_of(picked)
            rows.add(cursor.key, picked, runs, timestamps)
        if beyond and (at := self.consumer.standings.get(cursor.key)):
            at.held += beyond

    def _seen(self, cursor: RangeCursor, end: int) -> None:
        """All below ``end`` has come."""
        at = self.consumer.standings.get(cursor.key)
        if at is None:
            return  # left before, since enough of it is held
        at.seen = max(at.seen, end)
        if cursor.key in self._open:
            self._silence.ends()
            _outage.answered(_kind(cursor))
            cursor.reached(min(at.seen, cursor.last + 1))
            at.start = cursor.position
            if cursor.done:
                del self._open[cursor.key]
            elif cursor.wanted - at.seen > READ_THROUGH_RECORDS:
                self.consumer.move(cursor.key, cursor.fetch_position)
        elif len(at.held) > HELD_RECORDS:
            self.consumer.leave(cursor.key)

    def _handle(self, event: Event) -> None:
        error, topic, partition, offset = event
        mine = [
            cursor for cursor in self._cursors.values() if cursor.topic == topic and partition in (cursor.partition, -1)
        ]
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self.consumer.last_error = error.str()
            for cursor in mine:
                self._seen(cursor, offset)
        elif code in _GONE_OFFSETS:
            for cursor in mine:
                self._find_log_again(cursor, error.str())
        elif code in GONE_TOPIC:
            self.consumer.misses_topic = True
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise ReadDenied(topic=topic, reason=error.str())
        elif error.fatal() or (mine and not error.retriable()):
            raise ReadFailed(topic=topic, partition=partition, offset=offset, reason=error.str())
        else:
            self.consumer.last_error = error.str()

    def _find_topics_again(self) -> None:
        """The client misses a topic: which of ours is it, and is it really gone?"""
        self.consumer.misses_topic = False
        for cursor in list(self._cursors.values()):
            try:
                if self._exists(cursor):
                    continue
            except KafkaException as error:
                self.consumer.last_error = error.args[0].str()
                continue
            self._lose(cursor, cursor.last + 1, "the topic is not there")
            self.consumer.leave(cursor.key)

    def _exists(self, cursor: RangeCursor) -> bool:
        """Asked more than once before records are given up: a broker may not know a topic yet."""
        for pause_s in GONE_PAUSES_S:
            time.sleep(pause_s)
            if self.consumer.exists(cursor.key, max(self._patience_s(), 1.0)):
                return True
        return False

    def _find_log_again(self, cursor: RangeCursor, reason: str) -> None:
        """The log has no such offset: it starts later, or ends earlier. The consumer has stopped there."""
        if cursor.key not in self._open:
            self.consumer.leave(cursor.key)
            return
        try:
            low, high = self.consumer.watermarks(cursor.key, max(self._patience_s(), 1.0))
        except KafkaException as error:
            self.consumer.last_error = error.args[0].str()
        else:
            end = low if cursor.wanted < low else cursor.last + 1 if cursor.wanted > high else cursor.wanted
            self._lose(cursor, end, f"the log has offsets {low} to {high - 1} now")
        if cursor.done:
            self.consumer.leave(cursor.key)
        else:
            self.consumer.move(cursor.key, cursor.fetch_position)

    def _lose(self, cursor: RangeCursor, end: int, reason: str) -> None:
        """What is below ``end`` and not read yet can't be read any more."""
        lost = cursor.lose(end)
        if cursor.done:
            self._open.pop(cursor.key, None)
        if not lost:
            return
        gone = RecordsGone(
            topic=cursor.topic,
            partition=cursor.partition,
            first=lost[0][0],
            last=lost[-1][1],
            count=sum(last - first + 1 for first, last in lost),
            reason=reason,
        )
        if self._task.fail_on_data_loss:
            raise gone
        logger.warning("%s", gone)

    def _patience_s(self) -> float:
        """How long to wait for the next record, at most; ReadTimeout when it is overdue."""
        silent_s = self._silence.lasts_s()
        left_s = self._task.poll_timeout_ms / 1000 - silent_s
        if not self._open:
            return min(left_s, _SLICE_S)
        late = next(iter(self._open.values()))
        if self.consumer.refused and silent_s > REFUSED_S:
            addresses = self._task.kafka_config["bootstrap.servers"]
            raise BrokerSecurityFailed(addresses=addresses, reason=self.consumer.refused)
        if silent_s > SILENT_S:
            _outage.failed(_kind(late), time.monotonic() - silent_s, f"{_kind(late)}: {self.consumer.last_error}")
        if left_s <= 0:
            raise ReadTimeout(
                topic=late.topic,
                partition=late.partition,
                offset=late.wanted,
                last=late.last,
                timeout_ms=self._task.poll_timeout_ms,
                reason=self.consumer.last_error,
            )
        return min(left_s, _SLICE_S)


def _kind(cursor: RangeCursor) -> str:
    return f"{cursor.topic}-{cursor.partition}"
