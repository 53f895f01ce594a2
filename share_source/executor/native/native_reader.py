"""Reads the ranges of several partitions with a consumer of the cache whose partitions have queues of their own, and
compiled code takes the records from there. It differs from Python's reader only in how records get into a batch.

Rule: a partition's queue is separated from the client's main queue before the partition is assigned, and for as long as
it is assigned: nobody would read a record on the main queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from share_source.executor.consumers import Config, FetchEvent, KeptConsumer, client_config
from share_source.executor.native import _drain
from share_source.executor.native.native_rows import NativeRows
from share_source.executor.range_cursor import Key, RangeCursor
from share_source.executor.range_reader import Reader, widest_hole

PLUGINS = "plugin.library.paths"
_MAIN_MESSAGES = 100
"""Up to this many messages are taken from the main queue at a time: errors that belong to no partition."""
_SHARED_KBYTES = 4 * 32_768
"""All queues of a consumer of many partitions together hold up to this many kilobytes, as four consumers of one
partition each would."""
_LEAST_KBYTES = 1024


def native_config(kafka_config: Mapping[str, Any], isolation_level: str, partitions: int) -> Config:
    """Returns librdkafka's configuration of a consumer of ``partitions`` partitions, each with a queue of its own. A
    queue's limit falls as the number of partitions grows, in powers of two, so that tasks of slightly different sizes
    share consumers."""
    config = dict(client_config(kafka_config, isolation_level))
    config[PLUGINS] = ";".join(filter(None, (_drain.__file__, kafka_config.get(PLUGINS, ""))))
    queued = "queued.max.messages.kbytes"
    if queued not in kafka_config and partitions > 1:
        share = _SHARED_KBYTES >> (partitions - 1).bit_length()
        config[queued] = str(max(min(share, int(config[queued])), _LEAST_KBYTES))
    return tuple(config.items())


class NativeConsumer(KeptConsumer):
    """One consumer, the queues of its partitions, and its positions on them."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._client = _drain.Client(self._consumer)
        self._queues: dict[Key, _drain.Queue] = {}

    def before_assign(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._queues[key] = self._client.queue(*key)

    def after_unassign(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if queue := self._queues.pop(key, None):
                queue.close()

    def take(self, cursor: RangeCursor, rows: NativeRows, hole: int) -> tuple[int, list[FetchEvent]]:
        """Move a partition's prefetched records to the rows. Returns the offset after the last record, and the event
        that followed, if any."""
        seen = self.positions[cursor.key].seen
        end, event = self._queues[cursor.key].take(
            rows.builder, cursor.packed, cursor.digest, seen, rows.most_records, rows.most_bytes, hole
        )
        if event is None:
            return end, []
        code, text, offset = event
        return end, [FetchEvent(KafkaError(code, text), *cursor.key, offset)]

    def main_events(self) -> list[FetchEvent]:
        """Returns the events that belong to no partition. The client's callbacks run meanwhile. Raises RuntimeError if
        a record is among the events, since nobody would read it."""
        events = []
        for message in self._consumer.consume(_MAIN_MESSAGES, 0):
            error = message.error()
            if error is None:
                raise RuntimeError(f"a record of {message.topic()}-{message.partition()} is on the client's main queue")
            events.append(FetchEvent.of(message, error))
        return events

    def wait(self, timeout_s: float) -> None:
        """Wait until any queue has received something since the last wait."""
        self._client.wait(max(int(timeout_s * 1000), 0))

    def close(self) -> None:
        self._queues.clear()
        self._client.close()
        super().close()


class NativeReader(Reader):
    """A reader that takes the records of one partition after the other, from the queue of each partition."""

    consumer: NativeConsumer

    def _read_on(self, rows: NativeRows) -> None:
        wait_s = self._wait_s()
        events = self.consumer.main_events()
        came = bool(events)
        for event in events:
            self._handle(event)
        for cursor in list(self._open.values()):
            came |= self._take_from(cursor, rows)
        if self.consumer.misses_topic:
            self._check_topics()
        elif not came:
            self.consumer.wait(wait_s)

    def _take_from(self, cursor: RangeCursor, rows: NativeRows) -> bool:
        """Take what a partition's queue has. Returns whether anything came."""
        position = self.consumer.positions.get(cursor.key)
        if not rows.room or position is None or cursor.done:
            return not rows.room
        end, events = self.consumer.take(cursor, rows, widest_hole())
        came = end > position.seen
        if came:
            self._ended.discard(cursor.key)
            self._seen(cursor, end)
        for event in events:
            self._handle(event)
        return came or bool(events)
