"""The forms in which Spark knows data sources, and the sharegroup format does not: each one is refused by name."""

import os
import subprocess
import sys

import pytest

from tests.support.imports import python_path
from tests.support.java_options import SPARK_ENVIRONMENT

pytestmark = [pytest.mark.spark, pytest.mark.slow]

USE = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "kafka.group.id": "g"}
texts = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
stream = spark.readStream.format("sharegroup").schema("value string").options(**options).load()


def start():
    stream.writeStream.format("noop").option("checkpointLocation", "checkpoint").start().awaitTermination()


def insert():
    spark.sql("CREATE TABLE named (value string) USING sharegroup")
    spark.sql("INSERT INTO named VALUES ('a')")


def view():
    spark.sql(f"CREATE TEMPORARY VIEW seen USING sharegroup OPTIONS ({texts})")
    spark.sql("SELECT * FROM seen").collect()


for use in (
    lambda: spark.read.format("sharegroup").options(**options).load().count(),
    lambda: spark.read.format("sharegroup").schema("value string").options(**options).load().count(),
    start,
    lambda: spark.sql(f"CREATE TABLE t USING sharegroup OPTIONS ({texts})"),
    lambda: spark.sql("CREATE TABLE t USING sharegroup"),
    lambda: spark.catalog.createTable("t", source="sharegroup", **options),
    lambda: spark.sql(f"CREATE TABLE t USING sharegroup OPTIONS ({texts}) AS SELECT 1 AS a"),
    insert,
    lambda: spark.sql("SELECT * FROM named").collect(),
    view,
):
    try:
        use()
    except Exception as error:
        named = [name for name in ("BatchReadRefused", "SchemaRefused", "TableRefused") if f"{name}: " in str(error)]
        print("REFUSED", *named)
    else:
        print("DONE")
"""


def test_batch_reads_other_columns_and_sql_tables_are_refused_by_name(embedded, unique, tmp_path):
    orders = unique("orders")
    embedded.create_topic(orders)
    done = subprocess.run(
        [sys.executable, "-c", USE, embedded.bootstrap_servers, orders],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **SPARK_ENVIRONMENT, "PYTHONPATH": python_path()},
    )
    refused = [line.removeprefix("REFUSED ") for line in done.stdout.splitlines()]
    assert refused == [
        *("BatchReadRefused", "BatchReadRefused"),
        "SchemaRefused",
        *("TableRefused", "TableRefused", "TableRefused", "TableRefused", "TableRefused"),
        *("BatchReadRefused", "BatchReadRefused"),
    ], done.stdout + done.stderr
