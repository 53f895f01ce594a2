"""The cost of an idle query: CPU time of its processes while there is nothing to read."""

from __future__ import annotations

import contextlib
import os
import time
import uuid

import psutil

from benchmarks.report import Row
from benchmarks.spark_process import SparkProcess
from benchmarks.topics import Topic
from benchmarks.workloads import KAFKA, SHAREGROUP, from_earliest
from tests.support.coordinator_process import coordinator_pids
from tests.support.kafka_broker import KafkaBroker

SETTLE_S = 5.0
"""Time until idle consumers are paused and work left from the start is done."""


def idle_rows(spark: SparkProcess, broker: KafkaBroker, topic: Topic, seconds: float, source: str) -> list[Row]:
    """Measure a query with the default trigger, at the topic's end."""
    options = from_earliest(topic.name, broker)
    if source == SHAREGROUP:
        options["kafka.group.id"] = f"idle-{uuid.uuid4().hex[:8]}"
    spark.start(source, options, idle_after=topic.records)
    spark.wait_idle()
    time.sleep(SETTLE_S)
    processes = spark.processes() + [psutil.Process(pid) for pid in coordinator_pids()]
    before, began_s = _cpu_s(processes), time.monotonic()
    time.sleep(seconds)
    after, took_s = _cpu_s(processes), time.monotonic() - began_s
    assert spark.stop().records == topic.records
    percent = {pid: 100 * (after[pid] - before[pid]) / took_s for pid in after}
    jvm = sum(percent[each.pid] for each in processes if each.pid in percent and _is_jvm(each))
    python = sum(percent.values()) - jvm
    coordinator = sum(percent.get(pid, 0) for pid in coordinator_pids())
    if source == KAFKA:
        return [Row(name="idle: kafka, the JVM", value=jvm, unit="% of a core", how=f"over {took_s:.0f} s")]
    return [
        Row(
            name="idle: sharegroup, all Python processes",
            value=python,
            unit="% of a core",
            at_most=1.5,
            how=f"the coordinator {coordinator:.1f} of it; over {took_s:.0f} s",
        ),
        Row(name="idle: sharegroup, the JVM", value=jvm, unit="% of a core"),
    ]


def _cpu_s(processes: list[psutil.Process]) -> dict[int, float]:
    found = {}
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            found[each.pid] = times.user + times.system
    return found


def _is_jvm(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return os.path.basename(process.exe()) == "java"
    return False
