"""Reads a partition of the state topic, from its beginning or from a known offset.

Rule: a read ends only at the end that it was given. A read of committed records waits until every transaction before
that end is committed or aborted. So another group's open transaction blocks the read until Kafka ends it. Dead letters
and redriven records are skipped, whatever key they have: a coordinator wrote them for somebody who may not write to the
state topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from coordinator.kafka.damaged_batch import UNREADABLE
from coordinator.kafka.librdkafka import READS_ON, WITHOUT_A_GROUP, is_refused, new_client
from coordinator.kafka.record_headers import is_copy
from coordinator.protocol.errors import BrokerSecurityFailed, StateBatchUnreadable
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka.state_topic import StateTopic, is_denied
from coordinator.service.stores.store import StoreRefused
from coordinator.state_log.foreign_records import ForeignRecords

BATCH_RECORDS = 1_000
POLL_S = 0.5
STALLED_S = 60.0
"""A read fails after this many seconds without a record."""
OPEN_S = 25.0
"""A read waits this many seconds for an open transaction. With the default write timeout Kafka has ended a dead
coordinator's transaction by then: it does so after 10 s, and checks every 10 s. Callers still wait for the answer."""
PROGRESS_S = 5.0
"""A long load logs a line at intervals of this many seconds."""
FETCH_BYTES = 4 * 1024 * 1024
QUEUE_KBYTES = 8 * 1024
"""One reader fetches up to this many kilobytes ahead: few, because many partitions may be loaded at the same time."""

_log = logging.getLogger(__name__)


class ReadBlocked(Exception):
    """A transaction is open since ``offset``, for at least ``open_s`` seconds. ``end``: the end of the blocked read."""

    def __init__(self, offset: int, end: int, open_s: float) -> None:
        super().__init__(offset, end, open_s)
        self.offset, self.end, self.open_s = offset, end, open_s


class LogReader:
    """Reads one partition; each read continues where the last one stopped."""

    def __init__(self, topic: StateTopic, partition: int, *, start: int | None = None, committed: bool = True) -> None:
        self._topic, self.partition, self._committed = topic, partition, committed
        self._began = self._earliest()
        if start is not None and start <= self.end():  # otherwise the topic was deleted and created again
            self._began = max(self._began, start)
        self.position = self._began
        """The offset of the next record to read."""
        self.copies = ForeignRecords()
        """Dead letters and redriven records, which were skipped."""
        self._consumer = new_client(
            Consumer,
            topic.client_config(
                **WITHOUT_A_GROUP,
                enable_partition_eof=True,
                isolation_level="read_committed" if committed else "read_uncommitted",
                auto_offset_reset="earliest",
                fetch_message_max_bytes=FETCH_BYTES,
                queued_max_messages_kbytes=QUEUE_KBYTES,
                fetch_queue_backoff_ms=2,
                fetch_wait_max_ms=20,  # the end is known: a long poll at it would only wait
                check_crcs=True,
            ),
        )
        self._consumer.assign([TopicPartition(topic.name, partition, self.position)])

    def __repr__(self) -> str:
        return f"<LogReader {self._topic.name}-{self.partition} at {self.position}>"

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def was_pruned(self) -> bool:
        """Whether records that this reader was to read have been deleted since it began."""
        return self._earliest() > self._began

    def _earliest(self) -> int:
        return self._topic.offset(self.partition, EARLIEST)

    def end(self) -> int:
        """The offset after the partition's last record, open transactions included."""
        return self._topic.offset(self.partition, LATEST)

    def last_stable(self) -> int:
        """The last stable offset: the first record of an open transaction, or the partition's end."""
        return self._topic.offset(self.partition, LATEST, read_committed=True)

    def read_to(self, end: int) -> Iterator[Any]:
        """Yields the messages up to ``end`` (exclusive), and perhaps some more.

        Raises:
            ReadBlocked: a transaction before ``end`` stays open.
            StateBatchUnreadable: a batch is damaged. It is not skipped: its records may be the last of a group, which
                nothing would miss.
            StoreRefused: no message came for STALLED_S, for another reason."""
        began = logged = moved = time.monotonic()
        first = self.position
        while self.position < end:
            messages = self._consume()
            now = time.monotonic()
            if messages or self.position >= end:
                moved = now
            elif self._committed and now - moved > OPEN_S and (open_at := self.last_stable()) < end:
                raise ReadBlocked(open_at, end, now - moved)
            elif now - moved > STALLED_S:
                raise StoreRefused(f"{self!r}: no record came for {STALLED_S:.0f} s, before {end}")
            if now - logged > PROGRESS_S:
                logged = now
                what = (self._topic.name, self.partition, self.position, first, end, now - began)
                _log.info("loading: %s-%d at offset %d, from %d to %d, for %.0f s", *what)
            yield from messages

    def _consume(self) -> list[Any]:
        message = self._consumer.poll(POLL_S)
        waiting = [] if message is None else [message, *self._consumer.consume(BATCH_RECORDS, 0)]
        records = []
        for message in waiting:
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                if is_copy(message):
                    self.copies.add(offset)
                else:
                    records.append(message)
                self.position = offset + 1
            elif error is None:
                continue
            elif error.code() == KafkaError._PARTITION_EOF:
                self.position = max(self.position, offset or 0)
            elif is_denied(error):
                raise self._topic.denied("read it")
            elif is_refused(error):
                raise BrokerSecurityFailed(addresses=self._topic.bootstrap_servers, reason=error.str())
            elif error.code() in UNREADABLE:
                raise StateBatchUnreadable(
                    topic=self._topic.name, partition=self.partition, offset=offset, reason=error.str()
                )
            elif error.code() not in READS_ON:
                raise StoreRefused(f"{self!r}: {error.name()} {error.str()}")
        return records
