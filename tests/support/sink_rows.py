"""Rows as a sink gets them, for its tests: one column for each that it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from coordinator.protocol.messages import SinkOpened
from coordinator.protocol.receipts import receipt_digest
from share_sink.columns import Columns
from share_sink.options import SinkOptions
from share_sink.sink import Sink

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
REQUIRED: dict[str, Any] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "deliveryCount": IntegerType(),
    "receipt": LongType(),
    "acknowledgement": StringType(),
}
TYPES: dict[str, Any] = {
    **REQUIRED,
    "reason": StringType(),
    "releaseDelayMs": IntegerType(),
    "key": BinaryType(),
    "value": StringType(),
    "headers": HEADERS,
}
ARROW: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "deliveryCount": pa.int32(),
    "receipt": pa.int64(),
    "acknowledgement": pa.string(),
    "reason": pa.string(),
    "releaseDelayMs": pa.int32(),
    "key": pa.binary(),
    "value": pa.string(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


ARROW_AT = {
    ("releaseAt" if name == "releaseDelayMs" else name): pa.timestamp("us", "UTC") if name == "releaseDelayMs" else kind
    for name, kind in ARROW.items()
}
"""The columns with a point in time in place of a delay."""


def schema(types: dict[str, Any]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


COLUMNS = Columns({name: place for place, name in enumerate(TYPES)})


OPTIONS = SinkOptions(bootstrap_servers="a:1", group_id="billing", kafka_config={"bootstrap.servers": "a:1"})
INCARNATION, TOPIC_ID = "i1", "T"
ENDS = {TOPIC_ID: {"0": 10**9}}
PLAIN = SinkOpened(incarnation=INCARNATION, topics={TOPIC_ID: "orders"}, ends=ENDS)
SINK = Sink(options=OPTIONS, columns=COLUMNS, opened=PLAIN)
SINK_AT = replace(SINK, columns=Columns({name: place for place, name in enumerate(ARROW_AT)}))


def digest_of(topic_id: str = TOPIC_ID, incarnation: str = INCARNATION, group_id: str = "billing") -> int:
    return receipt_digest(group_id, incarnation, topic_id)


def row(offset: int, acknowledgement: str | None = None, **more: Any) -> dict[str, Any]:
    receipt = {"topic": "orders", "partition": 0, "offset": offset, "deliveryCount": 1, "receipt": digest_of()}
    return {**receipt, "acknowledgement": acknowledgement, **more}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    types = ARROW_AT if any("releaseAt" in each for each in rows) else ARROW
    return pa.RecordBatch.from_pylist(list(rows), schema=pa.schema(list(types.items())))
