"""Turns messages into Arrow columns, a whole column at a time.

Python handles each record only for its value, key and timestamp. What many records share (topic, partition, delivery
count, receipt digest) Arrow repeats in C, and it counts up offsets without a gap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from confluent_kafka import Message

from coordinator.kafka.record_headers import mended_headers
from coordinator.protocol.arrow_types import HEADER, HEADERS, TIMESTAMP
from share_source.arrow_schema import arrow_schema
from share_source.executor.range_cursor import Key, Run

BATCH_RECORDS = 10_000
"""An Arrow batch has up to this many records, the default of spark.sql.execution.arrow.maxRecordsPerBatch."""
BATCH_BYTES = 8 << 20
"""An Arrow batch aims at this many bytes: with large records, a batch has fewer records."""
HEADER_BYTES = 16
"""A header counts as this many bytes, plus its name and value, here and in the compiled reader."""
MANY_RUNS = 100
"""With more runs of one delivery count than this, columns are built record by record, as arrays of runs cost more."""

_TO_JAVA = -1  # librdkafka's ids of timestamp types are Java's plus one
_US_IN_MS = 1000
_MOST_MS = (2**63 - 1) // _US_IN_MS
"""The latest time that the column can hold (and negated, the earliest). Other times become null."""


@lru_cache(maxsize=1)
def _counting() -> pa.Array:
    """Returns 0, 1, 2 and so on. Made at first use: pyarrow imports pandas for its first array, and a process that only
    plans saves these 0.3 s."""
    return pa.array(range(BATCH_RECORDS), pa.int64())


def timestamps_of(messages: list[Message]) -> list[int]:
    """Returns type and time of each message in turn, in one flat list, since Python then frees the pairs at once."""
    return list(chain.from_iterable(map(Message.timestamp, messages)))


class Rows:
    """Collects records for one Arrow batch after the other. ``digests``: those of the records' receipts, by topic."""

    needs_timestamps = True

    def __init__(self, include_headers: bool, digests: Mapping[str, int]) -> None:
        self._include_headers = include_headers
        self._digests = digests
        self._schema = arrow_schema(include_headers)
        self._messages: list[Message] = []
        self._bytes = 0
        """The size of the keys and values in ``_messages``."""
        self._timestamps: list[int] = []
        self._runs: list[tuple[str, int, int, int]] = []
        self._headers: list[Any] = []
        self._ends: list[int] = []
        """For each record, the size of all headers up to its own."""
        self.limit = 1000
        """How many records a batch should have; adjusted to the size of the records after the first batch."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def room(self) -> int:
        """How many more records fit; 0: call :meth:`build`."""
        is_full = self._bytes + (self._ends[-1] if self._ends else 0) >= BATCH_BYTES
        return 0 if is_full else max(self.limit - len(self._messages), 0)

    def add(self, key: Key, messages: list[Message], runs: list[Run], timestamps: list[int]) -> None:
        """Add records of one partition, in order. ``runs``: their runs of delivery counts. ``timestamps``: see
        ``timestamps_of``."""
        topic, partition = key
        self._messages += messages
        self._bytes += content_bytes(messages)
        self._timestamps += timestamps
        self._runs += [(topic, partition, delivery_count, count) for delivery_count, count in runs]
        if self._include_headers:
            self._add_headers(headers_of_all(messages))

    def _add_headers(self, of_record: list[Any]) -> None:
        self._headers += of_record
        end = self._ends[-1] if self._ends else 0
        self._ends += list(accumulate(map(header_bytes, of_record), initial=end))[1:]

    def build(self) -> pa.RecordBatch:
        """Returns the first collected records as one Arrow batch: all, unless their headers are larger than a batch."""
        count = max(bisect_right(self._ends, BATCH_BYTES), 1) if self._include_headers else len(self._messages)
        messages, self._messages = self._messages[:count], self._messages[count:]
        timestamps, self._timestamps = self._timestamps[: 2 * count], self._timestamps[2 * count :]
        headers, rest = self._headers[:count], self._headers[count:]
        runs, self._runs = _parted(self._runs, count)
        self._headers, self._ends, self._bytes = [], [], content_bytes(self._messages)
        self._add_headers(rest)
        topics, partitions, delivery_counts, counts = zip(*runs, strict=True)
        columns = [
            pa.array(list(map(Message.key, messages)), pa.binary()),
            pa.array(list(map(Message.value, messages)), pa.binary()),
            _repeated(topics, counts, pa.string()),
            _repeated(partitions, counts, pa.int32()),
            _offsets(messages, counts),
            _times(timestamps[1::2]),
            _types(timestamps[::2]),
            *([_headers(headers)] if self._include_headers else []),
            _repeated(delivery_counts, counts, pa.int32()),
            _repeated([self._digests[topic] for topic in topics], counts, pa.int64()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.limit = min(BATCH_RECORDS, max(BATCH_BYTES * len(messages) // max(batch.nbytes, 1), 1))
        return batch


def _times(times_ms: list[int]) -> pa.Array:
    from pyarrow import compute  # 40 ms: a process that only plans, or reads with compiled code, does not import it

    try:
        times_us = compute.multiply_checked(pa.array(times_ms, pa.int64()), _US_IN_MS)
    except pa.ArrowInvalid:  # the column can't have one of them
        times_us = pa.array([ms * _US_IN_MS if abs(ms) <= _MOST_MS else None for ms in times_ms], pa.int64())
    return times_us.cast(TIMESTAMP)


def _types(types: list[int]) -> pa.Array:
    """Returns the column of timestamp types, in Java's ids: -1 none, 0 create time, 1 log append time."""
    if types.count(types[0]) == len(types):
        return pa.repeat(pa.scalar(types[0] + _TO_JAVA, pa.int32()), len(types))
    return pa.array([kind + _TO_JAVA for kind in types], pa.int32())


