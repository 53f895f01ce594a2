"""What the queries of the tests do with a record: a UDF, in Spark's Python workers. Where told it raises, or stops.

Imported by the workers: nothing of the test's own side is used here.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pandas as pd
import psutil
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, pandas_udf

from tests.support.query_spec import QuerySpec

POLL_S = 0.02


class PoisonRecord(ValueError):
    """The UDF of a test met the value that it can't digest."""


def worked_on(frame: DataFrame, spec: QuerySpec) -> DataFrame:
    """The columns that a test looks at, the value gone through the UDF."""
    columns: list[Column | str] = [name for name in frame.columns if name not in ("key", "value", "timestampType")]
    return frame.select(*columns, _work(spec)(col("value").cast("string")).alias("value"))


def _work(spec: QuerySpec):  # type: ignore[no-untyped-def] # pyspark's own type is private
    poison, hold, held_path = set(spec.poison), set(spec.hold), str(spec.held_path)

    def work(values: pd.Series) -> pd.Series:
        for value in values[values.isin(hold)] if hold else ():
            _wait_for_release(Path(held_path), value)
        for value in values[values.isin(poison)] if poison else ():
            raise PoisonRecord(f"poison: {value}")
        return values

    return pandas_udf(work, "string")


def _wait_for_release(held: Path, value: str) -> None:
    held.mkdir(parents=True, exist_ok=True)
    written = held / f"{value}.{os.getpid()}.new"
    written.write_text(f"{os.getpid()} {_jvm()}")
    written.rename(held / f"{value}.at")
    pause = threading.Event()
    while not (held / "released").exists():
        pause.wait(POLL_S)


def _jvm() -> int:
    """The process id of the executor (or of the driver, with a local master) that this worker works for."""
    return next((parent.pid for parent in psutil.Process().parents() if parent.name().startswith("java")), 0)
