"""Reads the records of a group that are not done, and shows each with its state: the view ``records``.

Rule: the records are read as a query's tasks read theirs, but nothing is acquired. An offset at which the log has no
record gives no row: that of a compacted or aborted record, or of a record that Kafka has removed meanwhile, which is
logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa

from coordinator.admin.admin import Admin
from coordinator.admin.waiting_records import Bounds, Plan, plan
from coordinator.protocol.values import AcquiredRange
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_batches
from share_source.views.tables import SCHEMAS, TIMES, kafka_of, runs_table

POLL_TIMEOUT_MS = 120_000
"""Reading fails if a broker sends nothing for this many milliseconds, unless the reader says otherwise."""
BROWSE_TIMEOUT_MS = 15_000
"""The same for a person who waits."""
BROWSED = 20
"""A person sees up to this many records, if the bounds name no number."""
VIEW = "records"
_WITH_NUMBERS = pa.schema([(each.name, pa.int64() if each.name in TIMES else each.type) for each in SCHEMAS[VIEW]])
T = TypeVar("T")
_OF_RECORD = ("offset", "timestamp", "timestampType", "key", "value", "headers")


class Browsed(NamedTuple, Generic[T]):
    """The first records, and whether there are more. ``read_from`` as in GroupDescription."""

    rows: list[T]
    more: bool
    read_from: str


def records(conf: Mapping[str, object], group_id: str, **bounds: Any) -> pa.Table:
    """Returns the records of the group that are not done. ``bounds``: fields of
    :class:`~coordinator.admin.waiting_records.Bounds`; none: all records. Raises as Bounds and
    :func:`~coordinator.admin.waiting_records.plan`, and as read_task for records that can't be read."""
    within, kafka_config = Bounds(**bounds), kafka_of(conf)
    with Admin(conf) as admin:
        planned = plan(admin, kafka_config, group_id, within)
        return pa.Table.from_batches(read(planned, kafka_config, within.max_records), SCHEMAS[VIEW])


def browse(
    admin: Admin, kafka_config: Mapping[str, Any], group_id: str, bounds: Bounds, form: Callable[[dict[str, Any]], T]
) -> Browsed[T]:
    """Returns the first ``bounds.max_records`` records, for a person: rows of the view in this form. ``form`` gets one
    row after the other, so that a long list of large records needs little memory; times are in milliseconds, under
    names that end so. Raises as :func:`records`."""
    most = bounds.max_records or BROWSED
    planned = plan(admin, kafka_config, group_id, replace(bounds, max_records=most + 1))
    found = read(planned, kafka_config, most + 1, poll_timeout_ms=BROWSE_TIMEOUT_MS)
    rows = [form(row) for batch in found for row in _rows(batch)]
    return Browsed(rows[:most], len(rows) > most, planned.read_from)


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    for row in batch.cast(_WITH_NUMBERS).to_pylist():  # a producer may write a time that Python does not have
        times = {TIMES[name]: us if us is None else us // 1000 for name, us in row.items() if name in TIMES}
        yield {**{name: value for name, value in row.items() if name not in TIMES}, **times}


def read(
    planned: Plan,
    kafka_config: Mapping[str, Any],
    max_records: int | None = None,
    *,
    poll_timeout_ms: int = POLL_TIMEOUT_MS,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the plan, up to ``max_records``, in the order of topics, partitions and offsets."""
    left = 2**63 - 1 if max_records is None else max_records
    for runs in planned.pieces:
        states = runs_table(planned.group_id, runs).combine_chunks()
        # The reader repeats a number with each record of a range: here it says which run the record is in.
        ranges = tuple(AcquiredRange(run.first, run.last, number) for number, run in enumerate(runs))
        task = ReadTask(
            partitions=(PartitionRanges(runs[0].topic, runs[0].partition, ranges, runs[0].topic_id),),
            kafka_config=dict(kafka_config),
            group_id=planned.group_id,
            isolation_level=planned.isolation_level,
            include_headers=True,
            fail_on_data_loss=False,
            fail_on_damage=False,
            poll_timeout_ms=poll_timeout_ms,
        )
        for batch in read_batches(task):
            yield _shown(batch.slice(0, left), states)
            left -= batch.num_rows
            if left <= 0:
                return


def _shown(batch: pa.RecordBatch, states: pa.Table) -> pa.RecordBatch:
    """Returns the records with the states of their runs."""
    state = states.take(batch.column("deliveryCount")).combine_chunks()
    columns = [
        batch.column(name) if name in _OF_RECORD else state.column(name).combine_chunks()
        for name in SCHEMAS[VIEW].names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[VIEW])
