"""Calls of append_once and merge_once with a table of Spark, where no record was delivered: their acknowledgement is
left out. What two drivers do at one moment, and what is refused, can so be told.

    python -m tests.support.table_writes KIND TABLE FOLDER

FOLDER/answers.json gets a JSON object: by the step the error's name and text, "" if there was none, or the offsets in
the table.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import sharegroup
from share_sink.tables import once, spark_table
from share_sink.tables.spark_table import SparkTable
from tests.support.cookbook_job import COLUMNS
from tests.support.waiting import wait_until

GROUP = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing"}
THIRD_IS_NULL = "CASE WHEN offset = 2 THEN 'reject' WHEN offset <> 3 THEN 'accept' END"


def rows_of(session: SparkSession, *offsets: int, outcome: str = "'accept'") -> DataFrame:
    """Rows of records with these offsets."""
    rows = [("orders", 0, offset, str(offset), 1, 5) for offset in offsets]
    frame = session.createDataFrame(rows, f"{COLUMNS}, deliveryCount INT, receipt LONG")
    return frame.selectExpr("*", f"{outcome} AS acknowledgement")


def error_of(call: Callable[..., object], *given: Any, **more: Any) -> str:
    """The error of a call, "" if there is none."""
    once.acknowledge = lambda *given: None
    try:
        call(*given, **more)
    except Exception as error:  # noqa: BLE001 - py4j's, too
        return f"{type(error).__name__}: {error}"
    return ""


class Answers:
    """The calls with one table, and what each answered."""

    def __init__(self, spark: SparkSession, table: str, folder: str) -> None:
        self.spark, self.table, self.folder = spark, table, folder
        self.found: dict[str, Any] = {}

    def append(self, name: str, rows: DataFrame, batch_id: int, **more: str) -> None:
        self.found[name] = error_of(sharegroup.append_once, rows, batch_id, self.table, {**GROUP, **more})

    def merge(self, name: str, rows: DataFrame) -> None:
        self.found[name] = error_of(sharegroup.merge_once, rows, 0, self.table, GROUP)

    def offsets(self, name: str) -> None:
        self.found[name] = sorted(row["offset"] for row in self.spark.newSession().table(self.table).collect())

    def alter(self, key: str, value: str) -> None:
        self.spark.sql(f"ALTER TABLE {self.table} SET TBLPROPERTIES ('{key}' = '{value}')")

    def query(self, each: Callable[[DataFrame], None], name: str) -> None:
        """Run ``each`` in the first batch of a query with this checkpoint. The query may fail."""
        stream = self.spark.readStream.format("rate").load().writeStream.trigger(availableNow=True)
        stream = stream.foreachBatch(lambda batch, batch_id: None if batch_id else each(batch))
        with contextlib.suppress(Exception):
            stream.option("checkpointLocation", f"{self.folder}/{name}").start().awaitTermination()

    def appends(self) -> None:
        """Appends in batches that fail, in threads, and without a batch."""

        def fails(batch: DataFrame) -> None:
            self.append("first", rows_of(batch.sparkSession, 1, 2, 3, outcome=THIRD_IS_NULL), 0)
            self.append("other batch", rows_of(batch.sparkSession, 4), 1)
            raise ConnectionError("the batch fails after its write")

        def again(batch: DataFrame) -> None:
            self.append("replay", rows_of(batch.sparkSession, 1, 2, 3), 0)
            self.append("second call", rows_of(batch.sparkSession, 4), 0)

        def in_a_thread(batch: DataFrame) -> None:
            in_threads([lambda: self.append("thread", rows_of(batch.sparkSession, 5), 0)])

        self.append("outside", rows_of(self.spark, 1), 0)
        self.query(fails, "first")
        self.query(again, "first")
        self.offsets("replayed")
        self.query(in_a_thread, "second")
        self.offsets("by a thread")
        self.append("of a checkpoint", rows_of(self.spark, 6), 0, checkpointLocation=f"{self.folder}/first")
        self.append("of a checkpoint, next", rows_of(self.spark, 6), 7, checkpointLocation=f"{self.folder}/first/")
        again = rows_of(self.spark.newSession(), 6)  # as in the next run of a query: the table knows the batch
        self.append("of a checkpoint, replay", again, 7, checkpointLocation=f"{self.folder}/first")
        self.append("of a checkpoint, twice", again, 7, checkpointLocation=f"{self.folder}/first")
        self.append("of no checkpoint", rows_of(self.spark, 7), 0, checkpointLocation=self.folder)
        self.offsets("by checkpoints")
        self.found["paused"] = append_beside_a_paused_driver(self.spark, self.table, Path(self.folder))
        self.offsets("both appended")

    def merges(self) -> None:
        """Merges of one query, and of several at once."""
        outcome = "CASE WHEN offset <> 5 THEN 'accept' ELSE 'release' END"
        self.merge("merge", rows_of(self.spark, 1, 2, 3, 5, 6, 9, outcome=outcome))
        self.offsets("merged")
        self.merge("two rows", rows_of(self.spark, 1, 1))

        def at_once(number: int) -> None:
            self.merge(f"at once {number}", rows_of(self.spark.newSession(), 20, 21 + number))

        in_threads([partial(at_once, number) for number in range(3)])
        self.offsets("merged at once")


def in_threads(calls: list[Callable[[], object]]) -> None:
    """Make the calls at once, each in a thread."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(kind: str, table: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING {kind}")
    answers = Answers(spark, table, folder)
    if kind == "iceberg":
        answers.append("not enabled", rows_of(spark, 1), 0)
        answers.alter("write.wap.enabled", "true")
    answers.appends()
    answers.merges()
    if kind == "iceberg":
        answers.alter("write.merge.isolation-level", "snapshot")
        answers.merge("snapshot isolation", rows_of(spark, 30))
        answers.alter("write.merge.isolation-level", "serializable")
        answers.merge("serializable", rows_of(spark, 30))
    Path(folder, "answers.json").write_text(json.dumps(answers.found))


def append_beside_a_paused_driver(spark: SparkSession, table: str, folder: Path) -> str:
    """A driver's append of a batch waits in its tasks until the successor has appended the batch. Returns its error."""

    @udf("boolean")
    def waits(_: int) -> bool:
        (folder / "begun").touch()
        wait_until((folder / "go").exists, what="the successor has written")
        return True

    def appended(session: SparkSession, rows: DataFrame) -> None:
        opened = SparkTable.open(session, table, "append_once")
        opened.append(rows.select("topic", "partition", "offset", "value"), "a query", 0)

    spark_table._staging = contextlib.nullcontext()  # type: ignore[assignment] - two drivers have two
    first, second = spark.newSession(), spark.newSession()
    errors: list[str] = []
    rows = rows_of(first, 8).where(waits("offset"))
    paused = threading.Thread(target=lambda: errors.append(error_of(appended, first, rows)))
    paused.start()
    wait_until(lambda: (folder / "begun").exists() or errors, what="the first driver writes")
    assert not errors, errors
    appended(second, rows_of(second, 8))
    (folder / "go").touch()
    paused.join()
    return errors[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
