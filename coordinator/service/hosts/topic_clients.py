"""Writes records to the topics between hosts, and reads their partitions from a given offset on. :class:`Transport`
also provides the threads and the clock, so that a simulation can replace all of these."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from coordinator.kafka.damaged_batch import UNREADABLE
from coordinator.kafka.librdkafka import READS_ON, WITHOUT_A_GROUP, new_client
from coordinator.protocol.host_records import REQUESTS, Headers
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.hosts.topics import check_configs, ensure, lacking
from coordinator.service.process.clock import now_s
from coordinator.service.stores.kafka.state_topic import StateTopic

POLL_S = 0.1
"""A reader or writer that is to end, or to read another partition, notices it within this many seconds."""
WAITS_MS = 5_000
"""A record that no broker takes within this many milliseconds is dropped; its sender sends another record."""

_log = logging.getLogger(__name__)


class Writer:
    """Writes records without waiting. ``written`` is called with whether a broker has taken the record."""

    def __init__(self, state: StateTopic) -> None:
        config = state.client_config(
            acks=1, linger_ms=0, message_timeout_ms=WAITS_MS, max_in_flight_requests_per_connection=1,
            enable_idempotence="false", topic_metadata_refresh_interval_ms=2_000, allow_auto_create_topics="false",
        )  # fmt: skip
        self._producer = new_client(Producer, config)
        self._once = LogOnce(_log)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="share-host-writer", daemon=True)
        self._thread.start()

    def write(
        self,
        topic: str,
        partition: int,
        key: str,
        headers: Headers,
        body: bytes = b"",
        written: Callable[[bool], None] = lambda ok: None,
    ) -> None:
        """Hand the record to the producer. If the queue is full, the record counts as not written."""
        try:
            self._producer.produce(
                topic, body, key, partition, headers=[*headers], on_delivery=lambda error, _: written(error is None)
            )
        except (BufferError, KafkaException) as error:
            self._once.warn(f"{topic}-{partition}", f"could not write to {topic}-{partition}: {error}")
            written(False)

    def close(self) -> None:
        """Wait up to a second for the last records, and end the thread."""
        self._producer.flush(1.0)
        self._is_closed.set()
        self._thread.join(2 * POLL_S)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._producer.poll(POLL_S)


class Reader:
    """Reads partitions of a topic in a thread of its own, which calls ``on_record`` with each record. It reads records
    of open and aborted transactions too, so that no writer can hold up another one's records. It steps over unreadable
    batches: the host that wrote a request in such a batch sends it again."""

    def __init__(self, state: StateTopic, on_record: Callable[[Message], None], name: str) -> None:
        config = state.client_config(
            **WITHOUT_A_GROUP, auto_offset_reset="earliest", fetch_wait_max_ms=500, fetch_min_bytes=1,
            isolation_level="read_uncommitted",
            topic_metadata_refresh_interval_ms=2_000, fetch_error_backoff_ms=100, fetch_queue_backoff_ms=2,
            queued_max_messages_kbytes=16 * 1024, check_crcs="true",
        )  # fmt: skip
        self._new_consumer = partial(new_client, Consumer, config)
        self._consumer = self._new_consumer()
        self._on_record = on_record
        self._changing = threading.Lock()
        self._positions: dict[tuple[str, int], int] = {}
        self._removed: set[tuple[str, int]] = set()
        self._is_changed = self._is_outdated = False
        self._steps: dict[tuple[str, int], tuple[int, int]] = {}
        self._once = LogOnce(_log)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, from_offsets: Mapping[tuple[str, int], int]) -> None:
        with self._changing:
            self._positions = {**from_offsets, **self._positions}
            # The topics may have been created again since.
            self._is_outdated |= not self._removed.isdisjoint(from_offsets)
            self._is_changed = True

    def remove(self, partitions: set[tuple[str, int]]) -> None:
        with self._changing:
            self._positions = {where: at for where, at in self._positions.items() if where not in partitions}
            self._removed |= partitions
            self._is_changed = True

    def begin_anew(self) -> None:
        """Go on with a new client from the same offsets. A client ignores a topic that was created again if the
        leader's epoch is lower than the epoch that the client knows, as after a broker's restart."""
        with self._changing:
            self._is_outdated = True

    def close(self) -> None:
        self._is_closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join(4 * POLL_S)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._assign()
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            where, offset = (str(message.topic()), message.partition() or 0), message.offset() or 0
            if (error := message.error()) is not None:
                if error.code() in UNREADABLE and offset >= 0:
                    self._step_over(where, offset, error)
                elif error.code() not in READS_ON:
                    self._once.warn(f"{where}", f"reading {where[0]}-{where[1]} failed: {error.str()}")
                continue
            with self._changing:
                if where in self._positions:
                    self._positions[where] = offset + 1
            try:
                self._on_record(message)
            except Exception as raised:  # noqa: BLE001 - one record must not end the reading
                text = f"passed over: {where[0]}-{where[1]} offset {offset}: {type(raised).__name__}"
                self._once.warn(f"{where} record", text)
        self._consumer.close()

    def _step_over(self, where: tuple[str, int], first: int, error: KafkaError) -> None:
        """Continue after the unreadable batch that begins at ``first``. No error names a batch's last offset, so each
        further error of the batch doubles the step. A step may skip records after the batch, but never goes beyond the
        end of the log."""
        before, width = self._steps.get(where, (-1, 0))
        width = max(1, 2 * width) if first == before else 1
        self._steps[where] = first, width
        end = self._consumer.get_watermark_offsets(TopicPartition(*where), cached=True)[1]
        next_offset = max(first + 1, min(first + width, end))
        text = f"passed over: {where[0]}-{where[1]} has a batch at offset {first} that can't be read: {error.str()}"
        self._once.warn(f"{where} batch", text)
        with self._changing:
            if where in self._positions:
                self._positions[where] = next_offset
                self._is_changed = True

    def _assign(self) -> None:
        with self._changing:
            if self._is_outdated:
                self._consumer.close()
                self._consumer = self._new_consumer()
                self._removed.clear()
            if self._is_changed or self._is_outdated:
                self._consumer.assign([TopicPartition(*where, at) for where, at in self._positions.items()])
            self._is_changed = self._is_outdated = False


class Transport:
    """The clients, the threads and the clock with which a process uses the topics between hosts."""

    event = threading.Event
    now_s = staticmethod(now_s)
    any_below = staticmethod(random.randrange)

    def __init__(self, state: Callable[[], StateTopic]) -> None:
        """``state``: returns the state topic, which may be made anew."""
        self._state = state

    def ensure(self, needed: Mapping[str, str]) -> None:
        """Create the missing topics: see :func:`~coordinator.service.hosts.topics.ensure`."""
        ensure(self._state(), needed)

    def lacking(self, needed: Mapping[str, str]) -> list[str]:
        return lacking(self._state(), needed)

    def check_configs(self) -> None:
        check_configs(self._state())

    def has_requests(self) -> bool:
        return bool(self._state().cluster.topics([REQUESTS]))

    def ends(self, partitions: Iterable[TopicAndPartition], timeout_s: float = inf) -> dict[TopicAndPartition, int]:
        return self._state().cluster.offsets(partitions, LATEST, timeout_s=timeout_s)

    def log_end(self, group_id: str) -> int:
        state = self._state()
        return state.offset(state.partition_of(group_id), LATEST)

    def writer(self) -> Writer:
        return Writer(self._state())

    def reader(self, on_record: Callable[[Message], None], name: str) -> Reader:
        return Reader(self._state(), on_record, name)

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def pool(self, most: int, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(most, thread_name_prefix=name)
