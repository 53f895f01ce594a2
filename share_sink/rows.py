"""Turns a sink's Arrow rows into outcomes (coordinator.protocol.outcome_rows), and selects the rejected rows.

Rule: no Python code for each row. A wrong value fails the whole batch with a named error, which has the row's
coordinates. Only the coordinator decides whether a receipt is still valid."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.protocol.arrow_types import HEADERS as HEADERS_TYPE
from coordinator.protocol.arrow_types import TIMESTAMP as TIMESTAMP_TYPE
from coordinator.protocol.errors import NeverDelivered
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.protocol.values import GIVES_BACK, LONGEST_DELAY_MS, LONGEST_REASON, AcknowledgeType
from share_sink import errors
from share_sink.columns import (
    ACKNOWLEDGEMENT,
    DELIVERY_COUNT,
    DIGEST,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    REASON,
    RECEIPT,
    RELEASE_AT,
    RELEASE_DELAY,
    TIMESTAMP,
    TOPIC,
    VALUE,
    Columns,
)
from share_sink.sink import Sink

_WORDS = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
    "defer": AcknowledgeType.DEFER,
}
"""The words of the column acknowledgement; a null means accept."""
TOPIC_ID = "topic_id"
"""The column that the sink adds to rejected rows."""
REJECTED_SCHEMA = {
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    DELIVERY_COUNT: pa.int32(),
    DIGEST: pa.int64(),
    REASON: pa.string(),
    KEY: pa.binary(),
    VALUE: pa.binary(),
    HEADERS: HEADERS_TYPE,
    TIMESTAMP: TIMESTAMP_TYPE,
}
"""The columns that rejected rows have, if the sink's rows have them."""
_TYPES = {**REJECTED_SCHEMA, RELEASE_DELAY: pa.int64(), RELEASE_AT: TIMESTAMP_TYPE}
"""The types of the columns; all others are text."""


def is_rejected(outcomes: pa.Table) -> Any:
    """Returns a mask of the rejected rows."""
    return pc.equal(outcomes["outcome"], int(AcknowledgeType.REJECT))


def outcome_rows(batch: pa.RecordBatch, sink: Sink) -> pa.Table:
    """Returns a run for each row, in their order: a table of coordinator.protocol.outcome_rows.SCHEMA. No run has a
    dead letter yet. Only runs of released and deferred rows have a delay, and only runs of released rows that the limit
    may give up have a reason.

    Raises:
        IncompleteReceipt: topic, partition, offset, deliveryCount or receipt of a row is null.
        RowsOfAnotherGroup: a row is of no topic that the group knows.
        NeverDelivered: a row's topic is not the one that its receipt names.
        UnknownOutcome: an acknowledgement is no known word.
        RenewRefused: an acknowledgement is renew.
        InvalidReleaseDelay: a delay of a released or deferred row is negative or too large."""
    columns = sink.columns
    receipt = {name: _column(batch, columns, name) for name in RECEIPT}
    for name, column in receipt.items():
        if column.null_count:
            raise errors.IncompleteReceipt(column=name, row=_receipt_at(receipt, _first(column.is_null())))
    topic_id = _topic_ids(receipt, sink)
    outcome = _outcomes(_column(batch, columns, ACKNOWLEDGEMENT), receipt)
    return pa.table(
        [
            topic_id,
            receipt[PARTITION],
            receipt[OFFSET],
            receipt[OFFSET],
            receipt[DELIVERY_COUNT],
            outcome,
            _delays(batch, columns, outcome, receipt),
            pa.repeat(pa.scalar(False), batch.num_rows),
            _reasons(batch, sink, outcome, receipt),
        ],
        schema=SCHEMA,
    )


def check_delivered(outcomes: pa.Table, sink: Sink) -> None:
    """Check that the group can have delivered the rows, by what was known when the sink was opened. Call it before
    anything is written for the rows. Raises NeverDelivered otherwise."""
    ends = sink.opened.ends
    wrong = pc.or_(pc.less(outcomes["first"], 0), pc.less(outcomes["delivery_count"], 1))
    if pc.any(wrong).as_py():
        raise _never(outcomes.filter(wrong), sink, "offsets begin at 0, and delivery counts at 1")
    for most in outcomes.group_by(["topic_id", "partition"]).aggregate([("last", "max")]).to_pylist():
        end = ends.get(most["topic_id"], {}).get(str(most["partition"]))
        if end is None or most["last_max"] >= end:
            of_topic = pc.equal(outcomes["topic_id"], most["topic_id"])
            of_partition = pc.and_(of_topic, pc.equal(outcomes["partition"], most["partition"]))
            rows = outcomes.filter(pc.and_(of_partition, pc.greater_equal(outcomes["last"], end or 0)))
            reason = "the group does not read this partition"
            raise _never(rows, sink, reason if end is None else f"no offset from {end} on was handed out")


def _never(rows: pa.Table, sink: Sink, reason: str) -> NeverDelivered:
    topic_id, partition, offset, _, count = (rows[name][0].as_py() for name in rows.column_names[:5])
    row = f"{sink.opened.topics[topic_id]}-{partition}@{offset} ({count})"
    return NeverDelivered(row=row, group_id=sink.options.group_id, reason=reason)


