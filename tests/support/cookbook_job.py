"""Runs a function of docs/do/cookbook.md as a job, and stops it at a point, for a test that kills it there.

    python -m tests.support.cookbook_job FUNCTION TABLE CREATE FOLDER OPTIONS [POINT CALL FILE]

FUNCTION is ``merge`` or ``append``, TABLE the table's name in SQL, CREATE what follows its columns when it is created,
OPTIONS a JSON object with the source's. For ``replace`` the table is there, and CREATE is its database. CALL is the
number of a call in this run, from 1 on. FILE is made at the POINT; then the job waits for its end. A run that comes to
its end writes Spark's table to FOLDER/table.json. The points are:

- ``before`` and ``after`` the function, and ``between`` its acknowledgement and its write;
- ``writing``: the write has made a file of data;
- ``staged`` and ``committed``: before and after the commit that another one may be before;
- in PostgreSQL after a ``row`` was copied, or a ``statement`` executed.
"""

import json
import re
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from share_sink.tables import once
from share_sink.tables.spark_table import SparkTable
from tests.support.held_job import hold
from tests.support.imports import ROOT
from tests.support.readme import until_idle
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

PAGE = ROOT / "docs" / "do" / "cookbook.md"
BY_RECORD = "CASE WHEN number % 7 = 3 THEN 'reject' ELSE 'accept' END"
BY_DELIVERY_COUNT = f"CASE WHEN number % 10 = 5 AND deliveryCount < 3 THEN 'release' ELSE {BY_RECORD} END"
"""As most people write it: releases a record until its third delivery. A replay raises the count, and so brings that
forward."""
COLUMNS = "topic STRING, partition INT, offset LONG, value STRING"


def main(name: str, table: str, create: str, folder: str, options: str, *held: str) -> None:
    spark = SparkSession.builder.appName(name).getOrCreate()
    is_sparks = name != "replace"
    if is_sparks:
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({COLUMNS}) {create}")
    given = json.loads(options)
    group = {key: value for key, value in given.items() if key.startswith(("kafka.", "errors."))}
    decide = decide_by(BY_RECORD if name == "append" else BY_DELIVERY_COUNT)
    names = {"options": group, "table": table, "database": create, "outcomes": decide}
    function, query = of_the_page(name, names)
    names[name] = function_held(function, *held)
    query = until_idle(query).replace('.option("subscribe", "orders")', f".options(**{given!r})")
    exec(query.replace("checkpoints/billing-1", f"{folder}/checkpoint"), names)
    if is_sparks:
        # Another session: Iceberg's catalog has the table of its session in a cache.
        rows = [row.asDict() for row in spark.newSession().table(table).collect()]
        Path(folder, "table.json").write_text(json.dumps(rows))


def function_held(
    function: Callable[..., None], point: str = "", call: str = "0", file: str = ""
) -> Callable[..., None]:
    """The function of the page, which holds at the point."""
    held = held_at(int(call), file)
    if point == "between":
        once.acknowledge = held(once.acknowledge, after=True)
    elif point in ("staged", "committed"):
        commits = SparkTable._until_no_other_was_first
        SparkTable._until_no_other_was_first = held(commits, after=point == "committed")  # type: ignore[method-assign]
    elif point == "writing":
        once.acknowledge = held_at(int(call), file, stop_at_a_file_of_data)(once.acknowledge, after=True)
    elif point in ("row", "statement"):
        import psycopg

        kind, method = {"row": (psycopg.Copy, "write_row"), "statement": (psycopg.Cursor, "execute")}[point]
        setattr(kind, method, held(getattr(kind, method), after=True))
    return held(function, after=point == "after") if point in ("before", "after") else function


def stop_at_a_file_of_data(file: str) -> None:
    """Stop the JVM, from a thread, as soon as there is one more file of data in the run's folder, and make ``file``."""
    folder = Path(file).parent

    def files() -> set[Path]:
        return {each for each in folder.rglob("*.parquet") if "_delta_log" not in each.parts}

    def stop(before: set[Path]) -> None:
        wait_until(lambda: files() - before, timeout_s=600, what="the write makes a file of data")
        stop_process(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]
        Path(file).touch()

    threading.Thread(target=stop, args=(files(),), daemon=True).start()


def decide_by(expression: str) -> Callable[[DataFrame], DataFrame]:
    """A function that adds the outcome."""
    return lambda batch: batch.selectExpr("*", "CAST(CAST(value AS STRING) AS INT) AS number").selectExpr(
        "topic", "partition", "offset", "deliveryCount", "receipt", "CAST(value AS STRING) AS value",
        f"{expression} AS acknowledgement",
    )  # fmt: skip


def of_the_page(name: str, names: dict[str, Any]) -> tuple[Any, str]:
    """The function of this name as the page has it, and its query. The function finds these names in place of the
    page's; ``names`` has all of them afterwards."""
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        definitions, begin, query = program.partition("\norders = ")
        if f"def {name}(" in definitions:
            ours = dict(names)
            exec(compile(definitions, str(PAGE), "exec"), names)
            names.update(ours)
            return names[name], begin + query
    raise AssertionError(f"{PAGE} has no function {name}")


def held_at(call: int, file: str, hold: Callable[[str], None] = hold) -> Callable[..., Callable[..., Any]]:
    """Wraps a function, which then holds before or after its call of this number."""
    calls = []

    def wrap(function: Callable[..., Any], after: bool) -> Callable[..., Any]:
        @wraps(function)
        def held(*given: Any, **more: Any) -> Any:
            calls.append(given)
            is_here = len(calls) == call
            if is_here and not after:
                hold(file)
            found = function(*given, **more)
            if is_here and after:
                hold(file)
            return found

        return held

    return wrap


if __name__ == "__main__":
    main(*sys.argv[1:])
