"""A query whose Python processes are in a sandbox that starts no process. (They have to listen: Spark calls them.)"""

import contextlib
import json
import subprocess
import sys

import pytest

from tests.support.java_options import SPARK_OPTIONS
from tests.support.sandbox import VARIABLE, sandbox_folder
from tests.support.share_job import numbers
from tests.support.spark_program import SPARK_CONFIG, START_TIMEOUT_S
from tests.support.standalone import StandaloneProcess, environment

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak]

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

told = json.loads(sys.argv[1])
os.environ.update(told["environment"])  # for the JVM and its Python processes
builder = SparkSession.builder.master("local[2]")
for key, value in told["settings"].items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

def run(name, **more):
    records = spark.readStream.format("sharegroup").options(**told["options"], **more).load()
    query = (
        records.selectExpr("string(value)").writeStream.format("memory").queryName(name)
        .option("checkpointLocation", name).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return spark.table(name).count()

try:
    run("inside")
except Exception as error:
    print("refused:", " ".join(str(error).split()))
print("read:", run("outside", **told["way_out"]))
"""


def test_a_query_in_a_sandbox_fails_with_a_remedy_that_works(kafka, topic, unique, tmp_path):
    orders = topic("orders", partitions=2)
    kafka.produce(orders, numbers(100))
    folder = sandbox_folder(tmp_path / "sandbox")
    path = f"{folder}:{environment({})['PYTHONPATH']}"
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": orders, "startingOffsets": "earliest"}
    with contextlib.closing(StandaloneProcess(tmp_path, {"bootstrap.servers": kafka.bootstrap})) as coordinator:
        told = {
            "environment": {VARIABLE: "execve,execveat", "PYTHONPATH": path},
            "settings": {**SPARK_CONFIG, "spark.driver.extraJavaOptions": " ".join(SPARK_OPTIONS)},
            "options": {**options, "kafka.group.id": unique("group")},
            "way_out": {
                "share.coordinator.endpoint": coordinator.wait_ready().endpoint,
                "share.coordinator.token.file": str(coordinator.token_file),
            },
        }
        (runtime := tmp_path / "run").mkdir(mode=0o700)  # else a coordinator of another test serves
        given = environment({"SHAREGROUP_RUNTIME_DIR": str(runtime)})
        command = [sys.executable, "-c", PROGRAM, json.dumps(told)]
        run = subprocess.run(
            command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False
        )
    assert run.returncode == 0, run.stderr
    refused, read = run.stdout.splitlines()
    assert f"No coordinator for {kafka.bootstrap} can run on this host: a process can't be started" in refused
    assert "share.coordinator.endpoint=HOST:PORT" in refused
    assert read == "read: 100"
