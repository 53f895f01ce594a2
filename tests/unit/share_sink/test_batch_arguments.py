"""What acknowledge, decide and in_order are given in place of a batch is named, before any work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from share_sink.columns import Columns
from share_sink.decided_rows import decide
from share_sink.errors import WrongColumn
from share_sink.foreach_batch import acknowledge
from share_sink.row_order import in_order

STREAM = SimpleNamespace(sparkSession=None, isStreaming=True)
BATCH = SimpleNamespace(sparkSession=None, isStreaming=False)
CALLS: dict[str, Any] = {
    "acknowledge": lambda df: acknowledge(df, 0),
    "decide": lambda df: decide(df).__enter__(),
    "in_order": in_order,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("df", "says"),
    [
        ([1], "takes the DataFrame of a batch, and the argument is of type list"),
        (decide(BATCH), "with sharegroup.decide"),  # type: ignore[arg-type]
        (STREAM, "in the function of foreachBatch, and this is a stream"),
    ],
    ids=["rows", "decide() without with", "a stream"],
)
def test_what_is_no_batch_is_refused_by_name(call: str, df: Any, says: str) -> None:
    with pytest.raises(TypeError, match=f"{call}.*{says}"):
        CALLS[call](df)


def test_the_columns_of_a_call_are_checked_without_the_others() -> None:
    schema = StructType().add("topic", StringType()).add("acknowledgement", IntegerType())
    assert Columns.of(schema, only=["topic"]).column_indexes == {"topic": 0}
    with pytest.raises(WrongColumn, match="acknowledgement"):
        Columns.of(schema, only=["topic", "acknowledgement"])


@pytest.mark.parametrize("batch_id", [{"kafka.group.id": "billing"}, "0", True, None])
def test_a_batch_id_that_is_no_number_is_refused_by_name(batch_id: Any) -> None:
    with pytest.raises(TypeError, match="batch_id is the number that foreachBatch gives"):
        acknowledge(BATCH, batch_id)  # type: ignore[arg-type]
