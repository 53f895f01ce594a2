"""How many records a query asks for, so that a batch has about maxBytesPerTrigger.

The coordinator plans by offsets, and executors can't tell it what they read. So the driver reads a few records of each
plan, and the next request asks for as many records as that mean size allows. Rule: the option limits the records of a
request, as maxOffsetsPerTrigger does, and nothing else: a plan, once acquired, is replayed as it is."""

from __future__ import annotations

import logging
from dataclasses import replace

from coordinator.protocol.errors import ShareGroupError
from share_source.executor.offset_ranges import PartitionRanges, Task
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_batches

logger = logging.getLogger(__name__)

FIRST_RECORDS = 1_000
"""The first request of a process, before any record was read, is for up to this many records."""
SAMPLE_PARTITIONS, SAMPLE_RECORDS = 8, 64
"""The driver reads SAMPLE_RECORDS records of each plan at most, of the partitions that have the most of it."""
SAMPLE_BYTES = 8 << 20
"""The driver stops reading after this many bytes: records this large differ little from their mean."""
_TIMEOUT_MS = 10_000
"""The driver stops reading after this many milliseconds without a record."""
_FETCHING = {"queued.min.messages": "1", "fetch.message.max.bytes": "65536"}
"""librdkafka's properties of a consumer that reads a few records, and prefetches none."""
_COLUMNS = ("key", "value", "headers")


class BatchBytes:
    """The limit of a query's requests. ``most_bytes``: maxBytesPerTrigger, None without it."""

    def __init__(self, most_bytes: int | None) -> None:
        self._most_bytes = most_bytes
        self._mean: float | None = None

    def most(self, most: int | None) -> int | None:
        """Returns the limit of the next request's records. ``most``: the limit by maxOffsetsPerTrigger."""
        if self._most_bytes is None:
            return most
        limit = FIRST_RECORDS if self._mean is None else max(int(self._most_bytes / max(self._mean, 1.0)), 1)
        return limit if most is None else min(limit, most)

    def measure(self, task: ReadTask) -> None:
        """Read a few records of a plan. They count as much as all plans before. A failure is logged, and changes
        nothing: the tasks report why the plan can't be read."""
        if self._most_bytes is None or not (sample := sample_of(task.partitions)):
            return
        config = {**task.kafka_config, **_FETCHING}
        timeout_ms = min(task.poll_timeout_ms, _TIMEOUT_MS)
        task = replace(task, partitions=sample, kafka_config=config, poll_timeout_ms=timeout_ms)
        records = size = 0
        try:
            for batch in read_batches(replace(task, fail_on_data_loss=False, fail_on_damage=False)):
                records += batch.num_rows
                size += sum(batch.column(name).nbytes for name in _COLUMNS if name in batch.schema.names)
                if size >= SAMPLE_BYTES:
                    break
        except ShareGroupError as error:
            logger.warning("maxBytesPerTrigger: the batch's records were not measured: %s", error)
        if records:
            self._mean = size / records if self._mean is None else (self._mean + size / records) / 2


def sample_of(partitions: Task) -> Task:
    """Returns the ranges that the driver reads: the first records of the largest partitions, in proportion."""
    largest = sorted(partitions, key=lambda part: -part.records)[:SAMPLE_PARTITIONS]
    total = sum(part.records for part in largest)
    return tuple(_first(part, max(SAMPLE_RECORDS * part.records // total, 1)) for part in largest if part.records)


def _first(part: PartitionRanges, records: int) -> PartitionRanges:
    ranges = []
    for held in part.ranges:
        if records > 0:
            ranges.append(held._replace(last=min(held.last, held.first + records - 1)))
        records -= held.last - held.first + 1
    return part._replace(ranges=tuple(ranges))