def _offsets(messages: list[Message], counts: Sequence[int]) -> pa.Array:
    """Returns the column of offsets: run by run, since Arrow counts up a run without a gap; else one by one."""
    if len(counts) > MANY_RUNS:
        return pa.array(list(map(Message.offset, messages)), pa.int64())
    ends = list(accumulate(counts))
    runs = [_run_offsets(messages, end - count, end) for count, end in zip(counts, ends, strict=True)]
    return pa.concat_arrays(runs) if len(runs) > 1 else runs[0]


def _run_offsets(messages: list[Message], start: int, end: int) -> pa.Array:
    first, last, count = messages[start].offset(), messages[end - 1].offset(), end - start
    assert first is not None and last is not None
    if last - first == count - 1 and count <= BATCH_RECORDS:
        from pyarrow import compute  # as above

        return compute.add(_counting().slice(0, count), first)
    return pa.array(list(map(Message.offset, messages[start:end])), pa.int64())


def _repeated(values: Sequence[Any], counts: Sequence[int], kind: pa.DataType) -> pa.Array:
    """Returns a column in which each value is repeated ``counts`` times."""
    if values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), sum(counts))
    if len(values) <= MANY_RUNS:
        return pa.concat_arrays([pa.repeat(pa.scalar(v, kind), n) for v, n in zip(values, counts, strict=True)])
    return pa.array(list(chain.from_iterable([v] * n for v, n in zip(values, counts, strict=True))), kind)


def headers_of_all(messages: list[Message]) -> list[Any]:
    """Returns the headers of each record, as ``Message.headers`` does."""
    try:
        return list(map(Message.headers, messages))
    except (SystemError, UnicodeDecodeError):  # a name that is not UTF-8
        return list(map(mended_headers, messages))


def content_bytes(messages: list[Message]) -> int:
    """Returns the size of the messages' keys and values."""
    return sum(map(len, messages)) + sum(map(len, filter(None, map(Message.key, messages))))


def header_bytes(headers: Any) -> int:
    """Returns the size of a record's headers, as a batch counts it."""
    return sum(HEADER_BYTES + len(key) + len(value or b"") for key, value in headers) if headers else 0


def _parted(
    runs: list[tuple[str, int, int, int]], count: int
) -> tuple[list[tuple[str, int, int, int]], list[tuple[str, int, int, int]]]:
    for at, (topic, partition, delivery_count, records) in enumerate(runs):
        if count < records:
            first = [(topic, partition, delivery_count, count)] if count else []
            return runs[:at] + first, [(topic, partition, delivery_count, records - count), *runs[at + 1 :]]
        count -= records
    return runs, []


def _headers(of_record: list[Any]) -> pa.Array:
    """Returns the column of headers: arrays of key and value; null if a record has none, as in Spark's Kafka source."""
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
