"""From messages to Arrow columns, a whole column at a time.

Per record there is only what can't be had otherwise: its value, its key, its timestamp. What is the same for all
(topic, partition, delivery count) is repeated in C; offsets without a gap are counted up in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from coordinator.protocol.arrow_types import HEADER, HEADERS, TIMESTAMP
from share_source.arrow_schema import arrow_schema
from share_source.range_cursor import Key, Run

BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20
MANY_RUNS = 100
"""From so many on, runs of one delivery count are put together record by record."""

_TO_JAVA = -1  # librdkafka's ids of timestamp types are Java's, plus one
_COUNTING = pa.array(range(BATCH_RECORDS), pa.int64())
_MS_IN_US = pa.scalar(1000, pa.int64())


def timestamps_of(messages: list[Message]) -> list[int]:
    """Type and time of each message in turn, in one flat list: the pairs are gone as soon as they are made."""
    return list(chain.from_iterable(map(Message.timestamp, messages)))


class Rows:
    """Records on their way into one Arrow batch."""

    def __init__(self, include_headers: bool) -> None:
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._messages: list[Message] = []
        self._timestamps: list[int] = []
        self._runs: list[tuple[str, int, int, int]] = []
        self.limit = 1000
        """How many records a batch should have; follows their size once the first batch is made."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def room(self) -> int:
        """How many more records the batch should take; 0 when it is to be built."""
        return max(self.limit - len(self._messages), 0)

    def add(self, key: Key, messages: list[Message], runs: list[Run], timestamps: list[int]) -> None:
        """Records of one partition in order, the runs of delivery counts that they make, ``timestamps_of`` them."""
        topic, partition = key
        self._messages += messages
        self._timestamps += timestamps
        self._runs += [(topic, partition, delivery_count, count) for delivery_count, count in runs]

    def build(self) -> pa.RecordBatch:
        """The records as one Arrow batch; none are left here."""
        messages, timestamps, runs = self._messages, self._timestamps, self._runs
        self._messages, self._timestamps, self._runs = [], [], []
        topics, partitions, delivery_counts, counts = zip(*runs, strict=True)
        columns = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _repeated(topics, counts, pa.string()),
            _repeated(partitions, counts, pa.int32()),
            _offsets(messages, counts),
            _times(timestamps[1::2]),
            _types(timestamps[::2]),
            *([_headers(messages)] if self._include_headers else []),
            _repeated(delivery_counts, counts, pa.int32()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.limit = min(BATCH_RECORDS, max(BATCH_BYTES * len(messages) // max(batch.nbytes, 1), 1))
        return batch


def _times(times_ms: list[int]) -> pa.Array:
    return pc.multiply(pa.array(times_ms, pa.int64()), _MS_IN_US).cast(TIMESTAMP)


def _types(types: list[int]) -> pa.Array:
    """Java's ids of timestamp types: -1 none, 0 create time, 1 log append time."""
    if types.count(types[0]) == len(types):
        return pa.repeat(pa.scalar(types[0] + _TO_JAVA, pa.int32()), len(types))
    return pa.array([kind + _TO_JAVA for kind in types], pa.int32())


def _offsets(messages: list[Message], counts: Sequence[int]) -> pa.Array:
    """Run by run, since a run without a gap is counted up; one by one if the runs are many."""
    if len(counts) > MANY_RUNS:
        return pa.array(list(map(Message.offset, messages)), pa.int64())
    ends = list(accumulate(counts))
    runs = [_run_offsets(messages, end - count, end) for count, end in zip(counts, ends, strict=True)]
    return pa.concat_arrays(runs) if len(runs) > 1 else runs[0]


def _run_offsets(messages: list[Message], start: int, end: int) -> pa.Array:
    first, last, count = messages[start].offset(), messages[end - 1].offset(), end - start
    assert first is not None and last is not None
    if last - first == count - 1 and count <= BATCH_RECORDS:
        return pc.add(_COUNTING.slice(0, count), pa.scalar(first, pa.int64()))
    return pa.array(list(map(Message.offset, messages[start:end])), pa.int64())


def _repeated(values: Sequence[Any], counts: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Each value as often as its count says."""
    if values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), sum(counts))
    if len(values) <= MANY_RUNS:
        return pa.concat_arrays([pa.repeat(pa.scalar(v, kind), n) for v, n in zip(values, counts, strict=True)])
    return pa.array(list(chain.from_iterable([v] * n for v, n in zip(values, counts, strict=True))), kind)


def _headers(messages: list[Message]) -> pa.Array:
    """Arrays of key and value; null for a record without headers, as from Spark's Kafka source."""
    of_record = list(map(Message.headers, messages))
    if not any(of_record):
        return pa.nulls(len(of_record), HEADERS)
    offsets = [0]
    flat: list[Any] = []
    for headers in of_record:
        flat += headers or ()
        offsets.append(len(flat))
    keys = pa.array([key for key, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    missing = pa.array([not headers for headers in of_record])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=HEADERS, mask=missing)
