"""Dead letters of a sink's rejected rows, written by executors before the driver's commit stages anything.

At least once: a batch that is replayed writes its letters again, and their origin headers make two of them one. What
can't be written in the time that the writer allows is left to the coordinator, which has all the time: such rows are
staged without a letter, with their reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from coordinator.dead_letters.producer import DeadLetterProducer, WriteStatus
from coordinator.dead_letters.record_format import DeadLetterRecord, Origin, letter
from coordinator.dead_letters.source_records import SourceRecord, SourceRecordReader
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.values import Disposition
from share_sink.columns import DELIVERY_COUNT, HEADERS, KEY, OFFSET, PARTITION, REASON, RECORD, TIMESTAMP, TOPIC, VALUE
from share_sink.rows import REJECTED_SCHEMA
from share_sink.sink import Sink

_log = logging.getLogger(__name__)


class RejectedRowWriter:
    """Those of one task. After a letter that only time could help, the rest is left to the coordinator."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._gave_up = False

    def write(self, rows: pa.Table) -> list[bool]:
        """Which of the rejected rows (completed, as far as they are to be) have their letter now."""
        if self._gave_up:
            return [False] * rows.num_rows
        opened, options = self._sink.opened, self._sink.options
        writer = _writer(options.bootstrap_servers, tuple(sorted(options.kafka_config.items())))
        letters = list(self._letters(rows))
        found = writer.write(opened.dead_letter_topic, opened.dead_letter_partitions, letters)
        missing = [each for each in found if each.fate is not WriteStatus.WRITTEN]
        if missing:
            self._gave_up = any(each.fate is WriteStatus.PASSING for each in missing)
            self.say_left(len(missing), missing[0].reason)
        if bare := [each.reason for each in found if each.headers_only]:
            _log.warning("%s dead letter(s) were written without their record: %s", len(bare), bare[0])
        return [each.fate is WriteStatus.WRITTEN for each in found]

    def give_up(self, count: int, reason: str) -> list[bool]:
        """Leave these rows and all that follow to the coordinator."""
        self._gave_up = True
        self.say_left(count, reason)
        return [False] * count

    @staticmethod
    def say_left(count: int, reason: str) -> None:
        """To the task's log."""
        _log.warning("%s dead letter(s) are left to the coordinator: %s", count, reason)

    def _letters(self, rows: pa.Table) -> Iterator[DeadLetterRecord]:
        group_id, copy = self._sink.options.group_id, self._sink.opened.copy_record
        columns = (TOPIC, PARTITION, OFFSET, DELIVERY_COUNT, REASON, KEY, VALUE, HEADERS)
        for topic, partition, offset, count, reason, key, value, headers in zip(
            *(_values(rows, name) for name in columns), strict=True
        ):
            yield letter(
                Origin(topic, partition, offset, group_id, count),
                Disposition.REJECTED,
                message=reason or "",
                key=key,
                value=value,
                headers=[(header["key"] or "", header["value"]) for header in headers],
                copy=copy,
            )


def completed(rows: pa.Table, sink: Sink) -> pa.Table:
    """The rejected rows with key, value and headers: the rows' own where they have such a column, else the originals',
    null where there is none in the log any more. Where originals are read for it, so with the records' time. Errors of
    SourceRecordReader.read."""
    if all(name in rows.column_names for name in RECORD) or not rows.num_rows:
        return rows
    found = _originals_of(rows, sink)
    places = zip(*(rows[name].to_pylist() for name in (TOPIC, PARTITION, OFFSET)), strict=True)
    originals = [found.get(place) for place in places]
    for name in (name for name in (*RECORD, TIMESTAMP) if name not in rows.column_names):
        values = [None if original is None else _part(original, name) for original in originals]
        rows = rows.append_column(name, pa.array(values, REJECTED_SCHEMA[name]))
    return rows


def replacements(rows: pa.Table, sink: Sink) -> int:
    """How many of the rejected rows have a key, value or headers that are not their original's; if that can't be read,
    all that have any of their own."""
    own = [name for name in RECORD if name in sink.columns]
    if not own:
        return 0
    try:
        found = _originals_of(rows, sink)
    except ShareGroupError:
        return int(rows.num_rows)
    places = zip(*(rows[name].to_pylist() for name in (TOPIC, PARTITION, OFFSET)), strict=True)
    parts = zip(*(_values(rows, name) for name in own), strict=True)
    return sum(
        place not in found or any(said != _part(found[place], name) for name, said in zip(own, row, strict=True))
        for place, row in zip(places, parts, strict=True)
    )


def _originals_of(rows: pa.Table, sink: Sink) -> Mapping[tuple[str, int, int], SourceRecord]:
    offsets: dict[tuple[str, int], set[int]] = {}
    for topic, partition, offset in zip(*(rows[name].to_pylist() for name in (TOPIC, PARTITION, OFFSET)), strict=True):
        offsets.setdefault((topic, partition), set()).add(offset)
    options = sink.options
    reader = _originals(options.bootstrap_servers, tuple(sorted(options.kafka_config.items())))
    return {
        (topic, partition, answer.offset): answer
        for (topic, partition), wanted in offsets.items()
        for answer in reader.read(topic, partition, sorted(wanted))
        if isinstance(answer, SourceRecord)
    }


def _part(original: SourceRecord, name: str) -> Any:
    if name == TIMESTAMP:
        return original.timestamp_ms * 1000 if original.timestamp_ms >= 0 else None
    if name == HEADERS:
        return [{"key": key, "value": value} for key, value in original.headers]
    return original.key if name == KEY else original.value


def _values(rows: pa.Table, name: str) -> list[Any]:
    """null for a column that is not there; no headers are an empty list, as a record has them."""
    values = rows[name].to_pylist() if name in rows.column_names else [None] * rows.num_rows
    return [headers or [] for headers in values] if name == HEADERS else values


@lru_cache(maxsize=4)
def _writer(servers: str, kafka: tuple[tuple[str, str], ...]) -> DeadLetterProducer:
    """One in a worker, which has one task at a time: it keeps its connection."""
    return DeadLetterProducer(servers, dict(kafka))


@lru_cache(maxsize=4)
def _originals(servers: str, kafka: tuple[tuple[str, str], ...]) -> SourceRecordReader:
    """As above. What was delivered is there to be read, so no isolation is needed."""
    return SourceRecordReader(servers, dict(kafka))
