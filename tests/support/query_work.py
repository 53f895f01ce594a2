"""The work of the tests' queries on a record: a UDF, in Spark's Python workers. It raises or stops where the test says
so. The workers import this module, so it uses nothing of the test's own process."""

from __future__ import annotations

import os
import threading
import time
import uuid
from pathlib import Path

import pandas as pd
import psutil
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, lit, pandas_udf

from sharegroup import progress
from tests.support.query_spec import QuerySpec

POLL_S = 0.02


class PoisonRecord(ValueError):
    """The UDF of a test met the value that it can't digest."""


def worked_on(frame: DataFrame, spec: QuerySpec) -> DataFrame:
    """The columns that a test checks, the value gone through the UDF. With the spec's own columns the rows are kept as
    they came, with ``text`` and ``at`` beside them."""
    if spec.columns:
        text = expr("make_valid_utf8(cast(value AS string))")  # pandas takes no other
        worked = frame.withColumn("text", _work(spec)(text))
        return worked.withColumn("at", _seen(spec)("topic", "partition", "offset", "deliveryCount", "text"))
    columns: list[Column | str] = [name for name in frame.columns if name not in ("key", "value", "timestampType")]
    return frame.select(*columns, _work(spec)(col("value").cast("string")).alias("value"))


def decided(rows: DataFrame, spec: QuerySpec, batch_id: int | None = None) -> DataFrame:
    """The rows with the values of the spec's columns, as the sink gets them."""
    if not spec.columns:
        return rows
    rows = rows if batch_id is None else rows.withColumn("batch", lit(batch_id))
    for name, expression in spec.columns.items():
        rows = rows.withColumn(name, expr(expression))
    return (rows.where(spec.where) if spec.where else rows).drop(*spec.drop)


def _work(spec: QuerySpec):  # type: ignore[no-untyped-def] # pyspark's own type is private
    poison, hold, held_path = set(spec.poison), set(spec.hold), str(spec.held_path)
    hold_first, hint, away = set(spec.hold_first), spec.hint, spec.away

    def work(values: pd.Series) -> pd.Series:
        if away and Path(away).exists():
            raise ConnectionError("the service is away")
        if hint:
            progress(hint)
        for value in values[values.isin(hold)] if hold else ():
            _wait_for_release(Path(held_path), value, hint)
        for value in values[values.isin(hold_first)] if hold_first else ():
            if _note_attempt(Path(held_path), value) == 0:
                _wait_for_release(Path(held_path), value, hint)
        for value in values[values.isin(poison)] if poison else ():
            raise PoisonRecord(f"poison: {value}")
        return values

    return pandas_udf(work, "string")


def _seen(spec: QuerySpec):  # type: ignore[no-untyped-def] # as above
    """When each record was seen, in ms of the wall clock; each sight is written down, with its batch."""
    seen_path = str(spec.seen_path)

    def seen(topic: pd.Series, partition: pd.Series, offset: pd.Series, count: pd.Series, text: pd.Series) -> pd.Series:
        at = pd.Series([time.time() * 1000.0] * len(topic))
        context = TaskContext.get()
        batch = int(context.getLocalProperty("streaming.sql.batchId") or -1) if context else -1
        columns = {"topic": topic, "partition": partition, "offset": offset, "deliveryCount": count, "text": text}
        folder = Path(seen_path)
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / f"{uuid.uuid4().hex}.new"
        pd.DataFrame({**columns, "batch": batch, "at": at}).to_parquet(written)
        written.rename(written.with_suffix(".parquet"))
        return at

    return pandas_udf(seen, "double")


def _note_attempt(held: Path, value: str) -> int:
    context = TaskContext.get()
    assert context is not None
    held.mkdir(parents=True, exist_ok=True)
    (held / f"{value}.attempt.{context.attemptNumber()}").touch()
    return context.attemptNumber()


def _wait_for_release(held: Path, value: str, hint: str) -> None:
    """Waits for the test's release, and signals meanwhile, as continuing work does."""
    held.mkdir(parents=True, exist_ok=True)
    written = held / f"{value}.{os.getpid()}.new"
    written.write_text(f"{os.getpid()} {_jvm()}")
    written.rename(held / f"{value}.at")
    pause = threading.Event()
    while not (held / "released").exists():
        pause.wait(POLL_S)
        if hint:
            progress(hint)


def _jvm() -> int:
    """The process id of the executor (or of the driver, with a local master) that this worker works for."""
    return next((parent.pid for parent in psutil.Process().parents() if parent.name().startswith("java")), 0)
