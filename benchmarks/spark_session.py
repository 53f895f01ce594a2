"""A Spark session in a process of its own that runs the queries of its input, one after the other.

Run as ``python -m benchmarks.spark_session FD``: a JSON line with Spark's configuration on standard input, then one
for each query; the answers are JSON lines on file descriptor FD. Ends with its standard input, so it outlives nobody.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import rand, when


def main() -> None:
    """Run the commands until the input ends."""
    spark = session(json.loads(sys.stdin.readline()))
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            try:
                answer = run(spark, json.loads(line))
            except Exception as error:  # noqa: BLE001 - the benchmark gets every error
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    os._exit(0)  # the queries' checkpoints are thrown away anyhow


def session(config: dict[str, str]) -> SparkSession:
    """Return the session, with the Python sources to compare with."""
    from benchmarks.python_sources import NothingSource, WithPython

    builder = SparkSession.builder.appName("sharegroup-benchmarks")
    for key, value in config.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for source in (NothingSource, WithPython):
        spark.dataSource.register(source)
    return spark


def run(spark: SparkSession, spec: dict[str, Any]) -> dict[str, Any]:
    """Runs one query into ``noop``, or its ``sink``, until it has read all records. ``rejected``: the share of the rows
    that are rejected, at random."""
    frame = spark.readStream.format(spec["source"]).options(**spec["options"]).load()
    if "rejected" in spec:
        outcome = when(rand(7) < spec["rejected"], "reject").otherwise("accept")
        frame = frame.withColumn("acknowledgement", outcome)
    writer = frame.writeStream.format(spec.get("sink", "noop")).options(**spec.get("sink_options", {}))
    writer = writer.option("checkpointLocation", spec["checkpoint"])
    began_s = time.monotonic()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    whole_s = time.monotonic() - began_s
    batches = [json.loads(progress.json) for progress in query.recentProgress]
    return {"whole_s": whole_s, "batches": [_batch(each) for each in batches if each["numInputRows"]]}


def _batch(progress: dict[str, Any]) -> dict[str, Any]:
    return {"records": progress["numInputRows"], **progress["durationMs"]}


if __name__ == "__main__":
    main()
