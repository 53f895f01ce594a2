"""Reads a task's offset ranges on an executor: from the brokers into Arrow batches.

Promises: a task reads exactly the records in its ranges, once, those of a partition in order, each with its range's
delivery count. It finds the end of a range also across compaction, transaction markers, aborted batches and the end of
the log. Lost records fail the task with a named error, or are logged (failOnDataLoss).

If a topic was deleted and created again, a cached consumer never continues from the old topic's records to the new
one's, since a plan names the topic's id. The task itself does not ask the cluster for that id, which would cost a round
trip on a new connection: the coordinator compares ids when it starts the plan, just before the tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from coordinator.kafka.damaged_batch import Damage
from share_source.executor.consumers import cache, client_config, no_collector
from share_source.executor.range_cursor import Key, RangeCursor
from share_source.executor.range_reader import Batches, Reader, ReadTask, close_stuck, positions_of
from share_source.executor.reader_choice import is_native
from share_source.executor.record_batches import Rows
from share_spark.log import log_for_query

logger = logging.getLogger(__name__)

SEPARATE_CONSUMERS = 4
"""A task of up to this many partitions has a consumer for each, which can stop at the last record of a range."""


def read_task(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """Yields the task's records as Arrow batches. If the task fails, or the generator is closed early, its consumers
    are closed, so that the cache holds none with a wrong position.

    Raises:
        RecordsGone: the log lost records before the task read them, and ``fail_on_data_loss`` is set.
        RecordsDamaged: a batch can't be read, and ``fail_on_damage`` is set.
        ReadTimeout: no record came within ``poll_timeout_ms``.
        ReadDenied: the brokers refuse access to the topic.
        ReadFailed: reading failed with a permanent error.
        BrokerSecurityFailed: the brokers refuse the client's credentials."""
    log_for_query(group=task.group_id)
    yield from read_batches(task)


def read_batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """As :func:`read_task`, in a process whose log is its own, or names the query already."""
    native = is_native()
    with no_collector(), open_readers(task, native) as readers:
        rows = _rows(task, native)
        for reader in readers:
            yield from reader.drain(rows)
        while len(rows):
            yield rows.build()


def pass_through(task: ReadTask, most_bytes: int, most_s: float) -> dict[Key, list[Damage]]:
    """Read the task without keeping records, until ``most_bytes`` are read or ``most_s`` seconds have passed. Returns
    the unreadable offsets by partition. Raises as :func:`read_task`."""
    native, left, until_s = is_native(), most_bytes, time.monotonic() + most_s
    with no_collector(), open_readers(task, native) as readers:
        rows = _rows(task, native)
        for reader in readers:
            left = reader.pass_through(rows, left, until_s)
        if time.monotonic() >= until_s and any(reader.given_up for reader in readers):
            logger.warning("the scan for damaged records stopped after %.0f s, before the end of the batch", most_s)
        return {key: damaged for reader in readers for key, damaged in reader.damaged.items()}


@contextmanager
def open_readers(task: ReadTask, native: bool) -> Iterator[list[Reader]]:
    """Yields the task's readers. Afterwards their consumers return to the cache, or are closed if the task failed."""
    cursors = [RangeCursor(part) for part in task.partitions if part.ranges]
    readers = _take_consumers(task, cursors, native)
    try:
        yield readers
    except BaseException:
        for reader in readers:
            reader.stop_waiting()
            reader.consumer.close()
        raise
    for reader in readers:
        if reader.given_up:
            close_stuck(reader.consumer)
        else:
            cache().give_back(reader.consumer)


def _take_consumers(task: ReadTask, cursors: list[RangeCursor], native: bool) -> list[Reader]:
    """Take and position all consumers at once, so that the later ones fetch while the first one is read."""
    groups = [[cursor] for cursor in cursors] if len(cursors) <= SEPARATE_CONSUMERS else [cursors]
    readers: list[Reader] = []
    try:
        for group in groups:
            readers.append((native_reader if native else python_reader)(task, group))
    except BaseException:
        for reader in readers:
            reader.consumer.close()
        raise
    return readers


def python_reader(task: ReadTask, group: list[RangeCursor]) -> Reader:
    """Returns a reader whose records are Python's messages."""
    config = client_config(task.kafka_config, task.isolation_level)
    return Reader(task, cache().take(config, positions_of(group)), group)


def native_reader(task: ReadTask, group: list[RangeCursor]) -> Reader:
    """Returns a reader whose records the compiled code takes."""
    from share_source.executor.native.native_reader import NativeConsumer, NativeReader, native_config

    config = native_config(task.kafka_config, task.isolation_level, len(group))
    return NativeReader(task, cache().take(config, positions_of(group), NativeConsumer), group)


def _rows(task: ReadTask, native: bool) -> Batches[pa.RecordBatch]:
    if not native:
        return Rows(task.include_headers, {part.topic: part.digest for part in task.partitions})
    from share_source.executor.native.native_rows import NativeRows

    return NativeRows(task.include_headers)
