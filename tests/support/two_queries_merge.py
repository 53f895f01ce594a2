"""Runs ``merge`` of docs/do/cookbook.md in the sessions of two queries, of which one has a record that the other has
written since the first read the table; then in a third session, as after a restart of the first query.

    python -m tests.support.two_queries_merge FILE

FILE gets a JSON object: by the table the error of the second merge of the first query, "" if there was none, and the
offsets in the table at the end. There is no group: the rows were not delivered, and nothing is acknowledged.
"""

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sharegroup
from tests.support.cookbook_job import COLUMNS, of_the_page

SNAPSHOT = "TBLPROPERTIES ('write.merge.isolation-level' = 'snapshot')"
TABLES = {"local.db.serializable": "", "local.db.snapshot": SNAPSHOT, "uncached.db.serializable": ""}


def main(file: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    sharegroup.acknowledge = lambda *given: None
    answers = {}
    for table, properties in TABLES.items():
        spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING iceberg {properties}")
        answers[table] = merged_by_two(spark, table)
    Path(file).write_text(json.dumps(answers))


def merged_by_two(spark: SparkSession, table: str) -> tuple[str, list[int]]:
    """The error of the query that missed rows, and the offsets in the table after its restart."""
    merge, _ = of_the_page("merge", {"options": {}, "table": table, "outcomes": lambda batch: batch})
    first, second, restarted = spark.newSession(), spark.newSession(), spark.newSession()
    merge(batch_of(first, 0), 0)
    merge(batch_of(second, 1, 2), 0)
    error = ""
    try:
        merge(batch_of(first, 2, 3), 1)
    except (Py4JJavaError, PySparkException) as raised:
        error = str(raised)
        merge(batch_of(restarted, 2, 3), 1)
    return error, sorted(row["offset"] for row in spark.newSession().table(table).collect())


def batch_of(session: SparkSession, *offsets: int) -> DataFrame:
    """The rows of accepted records with these offsets."""
    rows = [("orders", 0, offset, str(offset), "accept") for offset in offsets]
    return session.createDataFrame(rows, f"{COLUMNS}, acknowledgement STRING")


if __name__ == "__main__":
    main(*sys.argv[1:])
