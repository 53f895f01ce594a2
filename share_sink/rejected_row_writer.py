"""Dead letters of rejected rows, which executors write before the driver's commit stages anything.

Dead letters are written at least once: the replay of a batch writes them again, and their origin headers show that they
are of one record. If the producer can't write dead letters within its time limit, their rows are staged without a dead
letter, and with their reason: the coordinator, which has no such limit, writes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from coordinator.dead_letters.producer import DeadLetterProducer, WriteStatus
from coordinator.dead_letters.record_format import DeadLetterRecord, Header, Origin, dead_letter
from coordinator.dead_letters.source_records import SourceRecord, SourceRecordReader
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.values import Disposition
from share_sink.columns import DELIVERY_COUNT, HEADERS, KEY, OFFSET, PARTITION, REASON, RECORD, TIMESTAMP, TOPIC, VALUE
from share_sink.rows import REJECTED_SCHEMA, TOPIC_ID
from share_sink.sink import Sink

_log = logging.getLogger(__name__)


class RejectedRowWriter:
    """Writes the dead letters of one task. After a temporary failure, it leaves all further ones to the coordinator."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._gave_up = False

    def write(self, rows: pa.Table) -> list[bool]:
        """Write the dead letters of rejected rows (if dead letters copy the record, of ``completed`` rows). Returns for
        each row whether its dead letter is written."""
        if self._gave_up:
            return [False] * rows.num_rows
        opened, options = self._sink.opened, self._sink.options
        writer = _writer(options.bootstrap_servers, tuple(sorted(options.kafka_config.items())))
        dead_letters = list(self._dead_letters(rows))
        results = writer.write(opened.dead_letter_topic, opened.dead_letter_partitions, dead_letters)
        failed = [result for result in results if result.status is not WriteStatus.WRITTEN]
        if failed:
            self._gave_up = any(result.status is WriteStatus.RETRIABLE_FAILURE for result in failed)
            self.log_left(len(failed), failed[0].reason)
        if bare := [result.reason for result in results if result.headers_only]:
            _log.warning("%s dead letter(s) were written without their record: %s", len(bare), bare[0])
        return [result.status is WriteStatus.WRITTEN for result in results]

    def give_up(self, count: int, reason: str) -> list[bool]:
        """Leave the dead letters of these and all later rows to the coordinator. Returns False for each row."""
        self._gave_up = True
        self.log_left(count, reason)
        return [False] * count

    @staticmethod
    def log_left(count: int, reason: str) -> None:
        _log.warning("%s dead letter(s) are left to the coordinator: %s", count, reason)

    def _dead_letters(self, rows: pa.Table) -> Iterator[DeadLetterRecord]:
        group_id, copy = self._sink.options.group_id, self._sink.opened.copy_record
        columns = (TOPIC, PARTITION, OFFSET, DELIVERY_COUNT, REASON, KEY, VALUE)
        for topic, partition, offset, count, reason, key, value, headers, timestamp_ms in zip(
            *(_values(rows, name) for name in columns), self._headers(rows), _timestamps_ms(rows), strict=True
        ):
            yield dead_letter(
                Origin(topic, partition, offset, group_id, count),
                Disposition.REJECTED,
                message=reason or "",
                key=key,
                value=value,
                headers=headers,
                timestamp_ms=timestamp_ms,
                copy=copy,
            )

    def _headers(self, rows: pa.Table) -> Iterator[list[Header] | None]:
        """Yields the headers of each record. None if the record may be missing: it has no headers, and key, value and
        headers are not all the row's own."""
        is_own = all(name in self._sink.columns for name in RECORD)
        is_read = HEADERS not in self._sink.columns and HEADERS in rows.column_names
        read = rows[HEADERS].is_valid().to_pylist() if is_read else [is_own] * rows.num_rows
        for headers, is_known in zip(_values(rows, HEADERS), read, strict=True):
            yield [(each["key"] or "", each["value"]) for each in headers] if headers or is_known else None


