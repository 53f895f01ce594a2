"""The columns of a record, as Spark and as Arrow name them: those of Spark's Kafka source, and ``deliveryCount`` last.

Rule: the Spark schema and the Arrow schema are identical, since Spark refuses Arrow batches whose schema is not
exactly its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from coordinator.protocol.arrow_types import HEADERS, TIMESTAMP
from coordinator.protocol.values import GROUP_OF_COLUMN

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_FIELDS = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
_DELIVERY_COUNT = pa.field("deliveryCount", pa.int32())

_WITHOUT_HEADERS = pa.schema([*_FIELDS, _DELIVERY_COUNT])
_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS), _DELIVERY_COUNT])


def spark_schema(include_headers: bool = False, group_id: str = "") -> StructType:
    """The columns as Spark's schema. With ``group_id``, the metadata of the receipt's columns (topic, partition,
    offset, deliveryCount) names the group."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    group = {GROUP_OF_COLUMN: group_id} if group_id else None
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    return StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType(), metadata=group),
            StructField("partition", IntegerType(), metadata=group),
            StructField("offset", LongType(), metadata=group),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            *([StructField("headers", ArrayType(header))] if include_headers else []),
            StructField("deliveryCount", IntegerType(), metadata=group),
        ]
    )


def arrow_schema(include_headers: bool = False) -> pa.Schema:
    """The columns as the Arrow schema that Spark's Python reader requires."""
    return _WITH_HEADERS if include_headers else _WITHOUT_HEADERS
