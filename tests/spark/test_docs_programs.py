"""The programs of docs/ with Spark run as they are printed, but for the broker, the names and the folders."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.support.group_state import describe
from tests.support.readme import printed, until_idle

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]

RUN = """
def run(spark, program):
    said = []
    exec(compile(program, "docs", "exec"), {"print": lambda *said_: said.append(list(map(str, said_)))})
    return said
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
