"""Two features of this process's Spark, tried without a JVM and without brokers: replays, and Connect's foreachBatch.

It works with every Spark that is served, so it imports nothing that one of them lacks. tools/generate_spark_table.py
asks it, in a process for each Spark. `make soak` runs queries on each.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.streaming.readwriter import DataStreamReader as ConnectReader
from pyspark.sql.connect.streaming.readwriter import DataStreamWriter as ConnectWriter
from pyspark.sql.streaming import DataStreamWriter

from pyspark_sharegroup import DefaultSource
from share_sink.decided_rows import _context_of
from share_source.arrow_schema import spark_schema
from share_source.driver.plan_reader import PlanReader, TaskPartition
from share_source.spark_protocol import HAS_ADMISSION_CONTROL
from tests.support.group_driver import GroupDriver
from tests.support.source_driver import OPTIONS, DriverClient, opening

RECORDS, BATCH = 100, 60
FOREACH_BATCH_WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
"""The module with which a server of Connect runs a client's foreachBatch."""


@contextmanager
def process(client: DriverClient) -> Iterator[PlanReader]:
    """The reader that this Spark gets, in a new process of the query, which is killed at the end."""
    with opening(client):
        source = DefaultSource({**OPTIONS, "maxOffsetsPerTrigger": str(BATCH)})
        reader = source.streamReader(spark_schema(include_headers=False))
        assert isinstance(reader, PlanReader), reader
        try:
            yield reader
        finally:
            reader.stop()


def latest(reader: PlanReader, committed: Mapping[str, object]) -> dict[str, object]:
    """The end of the next batch, asked as this Spark asks."""
    if not HAS_ADMISSION_CONTROL:
        return reader.latestOffset()
    return reader.latestOffset(committed, reader.getDefaultReadLimit())


def offsets(reader: PlanReader, start: Mapping[str, object], end: Mapping[str, object]) -> set[int]:
    """The offsets of the batch's tasks. All are of one partition."""
    tasks = [part.task for part in reader.partitions(start, end) if isinstance(part, TaskPartition)]
    ranges = [each for task in tasks for part in task.partitions for each in part.ranges]
    return {offset for first, last, _ in ranges for offset in range(first, last + 1)}


def replays() -> bool:
    """Whether a killed query's batch comes again with the same records, and is completed once it is committed: the
    calls of the default trigger and of processingTime, in this Spark's order (docs/trust/facts.md, S5, S8 and S25)."""
    client = DriverClient(GroupDriver(records=RECORDS))
    with process(client) as reader:
        start = reader.initialOffset()
        end = latest(reader, start)
        first = offsets(reader, start, end)
    with process(client) as reader:
        if not HAS_ADMISSION_CONTROL:
            reader.partitions(end, end)  # so this Spark gives its log's end
        again = offsets(reader, start, end)
        rest = offsets(reader, end, latest(reader, end))
    every = (first, again, rest) == (set(range(BATCH)), set(range(BATCH)), set(range(BATCH, RECORDS)))
    return every and client.group.partition().start_offset == BATCH


def has_processing_time() -> bool:
    """Whether a query can have the trigger processingTime, also in a session of Connect."""
    return all(
        "processingTime" in inspect.signature(each.trigger).parameters for each in (DataStreamWriter, ConnectWriter)
    )


def connects() -> bool:
    """Whether Connect has streams with any format and foreachBatch, and `sharegroup.acknowledge` finds out by itself
    that a session of Connect has no context of Spark. No server is asked."""
    has = hasattr(ConnectReader, "load") and hasattr(ConnectWriter, "foreachBatch") and find_spec(FOREACH_BATCH_WORKER)
    session = SparkSession.__new__(SparkSession)
    return bool(has) and _context_of(session) is None
