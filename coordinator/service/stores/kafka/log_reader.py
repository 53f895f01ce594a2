"""Reads a partition of the state topic from its beginning, or a known offset, on.

Rule: a read ends only where it was asked to end: behind the last record that had been written by then. One of committed
records waits until each transaction before that is decided; another group's open one holds it up until Kafka ends it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from coordinator.protocol.errors import BrokerSecurityFailed
from coordinator.protocol.librdkafka import is_refused
from coordinator.service.brokers.cluster import EARLIEST, LATEST
from coordinator.service.stores.kafka.state_topic import StateTopic, is_denied
from coordinator.service.stores.store import StoreRefused

AT_ONCE = 1_000
POLL_S = 0.5
STALLED_S = 60.0
OPEN_S = 20.0
"""A transaction of a coordinator that died is over by then, with the default write timeout; and callers still wait."""
PROGRESS_S = 5.0
FETCH_BYTES = 4 * 1024 * 1024
QUEUE_KBYTES = 8 * 1024
"""What lies ready: many partitions may be loaded at once."""

_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.GROUP_AUTHORIZATION_FAILED,  # nothing is asked of the group: it needs no ACL
    }
)

_log = logging.getLogger(__name__)


class ReadBlocked(Exception):
    """A transaction is open from ``offset`` on, and for longer than any of ours."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


class LogReader:
    """One reader of one partition; goes on where it stopped."""

    def __init__(self, topic: StateTopic, partition: int, *, start: int | None = None, committed: bool = True) -> None:
        self._topic, self.partition, self._committed = topic, partition, committed
        self._began = self._earliest()
        if start is not None and start <= self.end():  # else the topic is not the one that it was
            self._began = max(self._began, start)
        self.position = self._began
        """Everything below it was read."""
        self._consumer = Consumer(
            topic.client_config(
                group_id="sharegroup",  # librdkafka wants one to assign partitions; it is joined by nobody
                enable_auto_commit=False,
                enable_partition_eof=True,
                isolation_level="read_committed" if committed else "read_uncommitted",
                auto_offset_reset="earliest",
                fetch_message_max_bytes=FETCH_BYTES,
                queued_max_messages_kbytes=QUEUE_KBYTES,
                fetch_queue_backoff_ms=2,
                fetch_wait_max_ms=20,  # the end is known: a long poll there only waits
                check_crcs=True,
            )
        )
        self._consumer.assign([TopicPartition(topic.name, partition, self.position)])

    def __repr__(self) -> str:
        return f"<LogReader {self._topic.name}-{self.partition} at {self.position}>"

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    @property
    def was_pruned(self) -> bool:
        """Records that this reader was to read have been deleted meanwhile."""
        return self._earliest() > self._began

    def _earliest(self) -> int:
        return self._topic.offset(self.partition, EARLIEST)

    def end(self) -> int:
        """Where the partition ends now, open transactions included."""
        return self._topic.offset(self.partition, LATEST)

    def last_stable(self) -> int:
        """Where the first open transaction begins, or the partition ends."""
        return self._topic.offset(self.partition, LATEST, read_committed=True)

    def read_to(self, end: int) -> Iterator[list[Any]]:
        """Messages up to ``end`` (exclusive) in batches, and perhaps some more. ReadBlocked if a transaction stays
        open, and StoreRefused if no message comes for long for another reason."""
        began = said = moved = time.monotonic()
        first = self.position
        while self.position < end:
            messages = self._consume()
            now = time.monotonic()
            if messages or self.position >= end:
                moved = now
            elif self._committed and now - moved > OPEN_S and (open_at := self.last_stable()) < end:
                raise ReadBlocked(open_at)
            elif now - moved > STALLED_S:
                raise StoreRefused(f"{self!r} stands still before {end}")
            if now - said > PROGRESS_S:
                said = now
                what = (self._topic.name, self.partition, self.position, first, end, now - began)
                _log.info("loading: %s-%d at %d of %d to %d, %.0f s", *what)
            if messages:
                yield messages

    def _consume(self) -> list[Any]:
        message = self._consumer.poll(POLL_S)
        waiting = [] if message is None else [message, *self._consumer.consume(AT_ONCE, 0)]
        records = []
        for message in waiting:
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
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
            elif error.code() not in _PASSING:
                raise StoreRefused(f"{self!r}: {error.name()} {error.str()}")
        return records
