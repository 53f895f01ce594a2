"""Arrow rows become the acknowledgements that they say, whatever their order."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.errors import InvalidRequest
from coordinator.service.requests.acknowledged_rows import SCHEMA, partition_acks

PLACES = st.tuples(st.sampled_from("TUV"), st.integers(0, 2), st.integers(0, 30))
OUTCOMES = st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 2, 3, 4]))


def table(rows):
    columns = list(zip(*rows, strict=True)) or [[]] * len(SCHEMA)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@given(st.dictionaries(PLACES, OUTCOMES), st.randoms())
def test_each_row_is_in_one_batch_and_neighbours_alike_are_one(said, chance):
    rows = [(*place, *outcome) for place, outcome in said.items()]
    chance.shuffle(rows)
    found, ends = {}, {}
    for acks in partition_acks(table(rows)):
        for batch in acks.batches:
            place, outcome = (acks.topic_id, acks.partition), (batch.delivery_count, *batch.types)
            assert ends.get((*place, batch.first - 1)) != outcome, "neighbours that are alike are one batch"
            ends[(*place, batch.last)] = outcome
            found.update({(*place, offset): outcome for offset in range(batch.first, batch.last + 1)})
    assert found == said


def test_rows_in_several_chunks_are_one_table():
    parts = [table([("T", 0, n, 1, 1)]) for n in range(4)]
    ((batch,),) = [acks.batches for acks in partition_acks(pa.concat_tables(parts))]
    assert (batch.first, batch.last) == (0, 3)


def test_a_record_that_is_named_twice_is_refused():
    with pytest.raises(InvalidRequest, match="twice"):
        partition_acks(table([("T", 0, 5, 1, 1), ("T", 0, 6, 1, 1), ("T", 0, 5, 1, 2)]))


@pytest.mark.parametrize("rows", [pa.table({"offset": [1]}), table([]).append_column("more", pa.array([], pa.int8()))])
def test_other_columns_are_refused(rows):
    with pytest.raises(InvalidRequest, match="acknowledge_type"):
        partition_acks(rows)


@pytest.mark.parametrize("row", [("T", -1, 5, 1, 1), ("T", 0, -5, 1, 1), ("T", 0, 5, -1, 1)])
def test_negative_numbers_are_refused(row):
    with pytest.raises(InvalidRequest, match="negative"):
        partition_acks(table([row]))


def test_nulls_are_refused():
    nullable = pa.schema([field.with_nullable(True) for field in SCHEMA])
    with pytest.raises(InvalidRequest, match="without nulls"):
        partition_acks(pa.table([["T"], [0], [None], [1], [1]], schema=nullable))
