"""The foreachBatch functions of the tests' queries: steps, named in the order in which they are done.

``replace``     what this (query, batch) wrote before is replaced
``append``      it is added to
``skip``        as replace, but a batch that was written before is left as it is
``acknowledge`` sharegroup.acknowledge
``parts``       it, of the accepted rows, and of the rejected ones if there are any
``threads``     it, of all rows and of no row, side by side in threads that know nothing of the query
``inheriting``  as threads, but the threads know the query
``nothing``     it, of no row, behind a shuffle
``write``       df.write.format("sharegroup")
``fail``        the query fails here

``acknowledge+replace`` is as a careful program has it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from pyspark import inheritable_thread_target
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
        rows = sharegroup.in_order(rows) if spec.in_order else rows
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


def _parts(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    _acknowledge(spec, rows.where("acknowledgement = 'accept'"), batch_id)
    rejected = rows.where("acknowledgement = 'reject'")
    if not rejected.isEmpty():
        _acknowledge(spec, rejected, batch_id)


def _nothing(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    _acknowledge(spec, rows.where("offset < 0").repartition(2), batch_id)


def _threads(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    _side_by_side(lambda part: _acknowledge(spec, rows.where(part), batch_id))


def _inheriting(spec: QuerySpec, rows: DataFrame, batch_id: int) -> None:
    _side_by_side(inheritable_thread_target(lambda part: _acknowledge(spec, rows.where(part), batch_id)))


def _side_by_side(acknowledge: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(acknowledge, ("true", "false")))


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
    "parts": _parts,
    "nothing": _nothing,
    "threads": _threads,
    "inheriting": _inheriting,
    "write": _write,
    "fail": _fail,
}
