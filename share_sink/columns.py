"""Finds and checks the columns that a sink takes, when Spark makes the writer.

Rule: a wrong schema raises a named error before the first row is read. What the words of the column ``acknowledgement``
mean stands in :mod:`share_sink.rows`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import types

from share_sink.errors import MissingColumn, WrongColumn

TOPIC, PARTITION, OFFSET, DELIVERY_COUNT, DIGEST = "topic", "partition", "offset", "deliveryCount", "receipt"
ACKNOWLEDGEMENT, REASON = "acknowledgement", "reason"
RELEASE_DELAY, RELEASE_AT = "releaseDelayMs", "releaseAt"
KEY, VALUE, HEADERS, TIMESTAMP = "key", "value", "headers", "timestamp"

RECEIPT = (TOPIC, PARTITION, OFFSET, DELIVERY_COUNT, DIGEST)
RECORD = (KEY, VALUE, HEADERS)
"""The columns that a dead letter copies: from the row if it has the column, else from the source record."""

_INT = (types.ByteType, types.ShortType, types.IntegerType)
_BYTES = (types.BinaryType, types.StringType)
_AS_IT_CAME = "Keep it as it came from the source."
_ADD = "Add the column acknowledgement: accept, release, reject, defer or null, which is accept."
_KEEP = "Keep the column {} as it came from the source: name it in select, and in the schema of mapInPandas."
_RENAME = "Rename or drop it: a dead letter copies this column, and without it the source record's own."


@dataclass(frozen=True)
class _Wanted:
    text: str
    kinds: tuple[type[types.DataType], ...]
    instead: str = _AS_IT_CAME


_REQUIRED: dict[str, _Wanted] = {
    TOPIC: _Wanted("string", (types.StringType,)),
    PARTITION: _Wanted("int", _INT),
    OFFSET: _Wanted("bigint", (*_INT, types.LongType)),
    DELIVERY_COUNT: _Wanted("int", _INT),
    DIGEST: _Wanted("bigint", (types.LongType,)),
    ACKNOWLEDGEMENT: _Wanted(
        "string", (types.StringType,), "It is accept, release, reject, defer or null, which is accept."
    ),
}
_OPTIONAL: dict[str, _Wanted] = {
    REASON: _Wanted("string", (types.StringType,), "Cast it to string."),
    RELEASE_DELAY: _Wanted(
        "int or bigint", (*_INT, types.LongType), "It is a number of milliseconds: cast it to bigint."
    ),
    RELEASE_AT: _Wanted(
        "timestamp", (types.TimestampType,), "It is a point in time, with a zone: cast it to timestamp."
    ),
    KEY: _Wanted("binary or string", _BYTES, _RENAME),
    VALUE: _Wanted("binary or string", _BYTES, _RENAME),
    HEADERS: _Wanted("array<struct<key:string,value:binary>>", (types.ArrayType,), _RENAME),
}


@dataclass(frozen=True)
class Columns:
    """The sink's columns and their indexes in the rows. ``timestamp`` is included only if its type is that of a
    record's timestamp."""

    column_indexes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: types.StructType, only: Collection[str] = ()) -> Columns:
        """Returns the sink's columns in this schema, or those that ``only`` names; other columns are ignored. As in
        Spark, names match in any case, unless two columns differ only in case.

        Raises:
            MissingColumn: a required column is missing.
            WrongColumn: a column has a wrong type, is there twice, or says the same as another one."""
        indexes: dict[str, int] = {}
        for name, wanted in {**_REQUIRED, **_OPTIONAL}.items():
            if only and name not in only:
                continue
            index = _column_index(schema, name, wanted)
            if index is not None:
                found = schema[index].dataType
                if not isinstance(found, wanted.kinds) or (name == HEADERS and not _are_headers(found)):
                    text = found.simpleString()
                    raise WrongColumn(column=name, found=text, wanted=wanted.text, instead=wanted.instead)
                indexes[name] = index
        if RELEASE_DELAY in indexes and RELEASE_AT in indexes:
            alone = "Keep the one that the rows set: a delay, or a point in time."
            raise WrongColumn(column=RELEASE_AT, found=f"beside {RELEASE_DELAY}", wanted="without it", instead=alone)
        timestamps = _column_indexes(schema, TIMESTAMP)
        if len(timestamps) == 1 and isinstance(schema[timestamps[0]].dataType, types.TimestampType):
            indexes[TIMESTAMP] = timestamps[0]
        return cls(indexes)

    def __contains__(self, name: str) -> bool:
        return name in self.column_indexes


def check_rows(df: Any, call: str) -> None:
    """Check that ``df``, the argument of the function ``call``, is the DataFrame of a batch. Raises TypeError."""
    if isinstance(df, AbstractContextManager):
        raise TypeError(f"{call}() takes the rows that decide() holds: write `with sharegroup.decide(df) as decided:`")
    if not hasattr(df, "sparkSession") or not hasattr(df, "isStreaming"):
        kind = type(df).__name__
        raise TypeError(f"{call}() takes the DataFrame of a batch, and the argument is of type {kind}")
    if df.isStreaming:
        raise TypeError(f"{call}() takes a batch, in the function of foreachBatch, and this is a stream")


def _column_indexes(schema: types.StructType, name: str) -> list[int]:
    same = [index for index, column in enumerate(schema.names) if column.lower() == name.lower()]
    exact = [index for index in same if schema.names[index] == name]
    return exact or same


def _column_index(schema: types.StructType, name: str, wanted: _Wanted) -> int | None:
    column_indexes = _column_indexes(schema, name)
    if len(column_indexes) > 1:
        raise WrongColumn(column=name, found="there twice", wanted=f"one {wanted.text}", instead="Drop one of them.")
    if not column_indexes and name in _REQUIRED:
        instead = _ADD if name == ACKNOWLEDGEMENT else _KEEP.format(name)
        columns = ", ".join(schema.names) or "none"
        raise MissingColumn(column=name, wanted=wanted.text, columns=columns, instead=instead)
    return column_indexes[0] if column_indexes else None


def _are_headers(actual: types.DataType) -> bool:
    if not isinstance(actual, types.ArrayType) or not isinstance(actual.elementType, types.StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in actual.elementType]
    return fields == [("key", types.StringType), ("value", types.BinaryType)]
