"""The columns that a sink takes: found, and checked, when the writer is made.

Rule: what is wrong with the rows' schema is said by name before the first row is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from coordinator.protocol.values import GROUP_OF_COLUMN
from share_sink.errors import MissingColumn, WrongColumn

TOPIC, PARTITION, OFFSET, DELIVERY_COUNT = "topic", "partition", "offset", "deliveryCount"
ACKNOWLEDGEMENT, REASON, RELEASE_DELAY = "acknowledgement", "reason", "releaseDelayMs"
KEY, VALUE, HEADERS, TIMESTAMP = "key", "value", "headers", "timestamp"

RECEIPT = (TOPIC, PARTITION, OFFSET, DELIVERY_COUNT)
RECORD = (KEY, VALUE, HEADERS)
"""What a dead letter copies: the row's where it has such a column, else the original's."""

_INT = (ByteType, ShortType, IntegerType)
_BYTES = (BinaryType, StringType)
_AS_IT_CAME = "Keep it as it came from the source."
_RENAME = "Rename or drop it: a dead letter takes it for the record's own, and the original's where there is none."


@dataclass(frozen=True)
class _Wanted:
    text: str
    types: tuple[type[DataType], ...]
    instead: str = _AS_IT_CAME


_REQUIRED: dict[str, _Wanted] = {
    TOPIC: _Wanted("string", (StringType,)),
    PARTITION: _Wanted("int", _INT),
    OFFSET: _Wanted("bigint", (*_INT, LongType)),
    DELIVERY_COUNT: _Wanted("int", _INT),
    ACKNOWLEDGEMENT: _Wanted("string", (StringType,), "It is accept, release, reject or null, which is accept."),
}
_OPTIONAL: dict[str, _Wanted] = {
    REASON: _Wanted("string", (StringType,), "Cast it to string."),
    RELEASE_DELAY: _Wanted("int or bigint", (*_INT, LongType), "It is a number of milliseconds: cast it to bigint."),
    KEY: _Wanted("binary or string", _BYTES, _RENAME),
    VALUE: _Wanted("binary or string", _BYTES, _RENAME),
    HEADERS: _Wanted("array<struct<key:string,value:binary>>", (ArrayType,), _RENAME),
}


@dataclass(frozen=True)
class Columns:
    """Our names -> where the rows have them. ``timestamp`` is there only if it can be the record's. ``group_ids``: the
    groups that the receipt's columns say they are of; none if they were computed anew since the source."""

    column_indexes: Mapping[str, int] = field(default_factory=dict)
    group_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: StructType) -> Columns:
        """Names are taken as Spark takes them: in any case, unless two differ in nothing else. Other columns are left
        alone. MissingColumn, WrongColumn."""
        found: dict[str, int] = {}
        for name, wanted in {**_REQUIRED, **_OPTIONAL}.items():
            place = _column_index(schema, name, wanted)
            if place is not None:
                _check_type(name, schema[place].dataType, wanted)
                found[name] = place
        stamp = _column_indexes(schema, TIMESTAMP)
        if len(stamp) == 1 and isinstance(schema[stamp[0]].dataType, TimestampType):
            found[TIMESTAMP] = stamp[0]
        said = (schema[found[name]].metadata or {} for name in RECEIPT)
        return cls(found, frozenset(each[GROUP_OF_COLUMN] for each in said if GROUP_OF_COLUMN in each))

    def __contains__(self, name: str) -> bool:
        return name in self.column_indexes


def _column_indexes(schema: StructType, name: str) -> list[int]:
    same = [place for place, each in enumerate(schema.names) if each.lower() == name.lower()]
    exact = [place for place in same if schema.names[place] == name]
    return exact or same


def _column_index(schema: StructType, name: str, wanted: _Wanted) -> int | None:
    column_indexes = _column_indexes(schema, name)
    if len(column_indexes) > 1:
        raise WrongColumn(column=name, found="there twice", wanted=f"one {wanted.text}", instead="Drop one of them.")
    if not column_indexes and name in _REQUIRED:
        raise MissingColumn(column=name, wanted=wanted.text, columns=", ".join(schema.names) or "none")
    return column_indexes[0] if column_indexes else None


def _check_type(name: str, found: DataType, wanted: _Wanted) -> None:
    if not isinstance(found, wanted.types) or (name == HEADERS and not _are_headers(found)):
        raise WrongColumn(column=name, found=found.simpleString(), wanted=wanted.text, instead=wanted.instead)


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = [(each.name, type(each.dataType)) for each in found.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]
