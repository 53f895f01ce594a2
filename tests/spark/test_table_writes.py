"""append_once and merge_once, without a group: what is refused, and what a table has after calls at one moment.
tests/spark/test_tables.py has the kills."""

import json

import pytest

from tests.support.postgres import PostgresServer, programs
from tests.support.spark_runs import runs_folder
from tests.support.table_formats import DELTA, ICEBERG, RUN_TIMEOUT_S, start_with

pytestmark = [pytest.mark.spark]

REFUSED = """
import sharegroup, sys
from tests.support.table_writes import GROUP, error_of, rows_of

def run(spark, database):
    rows, said = rows_of(spark, 1), {}
    spark.sql("CREATE OR REPLACE TEMP VIEW shown AS SELECT 1 AS offset")
    spark.sql("CREATE TABLE IF NOT EXISTS plain (topic STRING) USING parquet")
    for call in (sharegroup.append_once, sharegroup.merge_once):
        for table in ("plain", "shown", "missing", "no table"):
            said[f"{call.__name__} {table}"] = error_of(call, rows, 0, table, GROUP)
        said[f"{call.__name__} receipt"] = error_of(call, rows.drop("receipt"), 0, "plain", GROUP)
        said[f"{call.__name__} group"] = error_of(call, rows, 0, "plain")
    spark.sql("DROP TABLE plain")
    sys.modules["psycopg"] = None
    said["psycopg"] = error_of(sharegroup.merge_once, rows, 0, "orders", GROUP, database="dbname=sales")
    del sys.modules["psycopg"]
    return said
"""


def test_what_no_table_can_take_is_refused_by_name(shared_program):
    said = shared_program.get().run(REFUSED, database="")
    for call in ("append_once", "merge_once"):
        assert said[f"{call} plain"].startswith("TableUnfit: The table plain can't be used: it is parquet. Name")
        assert "it is a view" in said[f"{call} shown"]
        for missing in ("missing", "no table"):
            assert said[f"{call} {missing}"].startswith(f"TableNotOpened: The table {missing} can't be opened: [")
        assert said[f"{call} receipt"].startswith("MissingColumn: The rows have no column receipt")
        assert said[f"{call} group"].startswith("NoSinkOptions")
    assert said["psycopg"].startswith("PsycopgMissing") and 'pip install "sharegroup[postgresql]"' in said["psycopg"]


MERGED = """
import sharegroup
from tests.support.table_writes import GROUP, THIRD_IS_NULL, error_of, rows_of

def run(spark, database, tables):
    said = []
    for table in tables:
        merge = lambda rows: error_of(sharegroup.merge_once, rows, 0, table, GROUP, database=database)
        said.append(merge(rows_of(spark, 1, 2, 3, outcome=THIRD_IS_NULL)))
        said.append(merge(rows_of(spark, 1, 2, 4, 4, outcome="if(offset = 1, 'release', 'accept')")))
    return said
"""
MORE = (
    'id bigint GENERATED ALWAYS AS IDENTITY, "a ""b""" int DEFAULT 7, same int GENERATED ALWAYS AS (partition) STORED'
)


@pytest.mark.skipif(not programs(), reason="there is no PostgreSQL server: neither initdb nor postgres is installed")
def test_postgresql_has_a_row_of_each_accepted_record(shared_program):
    """Columns with a default, and columns that PostgreSQL computes, need no column in the rows."""
    columns = 'topic text, partition int, "offset" bigint, value varchar(9)'
    with PostgresServer(programs()) as server:
        server.rows('CREATE SCHEMA "My sales"')
        server.rows(f"CREATE TABLE orders ({columns})")
        server.rows(
            f'CREATE TABLE "My sales"."Orders" ({columns.replace("topic", chr(34) + "Topic" + chr(34))}, {MORE})'
        )
        server.rows("CREATE TABLE keyless (topic text, value text)")
        server.rows(f"CREATE TABLE wide ({columns}, amount int)")
        names = ["Orders", '"My sales"."Orders"', "keyless", "wide", "missing"]
        said = shared_program.get().run(MERGED, database=server.database, tables=names)
        assert said[:4] == [""] * 4
        for table in names[:2]:
            assert server.rows(f'SELECT "offset", value FROM {table} ORDER BY 1') == [
                (2, "2"),
                (3, "3"),
                (4, "4"),
                (4, "4"),
            ]
        assert said[4].startswith("TableUnfit: The table keyless can't be used: it has no column offset")
        assert said[6].startswith("MissingColumn: The rows have no column amount (a column of the table wide)")
        assert said[8].startswith(
            "TableNotOpened: The table missing can't be opened: the database postgres has no such"
        )
        server.rows('ALTER TABLE keyless ADD partition int, ADD "offset" bigint')
        assert shared_program.get().run(MERGED, database=server.database, tables=["keyless"]) == ["", ""]


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(("kind", "table_format"), [("delta", DELTA), ("iceberg", ICEBERG)], ids=["delta", "iceberg"])
def test_a_table_of_spark_has_a_batch_once(kind, table_format):
    """Also beside a driver that is paused in its write, and goes on when its successor has written the batch."""
    with runs_folder() as folder:
        log, table = folder / "run.log", table_format.table.format(folder=folder)
        given = (kind, table, str(folder))
        program = start_with(table_format, folder, log, "tests.support.table_writes", *given)
        assert program.wait(RUN_TIMEOUT_S) == 0, log.read_text(errors="replace")
        said = json.loads((folder / "answers.json").read_text())
    for refused in ("outside", "other batch", "of no checkpoint"):
        assert said[refused].startswith("QueryNotKnown"), refused
    for twice in ("second call", "of a checkpoint, twice"):
        assert said[twice].startswith("BatchAppendedTwice"), twice
    assert said["two rows"].startswith("RecordTwice: The record orders-0@1 has 2 rows")
    taken = (
        "first",
        "replay",
        "thread",
        "of a checkpoint",
        "of a checkpoint, next",
        "of a checkpoint, replay",
        "merge",
    )
    assert [said[name] for name in (*taken, *(f"at once {number}" for number in range(3)))] == [""] * 10
    assert said["replayed"] == [1, 3]
    assert said["by a thread"] == [1, 3, 5]
    assert said["by checkpoints"] == [1, 3, 5, 6]
    assert said["both appended"] == [1, 3, 5, 6, 8]
    assert said["merged"] == [1, 2, 3, 6, 8, 9]
    assert said["merged at once"] == [1, 2, 3, 6, 8, 9, 20, 21, 22, 23]
    if kind == "iceberg":
        assert said["not enabled"].startswith("TableUnfit") and "'write.wap.enabled' = 'true'" in said["not enabled"]
        assert said["snapshot isolation"].startswith("TableUnfit") and said["serializable"] == said["paused"] == ""
    else:
        assert "ConcurrentTransactionException" in said["paused"] or "DELTA_CONCURRENT_TRANSACTION" in said["paused"]
