"""The queries that are compared: the same topic and batch size for each source, interleaved, medians over rounds."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.report import Row
from benchmarks.spark_process import CORES, Run, SparkProcess
from benchmarks.topics import Topic
from tests.support.kafka_broker import KafkaBroker

KAFKA, SHAREGROUP, WITH_PYTHON, NOTHING = SOURCES = ("kafka", "sharegroup", "sharegroup-python", "nothing")
FIRST_BATCH_MS = 300
_OURS = (SHAREGROUP, WITH_PYTHON)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A whole topic, with ``per_batch`` records a batch. The first ``warm_up`` batches of a run do not count as steady.
    ``options``: further ones, by the source."""

    name: str
    topic: Topic
    per_batch: int
    tasks: int = CORES
    warm_up: int = 1
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def options_of(source: str, workload: Workload, broker: KafkaBroker) -> dict[str, str]:
    """Return the options with which this source reads the workload."""
    limit = {"maxOffsetsPerTrigger": str(workload.per_batch)}
    if source == NOTHING:
        topic, tasks = workload.topic, str(workload.tasks)
        return {**limit, "records": str(topic.records), "tasks": tasks, "valueBytes": str(topic.value_bytes)}
    real = {**limit, **from_earliest(workload.topic.name, broker), **workload.options.get(source, {})}
    return real if source == KAFKA else {**real, "kafka.group.id": f"benchmark-{uuid.uuid4().hex[:8]}"}


def from_earliest(topic: str, broker: KafkaBroker) -> dict[str, str]:
    """Return the options that Spark's source and ours share."""
    return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def interleaved(
    spark: SparkProcess, broker: KafkaBroker, workload: Workload, sources: Sequence[str], rounds: int
) -> dict[str, list[Run]]:
    """Run each source once a round, in a rotating order; return the runs by source."""
    runs: dict[str, list[Run]] = {source: [] for source in sources}
    for round_ in range(rounds):
        first = round_ % len(sources)
        for source in (*sources[first:], *sources[:first]):
            run = spark.run(source, options_of(source, workload, broker))
            assert run.records == workload.topic.records, f"{source} read {run.records} records"
            runs[source].append(run)
    return runs


def throughput_rows(workload: Workload, runs: dict[str, list[Run]], target: float | None) -> list[Row]:
    """Return the median of the ratios to Spark's own source, round by round."""
    steady = {source: [run.steady_rate(workload.warm_up) for run in of] for source, of in runs.items()}
    whole = {source: [run.records / run.whole_s for run in of] for source, of in runs.items()}
    rows = [
        Row(
            name=f"{workload.name}: {source}",
            value=statistics.median(rates),
            unit="records/s",
            how=f"CPU {statistics.median(run.all_cpu_s * 1e6 / run.records for run in runs[source]):.2f} s/M records",
        )
        for source, rates in steady.items()
    ]
    for source in [source for source in _OURS if source in steady]:
        rows += [
            Row(
                name=f"{workload.name}: {source} / kafka",
                value=_ratio(steady[source], steady[KAFKA]),
                at_least=target if source == SHAREGROUP else None,
                how="steady batches" + _spread(steady[source], steady[KAFKA]),
            ),
            Row(
                name=f"{workload.name}: {source} / kafka",
                value=_ratio(whole[source], whole[KAFKA]),
                how="whole run, from start to end",
            ),
            Row(
                name=f"{workload.name}: {source} / kafka",
                value=_ratio([run.all_cpu_s for run in runs[source]], [run.all_cpu_s for run in runs[KAFKA]]),
                how="CPU of the whole run",
            ),
        ]
    return rows


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _spread(ours: list[float], theirs: list[float]) -> str:
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return f", {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds"


def overhead_rows(workload: Workload, runs: dict[str, list[Run]], target_ms: float | None) -> list[Row]:
    """Return how much longer a small batch takes than with the source that does nothing."""
    times = {source: [run.median_ms("triggerExecution", workload.warm_up) for run in of] for source, of in runs.items()}
    pooled = {source: _pooled_ms(of, workload.warm_up) for source, of in runs.items()}
    rows = [
        Row(name=f"{workload.name}: {source}", value=ms, unit="ms", how=_where(runs[source], workload))
        for source, ms in pooled.items()
    ]
    rows += [
        Row(
            name=f"{workload.name}: {source}, the first batch",
            value=statistics.median(_first_more_ms(run, workload.warm_up) for run in runs[source]),
            unit="ms",
            at_most=FIRST_BATCH_MS if source == SHAREGROUP else None,
            how="more than the later ones; median of the runs",
        )
        for source in times
    ]
    for source in [source for source in _OURS if source in times]:
        more = sorted(a - b for a, b in zip(times[source], times[NOTHING], strict=True))
        rows.append(
            Row(
                name=f"{workload.name}: {source} - nothing",
                value=pooled[source] - pooled[NOTHING],
                unit="ms",
                at_most=target_ms if source == SHAREGROUP else None,
                how=f"medians over all batches; by rounds {more[0]:.0f} to {more[-1]:.0f}",
            )
        )
    return rows


def _pooled_ms(runs: list[Run], warm_up: int) -> float:
    return statistics.median(batch["triggerExecution"] for run in runs for batch in run.batches[warm_up:])


def _first_more_ms(run: Run, warm_up: int) -> float:
    return float(run.batches[0]["triggerExecution"]) - run.median_ms("triggerExecution", warm_up)


def _where(runs: list[Run], workload: Workload) -> str:
    parts = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
    medians = [statistics.median(run.median_ms(part, workload.warm_up) for run in runs) for part in parts]
    return ", ".join(f"{part} {ms:.0f}" for part, ms in zip(parts, medians, strict=True))
