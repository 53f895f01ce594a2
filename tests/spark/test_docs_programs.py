"""The programs of docs/ with Spark run as they are printed, but for the broker, the names and the folders."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.support.group_state import describe
from tests.support.readme import END, printed, until_idle
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]

RUN = """
def run(spark, program):
    said = []
    exec(compile(program, "docs", "exec"), {"print": lambda *said_: said.append(list(map(str, said_)))})
    return said
"""

STOP = """
def run(spark):
    for query in spark.streams.active:
        query.stop()
"""


def test_the_sinks_program_in_foreachbatch_writes_what_it_accepts(kafka, orders, job, shared_program, tmp_path):
    queue = job(orders)
    program = (
        until_idle(printed("docs/do/sink.md", "In foreachBatch"))
        .replace("localhost:9092", kafka.bootstrap)
        .replace('"orders"', repr(orders))
        .replace('"billing"', repr(queue.group))
        .replace("output/", f"{tmp_path}/output/")
        .replace("checkpoints/", f"{tmp_path}/checkpoints/")
    )
    shared_program.get().run(RUN, program=program)
    files = list((tmp_path / "output" / "billing").glob("batch=*/*.parquet"))
    values = [
        row["value"] for file in files for row in pq.read_table(file, columns=["value"], partitioning=None).to_pylist()
    ]
    assert sorted(map(int, values)) == list(range(100))
    assert describe(queue).lag() == 0


def test_the_program_of_order_writes_each_partition_in_order(kafka, topic, job, shared_program, tmp_path):
    orders = topic("orders", 4)
    kafka.produce(orders, numbers(100))
    queue = job(orders)
    program = (
        printed("docs/learn/order.md", "Outcomes by row")
        .replace("localhost:9092", kafka.bootstrap)
        .replace('"orders"', repr(orders))
        .replace('"billing"', repr(queue.group))
        .replace("output/", f"{tmp_path}/output/")
        .replace("checkpoints/", f"{tmp_path}/checkpoints/")
        .removesuffix(END)
    )
    shared_program.get().run(RUN, program=program)
    try:  # not until the query is idle: it is, too, while a released record waits
        wait_until(lambda: describe(queue).lag() == 0, what="all records are done")
    finally:
        shared_program.get().run(STOP)
    files = (tmp_path / "output" / "billing").glob("batch=*/*.parquet")
    files = sorted(files, key=lambda path: (int(path.parent.name.split("=")[1]), path.name))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    for partition in range(4):
        offsets = [row["offset"] for row in rows if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    assert sorted(int(row["value"]) for row in rows) == list(range(100))
    assert {int(row["value"]) for row in rows if row["deliveryCount"] > 1} >= {7, 47, 87}


def test_the_program_of_views_shows_the_group(kafka, orders, job, shared_program, start):
    queue = job(orders)
    start(queue.query("a")).wait_written()
    program = (
        printed("docs/run/watching.md", "Views: groups as tables")
        .replace("localhost:9092", kafka.bootstrap)
        .replace('"billing"', repr(queue.group))
    )
    ((table,),) = shared_program.get().run(RUN, program=program)
    assert queue.group in table and orders in table


DECIDE = """
from tests.support.cookbook_job import of_the_page

def run(spark, name):
    names = {}
    of_the_page(name, names)
    batch = spark.range(3, 4).selectExpr("CAST(id AS INT) AS deliveryCount", "CAST('a' AS BINARY) AS value")
    return [row.asDict() for row in names["outcomes"](batch).collect()]
"""


@pytest.mark.parametrize(("function", "outcome"), [("merge", "reject"), ("append", "accept")])
def test_the_cookbooks_decision_gives_the_tables_columns(shared_program, function, outcome):
    """tests/spark/test_tables.py runs the rest of these programs."""
    decided = shared_program.get().run(DECIDE, name=function)
    assert decided == [{"deliveryCount": 3, "value": "a", "acknowledgement": outcome}]
