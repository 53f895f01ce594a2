"""A sink's rows: columns are checked before the first row, and each row says an outcome or is named with its record."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, IntegerType, ShortType, StringType, StructField, StructType, TimestampType

from coordinator.protocol.outcome_rows import coalesce
from coordinator.protocol.values import LONGEST_DELAY_MS
from share_sink.columns import Columns
from share_sink.errors import InvalidReleaseDelay, WrongColumn
from share_sink.rows import outcome_rows, rejected_rows
from share_sink.sink import Sink
from tests.support.sink_rows import ARROW, COLUMNS, SINK, SINK_AT, TYPES, batch, row, schema

# --- columns


def test_names_are_taken_in_any_case_and_others_are_left_alone() -> None:
    taken = Columns.of(
        schema(
            {"valid": IntegerType(), **{name.upper(): kind for name, kind in TYPES.items()}, "timestamp": StringType()}
        )
    )
    assert taken == Columns({name: place for place, name in enumerate(TYPES, 1)})


def test_a_column_given_twice_is_refused_unless_one_is_spelled_right() -> None:
    with pytest.raises(WrongColumn, match="there twice"):
        Columns.of(StructType([*schema(TYPES), StructField("topic", StringType())]))
    assert Columns.of(StructType([StructField("Topic", BinaryType()), *schema(TYPES)])).column_indexes["topic"] == 1


def test_small_integers_and_the_records_time_are_taken() -> None:
    taken = Columns.of(schema({**TYPES, "partition": ShortType(), "timestamp": TimestampType()}))
    assert taken.column_indexes["timestamp"] == len(TYPES)


# --- rows


def outcomes(*rows: dict[str, Any], sink: Sink = SINK) -> list[tuple[Any, ...]]:
    found = outcome_rows(batch(*rows), sink).to_pylist()
    return [(each["first"], each["last"], each["outcome"], each["delay_ms"]) for each in found]


def test_a_delay_is_that_of_a_release_or_a_deferral() -> None:
    said = [
        row(3, "defer", releaseDelayMs=9),
        row(0, "release", releaseDelayMs=500),
        row(1, "accept", releaseDelayMs=-1),
        row(2, "reject", releaseDelayMs=7),
    ]
    assert outcomes(*said) == [(3, 3, 5, 9), (0, 0, 2, 500), (1, 1, 1, None), (2, 2, 3, None)]


def test_a_point_in_time_is_the_delay_until_then_and_never_negative() -> None:
    at = datetime.now(timezone.utc)
    said = [
        row(0, "release", releaseAt=at - timedelta(days=9)),
        row(1, "defer", releaseAt=at + timedelta(hours=1)),
        row(2, "release", releaseAt=None),
        row(3, "accept", releaseAt=at + timedelta(days=999)),
        row(4, "release", releaseAt=datetime.min.replace(tzinfo=timezone.utc)),
    ]
    before, (later, *_), *after = (each[2:] for each in outcomes(*said, sink=SINK_AT))
    assert (before, after) == ((2, 0), [(2, None), (1, None), (2, 0)])
    until = outcomes(*said, sink=SINK_AT)[1][3]
    assert later == 5 and timedelta(0) < timedelta(milliseconds=until) <= timedelta(hours=1)
    assert datetime.now(timezone.utc) + timedelta(milliseconds=until + 1) >= at + timedelta(hours=1), "not earlier"


def test_a_point_in_time_too_far_ahead_is_named_with_its_record() -> None:
    late = row(7, "release", releaseAt=datetime.now(timezone.utc) + timedelta(days=25))
    with pytest.raises(InvalidReleaseDelay, match=r"orders-0@7 \(1\) has releaseAt=21\d{8} ms ahead"):
        outcomes(row(6, "release", releaseAt=None), late, sink=SINK_AT)


@pytest.mark.parametrize("delay", [-1, LONGEST_DELAY_MS + 1])
def test_an_invalid_delay_is_named_with_its_record(delay: int) -> None:
    types = pa.schema(
        [*((name, kind) for name, kind in ARROW.items() if name != "releaseDelayMs"), ("releaseDelayMs", pa.int64())]
    )
    columns = Columns({name: types.get_field_index(name) for name in TYPES})
    late = pa.RecordBatch.from_pylist([row(6, "release"), row(7, "release", releaseDelayMs=delay)], schema=types)
    with pytest.raises(InvalidReleaseDelay, match=re.escape("orders-0@7 (1)")):
        outcome_rows(late, replace(SINK, columns=columns))


def test_large_types_of_arrow_are_the_same() -> None:
    large = {name: pa.large_string() if kind == pa.string() else kind for name, kind in ARROW.items()}
    said = pa.RecordBatch.from_pylist([row(0, "reject", reason="x", value="v")], schema=pa.schema(list(large.items())))
    rows = outcome_rows(said, SINK)
    assert rows["outcome"].to_pylist() == [3]
    assert rejected_rows(said, COLUMNS, rows)["reason"].to_pylist() == ["x"]


words = st.sampled_from([None, "accept", "release", "reject", "defer"])


@given(st.lists(words, min_size=1, max_size=60), st.integers(0, 2**32))
def test_any_outcomes_come_back_record_by_record(said: list[str | None], seed: int) -> None:
    rows = [row(offset, word) for offset, word in enumerate(said)]
    random.Random(seed).shuffle(rows)
    found = coalesce(outcome_rows(batch(*rows), SINK)).to_pylist()
    by_offset = [run["outcome"] for run in found for _ in range(run["first"], run["last"] + 1)]
    assert by_offset == [{None: 1, "accept": 1, "release": 2, "reject": 3, "defer": 5}[word] for word in said]
