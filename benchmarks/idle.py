"""The cost of an idle query: CPU time of its processes while there is nothing to read."""

from __future__ import annotations

import time
import uuid

from benchmarks.report import Row
from benchmarks.spark_process import COORDINATOR, JVM, PYTHON, SparkProcess
from benchmarks.topics import Topic
from benchmarks.workloads import KAFKA, SHAREGROUP, from_earliest
from tests.support.kafka_broker import KafkaBroker

SETTLE_S = 5.0
"""The measurement begins after this many seconds: idle consumers are paused then, and work left from the start is
done."""


def idle_rows(spark: SparkProcess, broker: KafkaBroker, topic: Topic, seconds: float, source: str) -> list[Row]:
    """Measure a query with the default trigger, at the topic's end."""
    options = from_earliest(topic.name, broker)
    if source == SHAREGROUP:
        options["kafka.group.id"] = f"idle-{uuid.uuid4().hex[:8]}"
    spark.start(source, options, idle_after=topic.records)
    spark.wait_idle()
    time.sleep(SETTLE_S)
    before, began_s = spark.cpu_s(), time.monotonic()
    time.sleep(seconds)
    after, took_s = spark.cpu_s(), time.monotonic() - began_s
    assert spark.stop().records == topic.records
    percent = {kind: 100 * (after[kind] - before[kind]) / took_s for kind in after}
    if source == KAFKA:
        return [Row(name="idle: kafka, the JVM", value=percent[JVM], unit="% of a core", how=f"over {took_s:.0f} s")]
    return [
        Row(
            name="idle: sharegroup, all Python processes",
            value=percent[PYTHON] + percent[COORDINATOR],
            unit="% of a core",
            at_most=1.5,
            how=f"the coordinator {percent[COORDINATOR]:.1f} of it; over {took_s:.0f} s",
        ),
        Row(name="idle: sharegroup, the JVM", value=percent[JVM], unit="% of a core"),
    ]
