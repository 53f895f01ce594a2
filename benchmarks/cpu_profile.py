"""The CPU time of a query: of its start and of each further record, by process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.report import Row
from benchmarks.spark_process import COORDINATOR, JVM, PYTHON, Run, SparkProcess
from benchmarks.topics import Topic
from benchmarks.workloads import Workload, interleaved
from tests.support.kafka_broker import KafkaBroker


def cpu_rows(
    spark: SparkProcess, broker: KafkaBroker, workload: Workload, short: Topic, sources: Sequence[str], rounds: int
) -> list[Row]:
    """Return for each source the CPU time of a million further records, and of the rest of a run. ``short``: a topic
    with fewer records than the workload's own; what both runs cost alike is the start. A first round warms the JVM up,
    and does not count."""
    interleaved(spark, broker, workload, sources, 1)
    long_runs = interleaved(spark, broker, workload, sources, rounds)
    short_runs = interleaved(spark, broker, replace(workload, topic=short), sources, rounds)
    more_records = (workload.topic.records - short.records) / 1e6
    rows = []
    for source in sources:
        long_s, short_s = _medians(long_runs[source]), _medians(short_runs[source])
        each_s = {kind: (long_s[kind] - short_s[kind]) / more_records for kind in long_s}
        start_s = {kind: short_s[kind] - each_s[kind] * short.records / 1e6 for kind in long_s}
        name = f"{workload.name}: {source}"
        rows.append(Row(name=f"{name}, CPU of a million more", value=sum(each_s.values()), unit="s", how=_by(each_s)))
        rows.append(Row(name=f"{name}, CPU of the start", value=sum(start_s.values()), unit="s", how=_by(start_s)))
    return rows


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    return {kind: statistics.median(run.cpu_s[kind] for run in runs) for kind in (JVM, PYTHON, COORDINATOR)}


def _by(seconds: dict[str, float]) -> str:
    return ", ".join(f"{kind} {value:.2f}" for kind, value in seconds.items())
