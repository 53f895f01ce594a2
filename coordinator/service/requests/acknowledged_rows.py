"""Acknowledgements as Arrow rows, one row a record: for ShareConsumers with many records. Sinks send outcome_rows.

Pure, and without Python per row: rows become :class:`~coordinator.protocol.messages.AckBatch` runs by comparing
columns with themselves, shifted by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import AckBatch, PartitionAcks

SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("delivery_count", pa.int32(), nullable=False),
        pa.field("acknowledge_type", pa.int8(), nullable=False),
    ]
)
"""A row holds a record's receipt and outcome, numbered as in KIP-932: 0 gap, 1 ACCEPT, 2 RELEASE, 3 REJECT, 4 RENEW."""

_SAME = ("topic_id", "partition", "delivery_count", "acknowledge_type")


def partition_acks(rows: Any) -> tuple[PartitionAcks, ...]:
    """The rows (pyarrow.Table or RecordBatch of SCHEMA, in any order) as acknowledgements by partition, with ascending
    offsets. Raises InvalidRequest if the schema is another one, a value is null, a number is negative, or an offset is
    named twice."""
    table = pa.table(rows) if isinstance(rows, pa.RecordBatch) else rows
    if not table.schema.equals(SCHEMA) or any(column.null_count for column in table.columns):
        raise InvalidRequest(what=f"Acknowledged rows need the columns {', '.join(SCHEMA.names)}, without nulls.")
    if not table.num_rows:
        return ()
    if any(pc.any(pc.less(table[name], 0)).as_py() for name in ("partition", "offset", "delivery_count")):
        raise InvalidRequest(what="A partition, an offset or a delivery count is negative.")
    # Topic ids are few and long. Numbers in their place sort and compare some ten times as fast.
    ids = table["topic_id"].combine_chunks().dictionary_encode()
    table = table.set_column(0, "topic_id", ids.indices)
    table = table.sort_by([("topic_id", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    starts = _starts(table.combine_chunks())
    runs = table.take(starts)
    ends = [*starts.to_pylist()[1:], table.num_rows]
    found: dict[tuple[int, int], list[AckBatch]] = {}
    for topic, partition, offset, count, kind, at, end in zip(
        *(runs[name].to_pylist() for name in SCHEMA.names), starts.to_pylist(), ends, strict=True
    ):
        batch = AckBatch(first=offset, last=offset + end - at - 1, delivery_count=count, types=(kind,))
        found.setdefault((topic, partition), []).append(batch)
    names = ids.dictionary.to_pylist()
    return tuple(
        PartitionAcks(topic_id=names[topic], partition=partition, batches=tuple(batches))
        for (topic, partition), batches in found.items()
    )


def _starts(table: pa.Table) -> pa.Array:
    """The indices of rows with which a run begins: the row differs from the one before in something other than the
    offset, or its offset is not the next one. All columns are plain arrays: on a chunked array without chunks, which a
    step of a single row is, indices_nonzero of pyarrow 25 ends the process."""
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    steps = pc.subtract(columns["offset"][1:], columns["offset"][:-1])
    begins = pc.not_equal(steps, 1)
    same_place = pc.and_(_unchanged(columns["topic_id"]), _unchanged(columns["partition"]))
    if pc.any(pc.and_(same_place, pc.equal(steps, 0))).as_py():
        raise InvalidRequest(what="A record is acknowledged twice in one request.")
    for name in _SAME:
        begins = pc.or_(begins, pc.invert(_unchanged(columns[name])))
    later = pc.add(pc.indices_nonzero(begins), pa.scalar(1, pa.uint64()))
    return pa.concat_arrays([pa.array([0], pa.uint64()), later])


def _unchanged(column: Any) -> Any:
    return pc.equal(column[1:], column[:-1])