def rejected_rows(batch: pa.RecordBatch, columns: Columns, outcomes: pa.Table) -> pa.Table:
    """Returns the rejected rows: receipts and topic ids, and reason, key, value, headers and timestamp if the rows have
    them. Raises NullHeader if an element of a row's headers is null."""
    rejected = is_rejected(outcomes).combine_chunks()
    names = [name for name in REJECTED_SCHEMA if name in columns]
    rows = {name: _column(batch, columns, name).filter(rejected) for name in names}
    if HEADERS in names and (each := pc.list_flatten(rows[HEADERS])).null_count:
        at = pc.list_parent_indices(rows[HEADERS])[_first(each.is_null())].as_py()
        raise errors.NullHeader(row=_receipt_at(rows, at))
    return pa.table({**rows, TOPIC_ID: outcomes["topic_id"].combine_chunks().filter(rejected)})


def _column(batch: pa.RecordBatch, columns: Columns, name: str) -> Any:
    column = batch.column(columns.column_indexes[name])
    wanted = _TYPES.get(name, pa.string())
    return column if column.type.equals(wanted) else column.cast(wanted)


def _topic_ids(receipt: dict[str, Any], sink: Sink) -> Any:
    """Returns each row's topic id, which its receipt's digest names.

    Raises:
        RowsOfAnotherGroup: a row is of no topic that the group knows.
        NeverDelivered: a row's topic is not the one in its receipt."""
    encoded = receipt[DIGEST].dictionary_encode()
    found = [sink.topic_ids.get(digest) for digest in encoded.dictionary.to_pylist()]
    if None in found:
        row = _receipt_at(receipt, _first(pc.equal(encoded.indices, found.index(None))))
        raise errors.RowsOfAnotherGroup(group_id=sink.options.group_id, rows=f"The row of {row} is")
    names = pa.array([sink.opened.topics[topic_id] for topic_id in found if topic_id], pa.string())
    others = pc.not_equal(names.take(encoded.indices), receipt[TOPIC])
    if pc.any(others).as_py():
        other = _first(others)
        reason = f"its receipt is of the topic {names[encoded.indices[other].as_py()]}"
        raise NeverDelivered(row=_receipt_at(receipt, other), group_id=sink.options.group_id, reason=reason)
    return pa.array(found, pa.string()).take(encoded.indices)


def _outcomes(words: Any, receipt: dict[str, Any]) -> Any:
    """Returns the AcknowledgeTypes as int8; null means accept."""
    indexes = pc.index_in(words, value_set=pa.array(list(_WORDS)))
    if indexes.null_count > words.null_count:
        unknown = _first(pc.and_(words.is_valid(), indexes.is_null()))
        row, value = _receipt_at(receipt, unknown), words[unknown].as_py()
        raise (
            errors.RenewRefused(row=row) if value == "renew" else errors.UnknownOutcome(row=row, value=repr(value[:80]))
        )
    return pa.array(map(int, _WORDS.values()), pa.int8()).take(pc.fill_null(indexes, 0))


def _delays(batch: pa.RecordBatch, columns: Columns, outcome: Any, receipt: dict[str, Any]) -> Any:
    """Returns the delays of released and deferred rows, in milliseconds: 0 until a point in time that is over."""
    if RELEASE_AT in columns:
        at_ms = pc.divide(_column(batch, columns, RELEASE_AT).cast(pa.int64()), 1_000)
        delay = pc.max_element_wise(pc.subtract(at_ms, int(time.time() * 1_000)), 0, skip_nulls=False)
    elif RELEASE_DELAY in columns:
        delay = _column(batch, columns, RELEASE_DELAY)
    else:
        return pa.nulls(batch.num_rows, pa.int64())
    is_delayed = pc.is_in(outcome, pa.array(map(int, GIVES_BACK), pa.int8()))
    delay = pc.if_else(is_delayed, delay, pa.scalar(None, delay.type))
    wrong = pc.fill_null(pc.or_(pc.less(delay, 0), pc.greater(delay, LONGEST_DELAY_MS)), False)
    if pc.any(wrong).as_py():
        first = _first(wrong)
        given = f"{delay[first]} ms ahead" if RELEASE_AT in columns else delay[first].as_py()
        column = RELEASE_AT if RELEASE_AT in columns else RELEASE_DELAY
        row = _receipt_at(receipt, first)
        raise errors.InvalidReleaseDelay(row=row, column=column, value=given, most=LONGEST_DELAY_MS)
    return delay


def _reasons(batch: pa.RecordBatch, sink: Sink, outcome: Any, receipt: dict[str, Any]) -> Any:
    """Returns the reasons of released rows that the limit may give up; null for other rows, because each row of a large
    batch may have another reason."""
    limit = sink.opened.delivery_count_limit
    if REASON not in sink.columns or not sink.opened.dead_letter_topic or not limit:
        return pa.nulls(batch.num_rows, pa.string())
    is_last = pc.and_(pc.equal(outcome, int(AcknowledgeType.RELEASE)), pc.greater_equal(receipt[DELIVERY_COUNT], limit))
    reasons = pc.utf8_slice_codeunits(_column(batch, sink.columns, REASON), 0, LONGEST_REASON)
    return pc.if_else(is_last, reasons, pa.scalar(None, pa.string()))


def _first(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())


def _receipt_at(receipt: dict[str, Any], index: int) -> str:
    """Returns the receipt as ``topic-partition@offset (delivery count)``, as the coordinator writes it."""
    topic, partition, offset, count, _ = (receipt[name][index].as_py() for name in RECEIPT)
    return f"{topic}-{partition}@{offset} ({count})"
