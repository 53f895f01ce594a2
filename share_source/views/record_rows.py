"""Reads the records of a group that are not done, and shows each with its state: the view ``records``.

Rule: the records are read as a query's tasks read theirs, but nothing is acquired. An offset at which the log has no
record gives no row: that of a compacted or aborted record, or of a record that Kafka has removed meanwhile, which is
logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from coordinator.admin.admin import Admin
from coordinator.admin.waiting_records import Bounds, Piece, plan
from coordinator.protocol.values import AcquiredRange
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_batches
from share_source.views.tables import SCHEMAS, kafka_of, runs_table

POLL_TIMEOUT_MS = 120_000
"""Reading fails if a broker sends nothing for this many milliseconds, unless the reader says otherwise."""
VIEW = "records"
_OF_RECORD = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def records(conf: Mapping[str, object], group_id: str, **bounds: Any) -> pa.Table:
    """Returns the records of the group that are not done. ``bounds``: fields of
    :class:`~coordinator.admin.waiting_records.Bounds`; none: all records. Raises as Bounds and
    :func:`~coordinator.admin.waiting_records.plan`, and as read_task for records that can't be read."""
    within, kafka_config = Bounds(**bounds), kafka_of(conf)
    with Admin(conf) as admin:
        return pa.Table.from_batches(batches(admin, kafka_config, group_id, within), SCHEMAS[VIEW])


def batches(
    admin: Admin, kafka_config: Mapping[str, str], group_id: str, bounds: Bounds, poll_timeout_ms: int = POLL_TIMEOUT_MS
) -> Iterator[pa.RecordBatch]:
    """Yields the records in the order of their topics, partitions and offsets. Raises as :func:`records`."""
    planned = plan(admin, kafka_config, group_id, bounds)
    how = {"kafka_config": dict(kafka_config), "group_id": group_id, "poll_timeout_ms": poll_timeout_ms}
    yield from read(planned.pieces, bounds.max_records, isolation_level=planned.isolation_level, **how)


def read(pieces: Iterable[Piece], max_records: int | None = None, **how: Any) -> Iterator[pa.RecordBatch]:
    """Yields the records of the pieces, up to ``max_records``. ``how``: fields of ReadTask."""
    left = 2**63 - 1 if max_records is None else max_records
    for piece in pieces:
        for batch in _read(piece, **how):
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return


def _read(runs: Piece, **how: Any) -> Iterator[pa.RecordBatch]:
    states = runs_table(how["group_id"], runs).combine_chunks()
    # The reader repeats a number with each record of a range: here it says which run the record is in.
    ranges = tuple(AcquiredRange(run.first, run.last, number) for number, run in enumerate(runs))
    part = PartitionRanges(runs[0].topic, runs[0].partition, ranges, runs[0].topic_id)
    task = ReadTask(partitions=(part,), include_headers=True, fail_on_data_loss=False, fail_on_damage=False, **how)
    for found in read_batches(task):
        state = states.take(found.column("deliveryCount"))
        columns = {**{name: state.column(name).combine_chunks() for name in state.column_names}}
        columns |= {name: found.column(name) for name in _OF_RECORD}
        yield pa.RecordBatch.from_arrays([columns[name] for name in SCHEMAS[VIEW].names], schema=SCHEMAS[VIEW])
