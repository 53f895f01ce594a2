"""From messages to Arrow columns, a whole column at a time.

Per record there is only what can't be had otherwise: its value, its key, its timestamp. What is the same for all
(topic, partition, delivery count) is repeated in C; offsets without a gap are counted up in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from share_source.arrow_schema import HEADER, HEADERS, TIMESTAMP, arrow_schema
from share_source.range_cursor import Run

BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20

_TO_JAVA = -1  # librdkafka's ids of timestamp types are Java's, plus one
_COUNTING = pa.array(range(BATCH_RECORDS), pa.int64())
_MS_IN_US = pa.scalar(1000, pa.int64())


class Rows:
    """Records on their way into one Arrow batch."""

    def __init__(self, include_headers: bool) -> None:
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._messages: list[Message] = []
        self._runs: list[tuple[str, int, int, int]] = []
        self.limit = 1000
        """How many records a batch should have; follows their size once the first batch is made."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def room(self) -> int:
        """How many more records the batch should take; 0 when it is to be built."""
        return max(self.limit - len(self._messages), 0)

    def add(self, topic: str, partition: int, messages: list[Message], runs: list[Run]) -> None:
        """Records of one partition, in order, and the runs of delivery counts that they make."""
        self._messages += messages
        self._runs += [(topic, partition, delivery_count, count) for delivery_count, count in runs]

    def build(self) -> pa.RecordBatch:
        """The records as one Arrow batch; none are left here."""
        messages, runs = self._messages, self._runs
        self._messages, self._runs = [], []
        timestamps, types = _timestamps(messages)
        topics, partitions, delivery_counts, counts = zip(*runs, strict=True)
        columns = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _repeated(topics, counts, pa.string()),
            _repeated(partitions, counts, pa.int32()),
            _offsets(messages, len(runs)),
            timestamps,
            types,
            *([_headers(messages)] if self._include_headers else []),
            _repeated(delivery_counts, counts, pa.int32()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.limit = min(BATCH_RECORDS, max(BATCH_BYTES * len(messages) // max(batch.nbytes, 1), 1))
        return batch


def _timestamps(messages: list[Message]) -> tuple[pa.Array, pa.Array]:
    """Timestamps, and Java's ids of their types: -1 none, 0 create time, 1 log append time."""
    types, stamps = zip(*map(Message.timestamp, messages), strict=True)
    times_ms = pa.array(stamps, pa.int64())
    count = len(messages)
    if types.count(types[0]) == count:
        ids = pa.repeat(pa.scalar(types[0] + _TO_JAVA, pa.int32()), count)
    else:
        ids = pa.array([kind + _TO_JAVA for kind in types], pa.int32())
    return pc.multiply(times_ms, _MS_IN_US).cast(TIMESTAMP), ids


def _offsets(messages: list[Message], runs: int) -> pa.Array:
    first, last, count = messages[0].offset(), messages[-1].offset(), len(messages)
    assert first is not None and last is not None
    if runs == 1 and count <= BATCH_RECORDS and last - first == count - 1:
        return pc.add(_COUNTING.slice(0, count), pa.scalar(first, pa.int64()))
    return pa.array(list(map(Message.offset, messages)), pa.int64())


def _repeated(values: Sequence[Any], counts: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Each value as often as its count says."""
    if values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), sum(counts))
    if len(values) <= 100:
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
