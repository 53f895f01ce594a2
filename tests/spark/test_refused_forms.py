"""The forms in which Spark knows data sources, and the sharegroup format does not: each one is refused by name."""

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

USE = """
NAMES = ("BatchReadRefused", "SchemaRefused", "TableRefused")


def run(spark, options, checkpoint):
    texts = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    stream = spark.readStream.format("sharegroup").schema("value string").options(**options).load()

    def start():
        stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start().awaitTermination()

    def insert():
        spark.sql("CREATE TABLE named (value string) USING sharegroup")
        spark.sql("INSERT INTO named VALUES ('a')")

    def view():
        spark.sql(f"CREATE TEMPORARY VIEW seen USING sharegroup OPTIONS ({texts})")
        spark.sql("SELECT * FROM seen").collect()

    def refused(use):
        try:
            use()
        except Exception as error:
            return [name for name in NAMES if f"{name}: " in str(error)]
        return []

    uses = (
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
    )
    return [refused(use) for use in uses]
"""


def test_batch_reads_other_columns_and_sql_tables_are_refused_by_name(embedded, unique, tmp_path, shared_program):
    orders = unique("orders")
    embedded.create_topic(orders)
    options = {"kafka.bootstrap.servers": embedded.bootstrap_servers, "subscribe": orders, "kafka.group.id": "g"}
    assert shared_program.get().run(USE, options=options, checkpoint=str(tmp_path)) == [
        *(["BatchReadRefused"], ["BatchReadRefused"]),
        ["SchemaRefused"],
        *([["TableRefused"]] * 5),
        *(["BatchReadRefused"], ["BatchReadRefused"]),
    ]