def completed(rows: pa.Table, sink: Sink) -> pa.Table:
    """Returns the rejected rows with key, value and headers: from the rows' own columns, else from the source records;
    null if the log has lost the record, or the topic was deleted. Rows whose source records are read also get
    timestamps. Raises as SourceRecordReader.read."""
    if all(name in rows.column_names for name in RECORD) or not rows.num_rows:
        return rows
    originals = _originals_of(rows, sink)
    of_rows = [originals.get(position) for position in _positions(rows)]
    for name in (name for name in (*RECORD, TIMESTAMP) if name not in rows.column_names):
        values = [None if original is None else _part(original, name) for original in of_rows]
        rows = rows.append_column(name, pa.array(values, REJECTED_SCHEMA[name]))
    return rows


def replacements(rows: pa.Table, sink: Sink) -> int:
    """Returns how many rejected rows have another key, value or headers than their source record. If the source records
    can't be read, every row with such a column counts."""
    own = [name for name in RECORD if name in sink.columns]
    if not own:
        return 0
    try:
        originals = _originals_of(rows, sink)
    except ShareGroupError:
        return int(rows.num_rows)
    parts = zip(*(_values(rows, name) for name in own), strict=True)
    return sum(
        position not in originals
        or any(value != _part(originals[position], name) for name, value in zip(own, row, strict=True))
        for position, row in zip(_positions(rows), parts, strict=True)
    )


def _positions(rows: pa.Table) -> Iterator[tuple[str, int, int]]:
    return zip(*(rows[name].to_pylist() for name in (TOPIC_ID, PARTITION, OFFSET)), strict=True)


def _originals_of(rows: pa.Table, sink: Sink) -> Mapping[tuple[str, int, int], SourceRecord]:
    """Returns the source records by topic id, partition and offset; none for a topic that was deleted and created
    again, whose new log has other records at these offsets."""
    offsets: dict[tuple[str, int], set[int]] = {}
    for topic_id, partition, offset in _positions(rows):
        if topic_id not in sink.opened.old_topics:
            offsets.setdefault((topic_id, partition), set()).add(offset)
    options = sink.options
    reader = _originals(options.bootstrap_servers, tuple(sorted(options.kafka_config.items())))
    return {
        (topic_id, partition, answer.offset): answer
        for (topic_id, partition), wanted in offsets.items()
        for answer in reader.read(sink.opened.topics[topic_id], partition, sorted(wanted))
        if isinstance(answer, SourceRecord)
    }


def _part(original: SourceRecord, name: str) -> Any:
    if name == TIMESTAMP:
        return original.timestamp_ms * 1000 if original.timestamp_ms >= 0 else None
    if name == HEADERS:
        return [{"key": key, "value": value} for key, value in original.headers]
    return original.key if name == KEY else original.value


def _values(rows: pa.Table, name: str) -> list[Any]:
    """Returns the column, or nulls if there is none. A row without headers gets an empty list."""
    values = rows[name].to_pylist() if name in rows.column_names else [None] * rows.num_rows
    return [headers or [] for headers in values] if name == HEADERS else values


def _timestamps_ms(rows: pa.Table) -> list[int | None]:
    if TIMESTAMP not in rows.column_names:
        return [None] * rows.num_rows
    return [None if us is None else us // 1000 for us in rows[TIMESTAMP].cast(pa.int64()).to_pylist()]


@lru_cache(maxsize=4)
def _writer(servers: str, kafka: tuple[tuple[str, str], ...]) -> DeadLetterProducer:
    """The worker's producer, which keeps its connections. A worker runs one task at a time."""
    return DeadLetterProducer(servers, dict(kafka))


@lru_cache(maxsize=4)
def _originals(servers: str, kafka: tuple[tuple[str, str], ...]) -> SourceRecordReader:
    """The worker's reader of source records. It needs no isolation level, because the records were delivered before."""
    return SourceRecordReader(servers, dict(kafka))
