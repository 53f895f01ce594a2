"""The oldest Spark that is served, and what one says that is older."""

import os
import subprocess
import sys

import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.imports import ROOT
from tests.support.share_job import logged_plan, numbers, plan_records
from tools.bootstrap import OLDEST_SPARK

RECORDS = 6_000
OLDEST = ROOT / ".build" / f"pyspark-{OLDEST_SPARK}"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
def test_a_query_stopped_in_a_batch_replays_it_on_the_oldest_spark(kafka, topic, job, program):
    """The coordinator is killed meanwhile. `make test-oldest-spark` kills drivers on it, too."""
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
    assert oldest.version() == OLDEST_SPARK


def test_a_spark_too_old_is_named_when_the_format_is_used(tmp_path):
    """As on Spark 4.0 and 4.1, where the module that admission control came with is not found."""
    use = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyspark.sql.streaming.datasource" else find(name, *rest)
from pyspark_sharegroup import DefaultSource
assert DefaultSource.name() == "sharegroup"
DefaultSource(options={})
"""
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, cwd=ROOT)
    assert "SparkTooOld: sharegroup needs Spark 4.2 or newer, and this is Spark " in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_spark_4_1_says_that_a_newer_spark_is_needed(tmp_path):
    """A real one, which is fetched for it."""
    packages = tmp_path / "packages"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(packages),
        "pyspark==4.1.*",
    ]
    subprocess.run(install, check=True)
    use = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.readStream.format("sharegroup").load()
"""
    path = os.pathsep.join((str(packages), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", use],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert "sharegroup needs Spark 4.2 or newer, and this is Spark 4.1." in done.stderr
