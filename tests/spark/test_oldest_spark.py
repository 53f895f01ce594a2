"""The oldest Spark with admission control for Python sources, and what a Spark without Python sources says."""

import os
import subprocess
import sys

import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.imports import ROOT
from tests.support.share_job import logged_plan, numbers, plan_records
from tools import generate_spark_table
from tools.bootstrap import OLDEST_SPARK_WITH_START

RECORDS = 6_000
OLDEST = ROOT / ".build" / f"pyspark-{OLDEST_SPARK_WITH_START}"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.soak
def test_the_oldest_spark_replays_the_batch_of_a_stopped_query(kafka, topic, job, program):
    """The coordinator is killed meanwhile. `make test-spark` also kills drivers on it."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=2_000)
    oldest = program(PYTHONPATH=f"{OLDEST}{os.pathsep}{ROOT}")
    held = oldest.start_query(queue.query("a", hold=("3000",))).wait_held("3000")
    plan = logged_plan(held.spec, 1)
    held.stop()
    assert kill_coordinators()
    oldest.start_query(queue.query("a")).wait(lambda: queue.written() == RECORDS, "all is written")
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.of("a", 1).records() == plan_records(plan)
    assert output.of("a", 1).delivery_counts() == {2}
    assert oldest.version() == OLDEST_SPARK_WITH_START


def test_a_spark_without_python_sources_is_named_when_the_format_is_imported():
    """As in Spark 3.5, whose pyspark has no module of data sources."""
    use = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark.sql.datasource" else find(name, *rest)
import pyspark_sharegroup
"""
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, cwd=ROOT)
    assert "SparkTooOld: sharegroup needs Spark 4.0 or newer, and this is Spark " in done.stderr


@pytest.mark.slow
def test_the_table_of_versions_equals_each_pysparks_own():
    """With Python 3.10 the environment has no Spark 4.3, and its column is not looked at."""
    page, found = generate_spark_table.written(), generate_spark_table.columns()
    assert {"4.0", "4.1", "4.2"} <= set(found) <= set(page)
    assert {version: page[version] for version in found} == found, "run: python tools/generate_spark_table.py"
