"""Runs a printed program with foreachBatch, whose query is named ``query``, and stops it at a step of a batch, for a
test that kills it there. The program's process calls :func:`hold_at`, and then :func:`run_as_scheduled`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrameWriter, SparkSession

import sharegroup
from tests.support.cookbook_job import held_at
from tests.support.coordinator_process import coordinator_pids
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

STEPS: dict[str, tuple[Any, str, bool]] = {
    "acquired": (sharegroup, "in_order", False),
    "decided": (sharegroup, "acknowledge", False),
    "acknowledged": (sharegroup, "acknowledge", True),
    "written": (DataFrameWriter, "parquet", True),
    "committed": (DataFrameWriter, "parquet", True),
}
"""By step of docs/learn/order.md the function before or, if True, after which it is reached."""


def run_as_scheduled(spark: SparkSession, program: str, errors: str) -> None:
    """Run the program, and again when its query has ended, as a scheduler does: on a busy machine Spark may not wait
    for its Python workers. Its errors are appended to the file ``errors``, one a line."""

    def keep() -> None:
        spark.createDataFrame([], "nothing int")  # as in tests.support.query_program
        while True:
            names: dict[str, Any] = {}
            try:
                exec(compile(program, "docs", "exec"), names)
                names["query"].awaitTermination()
            except Exception as error:  # noqa: BLE001 - the test gets every error
                with open(errors, "a", encoding="utf-8") as file:
                    file.write(f"{str(error)!r}\n")

    threading.Thread(target=keep, daemon=True).start()


def hold_at(step: str, call: int, file: str, checkpoint: str) -> None:
    """Make ``file`` at the step of the batch of this number in this process, from 1 on; the batch goes no further."""
    owner, name, after = STEPS[step]
    hold: dict[str, Callable[[str], None]] = {}
    if step == "committed":
        hold["hold"] = lambda file: _let_spark_commit(file, Path(checkpoint))
    setattr(owner, name, held_at(call, file, **hold)(getattr(owner, name), after))


def _let_spark_commit(file: str, checkpoint: Path) -> None:
    """Stop the coordinators, so that nothing more is acquired, and make the file once Spark has committed the batch."""
    for pid in coordinator_pids():
        stop_process(pid)

    def commits() -> set[Path]:
        return set(checkpoint.glob("commits/[0-9]*"))

    def wait(before: set[Path]) -> None:
        wait_until(lambda: commits() - before, what="Spark commits the batch")
        Path(file).touch()

    threading.Thread(target=wait, args=(commits(),), daemon=True).start()
