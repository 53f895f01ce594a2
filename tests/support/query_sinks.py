"""The foreachBatch functions of the tests' queries: steps, named in the order in which they are done.

``replace``     what this (query, batch) wrote before is replaced
``append``      it is added to
``skip``        as replace, but a batch that was written before is left as it is
``acknowledge`` sharegroup.acknowledge
``write``       df.write.format("sharegroup")
``fail``        the query fails here

``acknowledge+replace`` is as a careful program has it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from pyspark.sql import DataFrame

import sharegroup
from tests.support.query_spec import QuerySpec
from tests.support.query_work import decided

OUTPUT = ("topic", "partition", "offset", "deliveryCount", "text AS value", "at", "acknowledgement")


class FailedOnPurpose(RuntimeError):
    """The batch of a test fails here."""


def is_stream_sink(spec: QuerySpec) -> bool:
    """Whether the sink's name is a format of Spark's, and no step."""
    return spec.sink != "stop" and not set(spec.sink.split("+")) <= set(_STEPS)


def each_batch(spec: QuerySpec) -> Callable[[DataFrame, int], None]:
    """The steps of the spec's sink, for foreachBatch."""
    steps = ["replace"] if spec.sink == "stop" else spec.sink.split("+")

    def each(batch: DataFrame, batch_id: int) -> None:
        rows = decided(batch, spec, batch_id)
        with sharegroup.decide(rows) if spec.columns else nullcontext(rows) as once:
            for step in steps:
                _STEPS[step](spec, once, batch_id)

    return each


def _replace(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    _output(rows, spec).write.mode("overwrite").parquet(str(spec.out_path / f"batch={batch_id}"))


def _append(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    _output(rows, spec).write.mode("append").parquet(str(spec.out_path / "batch=-1"))


def _skip(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    if not (spec.out_path / f"batch={batch_id}" / "_SUCCESS").exists():
        _replace(spec, rows, batch_id)


def _acknowledge(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    sharegroup.acknowledge(rows, batch_id, spec.sink_options)


def _write(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    rows.write.format("sharegroup").options(**spec.sink_options).mode("append").save()


def _fail(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    raise FailedOnPurpose(f"batch {batch_id}")


def _output(rows: DataFrame, spec: QuerySpec) -> DataFrame:
    """A program would write accepted rows alone; here the output has all, with their acknowledgement."""
    return rows.selectExpr(*OUTPUT) if spec.columns else rows


_STEPS: dict[str, Callable[[QuerySpec, DataFrame, int], None]] = {
    "replace": _replace,
    "append": _append,
    "skip": _skip,
    "acknowledge": _acknowledge,
    "write": _write,
    "fail": _fail,
}
