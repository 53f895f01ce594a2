"""The programs of docs/ with Spark run as they are printed, but for the broker, the names and the folders."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.group_state import describe
from tests.support.readme import END, printed, until_idle
from tests.support.share_job import numbers
from tests.support.spark_program import BATCH_TIMEOUT_S, SLOW_START
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


def bent(program, kafka, queue, folder):
    """The printed program with this broker, this group, its topic, and this folder."""
    return (
        program.replace("localhost:9092", kafka.bootstrap)
        .replace('"orders"', repr(queue.topics[0]))
        .replace('"billing"', repr(queue.group))
        .replace("output/", f"{folder}/output/")
        .replace("checkpoints/", f"{folder}/checkpoints/")
    )


def test_the_sinks_program_in_foreachbatch_writes_what_it_accepts(kafka, orders, job, shared_program, tmp_path):
    queue = job(orders)
    program = bent(until_idle(printed("docs/do/sink.md", "In foreachBatch")), kafka, queue, tmp_path)
    shared_program.get().run(RUN, program=program)
    files = list((tmp_path / "output" / "billing").glob("batch=*/*.parquet"))
    values = [
        row["value"] for file in files for row in pq.read_table(file, columns=["value"], partitioning=None).to_pylist()
    ]
    assert sorted(map(int, values)) == list(range(100))
    assert describe(queue).lag() == 0


def of_order(kafka, queue, folder):
    """The program of docs/learn/order.md, whose query goes on when the program has run."""
    return bent(printed("docs/learn/order.md", "Outcomes by row"), kafka, queue, folder).removesuffix(END)


def assert_in_order(folder, produced):
    """The output has each record once, and each partition in order."""
    files = (folder / "output" / "billing").glob("batch=*/*.parquet")
    files = sorted(files, key=lambda path: (int(path.parent.name.split("=")[1]), path.name))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    for partition in range(4):
        offsets = [row["offset"] for row in rows if row["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    assert sorted(int(row["value"]) for row in rows) == list(range(produced))
    early = {number for number in range(produced) if number % 40 == 7}
    assert {int(row["value"]) for row in rows if row["deliveryCount"] > 1} >= early


def test_the_program_of_order_writes_each_partition_in_order(kafka, topic, job, shared_program, tmp_path):
    orders = topic("orders", 4)
    kafka.produce(orders, numbers(100))
    queue = job(orders)
    shared_program.get().run(RUN, program=of_order(kafka, queue, tmp_path))
    try:  # not until the query is idle: it is, too, while a released record waits
        wait_until(lambda: describe(queue).lag() == 0, what="all records are done")
    finally:
        shared_program.get().run(STOP)
    assert_in_order(tmp_path, 100)


RUN_HELD = """
from tests.support.printed_steps import hold_at, run_as_scheduled

def run(spark, program, errors, held):
    if held:
        hold_at(*held)
    run_as_scheduled(spark, program, errors)
"""
KILLS = [("acquired", 2), ("decided", 1), ("acknowledged", 2), ("written", 1), ("committed", 2), ("written", 2)]
KILLS += [("acknowledged", 1), ("decided", 2)]
"""Step, and number of the batch in its run: batch 1 is the one that the kill before left unfinished, if it did."""
EACH_RUN = 40


@pytest.mark.soak
@pytest.mark.timeout(2_400)
def test_the_program_of_order_is_killed_at_each_of_its_steps(kafka, topic, job, program, tmp_path):
    """Each kill takes the coordinator, too."""
    orders, errors = topic("orders", 4), tmp_path / "errors"
    queue = job(orders)
    text, checkpoint = of_order(kafka, queue, tmp_path), f"{tmp_path}/checkpoints/billing"
    following = program()
    for number, (step, batch) in enumerate([*KILLS, ("", 0)]):
        kafka.produce(orders, numbers(EACH_RUN, first=number * EACH_RUN))
        driver, reached = following, tmp_path / f"reached-{number}"
        held = [step, batch, str(reached), checkpoint] if step else []
        driver.run(RUN_HELD, program=text, errors=str(errors), held=held)
        if step:
            following = program()  # it starts while this one works
            wait_until(reached.exists, timeout_s=BATCH_TIMEOUT_S, what=f"batch {batch} of run {number} is {step}")
        else:
            wait_until(lambda: describe(queue).lag() == 0, timeout_s=BATCH_TIMEOUT_S, what="all records are done")
        driver.kill()
        assert kill_coordinators()
    assert_in_order(tmp_path, (len(KILLS) + 1) * EACH_RUN)
    assert describe(queue).description.records.unaccounted == 0
    assert all(SLOW_START in line for line in (errors.read_text().splitlines() if errors.exists() else ()))


def test_the_program_of_views_shows_the_group(kafka, orders, job, shared_program, start, tmp_path):
    queue = job(orders)
    start(queue.query("a")).wait_written()
    program = bent(printed("docs/run/watching.md", "Views: groups as tables"), kafka, queue, tmp_path)
    ((table,),) = shared_program.get().run(RUN, program=program)
    assert queue.group in table and orders in table


def test_the_program_that_browses_shows_the_records(kafka, orders, job, shared_program, start, tmp_path):
    queue = job(orders)
    start(queue.query("a")).wait_written().stop()
    kafka.produce(orders, numbers(3))
    program = bent(printed("docs/run/watching.md", "Browsing: records that are not taken"), kafka, queue, tmp_path)
    (table,), (counted,) = shared_program.get().run(RUN, program=program)
    assert "ACQUIRED              1  b'0'" in table
    assert f"topic='{orders}', state='AVAILABLE', deliveryCount=0" in counted


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
