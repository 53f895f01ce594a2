"""The cost of the sink: one query, a tenth of its rows rejected at random, into ``noop`` and into ``sharegroup``."""

from __future__ import annotations

import statistics
import uuid

from benchmarks.report import Row
from benchmarks.spark_process import Run, SparkProcess
from benchmarks.topics import Topic
from benchmarks.workloads import from_earliest
from tests.support.kafka_broker import KafkaBroker

NOOP, SINK, DEAD_LETTERS = "noop", "sharegroup", "sharegroup, dead letters"
REJECTED = 0.1
AT_MOST_S = 1.5
_DLQ = "sink-dead-letters"
_WARM_UP = 1


def sink_rows(spark: SparkProcess, broker: KafkaBroker, topic: Topic, per_batch: int, rounds: int) -> list[Row]:
    """Medians over steady batches, interleaved; the dead letters are a tenth of a batch, and their source records
    are read again (the rows have no headers)."""
    broker.create_topic(_DLQ, 4)
    runs: dict[str, list[Run]] = {NOOP: [], SINK: [], DEAD_LETTERS: []}
    for _ in range(rounds):
        for kind, of in runs.items():
            of.append(_run(spark, broker, topic, per_batch, kind))
    times = {kind: [run.median_ms("triggerExecution", _WARM_UP) / 1000 for run in of] for kind, of in runs.items()}
    more = sorted(ours - noop for ours, noop in zip(times[SINK], times[NOOP], strict=True))
    added_s = statistics.median(both - ours for both, ours in zip(times[DEAD_LETTERS], times[SINK], strict=True))
    name = f"{per_batch:,} rows, {REJECTED:.0%} rejected at random"
    how = f"by rounds {more[0]:.2f} to {more[-1]:.2f}; {_WARM_UP} batch of each run not counted"
    return [
        *(
            Row(name=f"{name}: {kind}", value=statistics.median(times[kind]), unit="s", how=_parts(runs[kind]))
            for kind in runs
        ),
        Row(name=f"{name}: sink - noop", value=statistics.median(more), unit="s", at_most=AT_MOST_S, how=how),
        Row(
            name=f"{name}: dead letters",
            value=per_batch * REJECTED / max(added_s, 0.001),
            unit="records/s",
            how="dead letters of a batch by the time that they add to it",
        ),
    ]


def _run(spark: SparkProcess, broker: KafkaBroker, topic: Topic, per_batch: int, kind: str) -> Run:
    group = f"benchmark-{uuid.uuid4().hex[:8]}"
    source = {**from_earliest(topic.name, broker), "kafka.group.id": group, "maxOffsetsPerTrigger": str(per_batch)}
    sink = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.group.id": group}
    if kind == DEAD_LETTERS:
        sink["errors.deadletterqueue.topic.name"] = _DLQ
    spark.start(
        "sharegroup", source, rejected=REJECTED, sink="noop" if kind == NOOP else "sharegroup", sink_options=sink
    )
    run = spark.finish()
    assert run.records == topic.records, f"{kind} read {run.records} records"
    return run


def _parts(runs: list[Run]) -> str:
    parts = ("latestOffset", "addBatch", "commitOffsets")
    medians = [statistics.median(run.median_ms(part, _WARM_UP) for run in runs) for part in parts]
    return ", ".join(f"{part} {ms:.0f} ms" for part, ms in zip(parts, medians, strict=True))
