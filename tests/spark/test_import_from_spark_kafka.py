"""A query leaves Spark's own Kafka source: the checkpoint that Spark wrote says where its share group begins."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sharegroup import ShareConsumer
from sharegroup.__main__ import run
from tests.support.imports import ROOT
from tests.support.printed_program import environment_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.broker]

JARS = ROOT / ".build" / "spark-kafka"
PROGRAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, topic, checkpoint, jars = sys.argv[1:]
spark = SparkSession.builder.config("spark.driver.extraClassPath", jars).getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="4").load()
query = records.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
"""


def test_a_query_of_spark_s_kafka_source_goes_on_as_a_group(kafka, topic, unique, tmp_path, capsys):
    orders, group, checkpoint = topic("orders", partitions=2), unique("billing"), tmp_path / "checkpoint"
    for partition in range(2):
        kafka.produce(orders, ["v"] * 6, partition=partition)
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = [kafka.bootstrap, orders, str(checkpoint), f"{JARS}/*"]
    subprocess.run([sys.executable, "program.py", *arguments], cwd=tmp_path, env=environment_of(), check=True)
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    assert last == 2
    (checkpoint / "commits" / str(last)).unlink()  # as a driver leaves it that was killed before the commit
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group]
    assert run([*command, "--from-checkpoint", str(checkpoint), "--execute"]) == 0
    assert "Batch 2 began and was not committed" in capsys.readouterr().err
    conf = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
    got = []
    with ShareConsumer(conf) as consumer:
        consumer.subscribe([orders])
        wait_until(lambda: got.extend(consumer.poll(1.0)) or len(got) >= 4, what="the last batch comes again")
        assert not consumer.poll(2.0)
    assert sorted((each.partition(), each.offset()) for each in got) == [(0, 4), (0, 5), (1, 4), (1, 5)]
