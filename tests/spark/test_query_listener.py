"""ShareGroupListener in a user's program: each batch of the query is a line of the program's log."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.imports import python_path
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
import logging, sys, threading
from pyspark.sql import SparkSession
from share_source import ShareGroupListener
from share_source.views import query_listener

query_listener.TIMEOUT_MS = 60_000  # the machine may be busy
over = threading.Event()


class UntilTerminated(ShareGroupListener):
    def onQueryTerminated(self, event):
        over.set()


bootstrap, group, topic, checkpoint = sys.argv[1:]
logging.basicConfig(level=logging.INFO, format="LINE %(message)s", stream=sys.stdout)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.streams.addListener(UntilTerminated({"bootstrap.servers": bootstrap}))
options = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": group, "subscribe": topic}
options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
query = (
    spark.readStream.format("sharegroup").options(**options).load()
    .writeStream.format("noop").queryName("etl").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    .start()
)
query.awaitTermination()
over.wait()
"""


def test_each_batch_is_a_line_of_the_programs_log(kafka, topic, unique, tmp_path):
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, numbers(10))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kafka.bootstrap, group, orders, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **SPARK_ENVIRONMENT, "PYTHONPATH": python_path()},
    )
    lines = re.findall(r"^LINE progress: group=(\S+) member=\w+ query=etl batch=(\d+) (.*)$", done.stdout, re.MULTILINE)
    batches = [rest for name, _, rest in lines if name == group]
    counts = [
        int(re.search(r"acquired=(\d+) redelivered=0 lag=\d+ in flight=\d+ archived=0 ", each)[1]) for each in batches
    ]
    assert (counts[:2], sum(counts)) == ([6, 4], 10), done.stdout + done.stderr
