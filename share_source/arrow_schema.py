"""The columns of a record, for Spark and for Arrow: those of Spark's Kafka source, then ``deliveryCount`` and
``receipt``.

Rule: both schemas must be identical, since Spark refuses Arrow batches with any other schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from coordinator.protocol.arrow_types import HEADERS, TIMESTAMP

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
_DELIVERY = [pa.field("deliveryCount", pa.int32()), pa.field("receipt", pa.int64())]

_WITHOUT_HEADERS = pa.schema([*_FIELDS, *_DELIVERY])
_WITH_HEADERS = pa.schema([*_FIELDS, pa.field("headers", HEADERS), *_DELIVERY])


def spark_schema(include_headers: bool = False) -> StructType:
    """Returns the columns as Spark's schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(include_headers))


def arrow_schema(include_headers: bool = False) -> pa.Schema:
    """The columns as the Arrow schema that Spark's Python reader requires."""
    return _WITH_HEADERS if include_headers else _WITHOUT_HEADERS
