"""The measurements in their order, on one broker, each with its target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.coordinator_cost import coordinator_rows, start_rows
from benchmarks.core_cost import core_rows
from benchmarks.dead_letters import dead_letter_rows
from benchmarks.first_rows import first_rows
from benchmarks.flow import flow_rows
from benchmarks.growth import group_rows, partition_rows, query_rows
from benchmarks.growth_kafka import SIZES, kafka_group_rows
from benchmarks.growth_runs import run_rows
from benchmarks.hosts import host_rows
from benchmarks.kept_query import kept_query_rows
from benchmarks.load_costs import loaded_rows
from benchmarks.order import order_rows
from benchmarks.other_clusters import SECURITY, options_by_source, secured_broker
from benchmarks.report import Row
from benchmarks.share_consumers import share_consumer_rows, skewed_rows, slow_work_rows
from benchmarks.sink_cost import sink_rows
from benchmarks.small_acks import small_ack_rows
from benchmarks.spark_process import SparkProcess
from benchmarks.state_log import load_rows
from benchmarks.topics import Topic, fill
from benchmarks.web_page import web_rows
from benchmarks.workloads import KAFKA, NOTHING, Workload, interleaved, overhead_rows, throughput_rows
from coordinator.service.coordinator import set_up_python
from tests.support.kafka_broker import KafkaBroker

PARTS = (
    "throughput",
    "zstd",
    "lz4",
    "large",
    "secured",
    "two-brokers",
    "two-executors",
    "small",
    "first-rows",
    "sink",
    "dead-letters",
    "kept-query",
    "share-consumer",
    "rpc",
    "state",
    "web",
    "core",
    "growth",
    "load",
    "hosts",
    "order",
    "flow",
)
WITH_SPARK = {"throughput", "zstd", "lz4", "large", "secured", "two-brokers", "small", "sink"}
LARGE, MEDIUM, SMALL = 500_000, 100_000, 1_000
OVERHEAD_MS = 10


class Suite:
    """One run of all parts, or of some. ``rows`` has the measurements so far, ``details`` the batches of every run.
    ``most_runs``: in a partition, where the growth is measured."""

    def __init__(self, sources: Sequence[str], *, quick: bool, most_runs: int, say: Callable[[str], None]) -> None:
        self.rows: list[Row] = []
        self.details: dict[str, Any] = {}
        self._sources = tuple(dict.fromkeys((KAFKA, *sources)))
        self._quick = quick
        self._rounds = 3 if quick else 7
        self._most_runs = most_runs
        self._say = say

    def run(self, parts: Sequence[str]) -> None:
        with KafkaBroker(java_options=(), log_retention_check_interval_ms="300000") as broker:
            if WITH_SPARK & set(parts):
                with SparkProcess(unix_sockets=True) as spark:
                    self._with_spark(spark, broker, parts)
            if "small" in parts:
                with SparkProcess(unix_sockets=False) as spark:
                    self._small(spark, broker, "TCP sockets", None)
            if "two-executors" in parts:
                with SparkProcess(unix_sockets=True, executors=2) as spark:
                    topic = self._fill(broker, "two-executors", 4 * LARGE, 200)
                    self._compare(spark, broker, _as_everywhere("two executors", topic), None)
            if "dead-letters" in parts:
                self._say("the coordinator's dead letters")
                self.rows += dead_letter_rows(broker, self._fill(broker, "given-up", 200_000, 200))
            self._programs(broker, parts)
            if "rpc" in parts:
                self._say("the coordinator's start")
                self.rows += start_rows(broker, 5 if self._quick else 15)
                self._say("acquire + complete by RPC")
                self.rows += coordinator_rows(broker, groups=4 if self._quick else 12)
            if "state" in parts:
                self._state(broker)
            if "web" in parts:
                self._say("the page beside acknowledgements")
                quick = self._quick
                self.rows += web_rows(
                    broker, 500 if quick else 2_000, 100_000 if quick else 1_000_000, 5 if quick else 10
                )
            self._growth(broker, parts)
        if "core" in parts:
            set_up_python()  # as the coordinator's process does
            self.rows += core_rows(300 if self._quick else 2000)

    def _programs(self, broker: KafkaBroker, parts: Sequence[str]) -> None:
        if "kept-query" in parts:
            self._say("a bad record: keep_running and a scheduler")
            self.rows += kept_query_rows(broker, 1 if self._quick else 3)
        if "share-consumer" in parts:
            self._share_consumer(broker)
        if "first-rows" in parts:
            self._say("README's first program")
            self.rows += first_rows(1 if self._quick else 3)

    def _growth(self, broker: KafkaBroker, parts: Sequence[str]) -> None:
        if "load" in parts:
            self._say("a loaded coordinator's unit costs")
            self.rows += loaded_rows(broker, batches=50 if self._quick else 300, seconds=5 if self._quick else 20)
        if "hosts" in parts:
            self._say("several hosts")
            self.rows += host_rows(broker, rounds=2 if self._quick else 5, seconds=10 if self._quick else 30)
        if "order" in parts:
            self._say("two queries in order")
            self.rows += order_rows(broker, rounds=2 if self._quick else 5)
        if "flow" in parts:
            self._say("a group's rate among kills")
            self.rows += flow_rows(broker, seconds=60 if self._quick else 600, queries=not self._quick)
        if "growth" not in parts:
            return
        self._say(f"growth: runs, up to {self._most_runs:,}")
        self.rows += run_rows(self._most_runs)
        self._say("growth: partitions, queries")
        self.rows += [*partition_rows(), *query_rows()]
        self._say("growth: groups of a coordinator")
        self.rows += group_rows(most=1_000 if self._quick else 10_000)
        self._say("growth: groups of a coordinator, state in Kafka")
        self.rows += kafka_group_rows(broker, SIZES[:2] if self._quick else SIZES)

    def _share_consumer(self, broker: KafkaBroker) -> None:
        records = 100_000 if self._quick else LARGE
        topic = self._fill(broker, "shared", 2 * records, 200)
        self._say("ShareConsumer: ours and confluent's")
        self.rows += share_consumer_rows(broker, topic, records=records, rounds=self._rounds)
        self._say("ShareConsumer: skewed partitions, native and ours")
        self.rows += skewed_rows(broker, records=records)
        self._say("ShareConsumer: slow work, native and ours")
        self.rows += slow_work_rows(broker, seconds=10 if self._quick else 30)

    def _state(self, broker: KafkaBroker) -> None:
        self._say("small acknowledgements, state in Kafka")
        acks, seconds = (300, 10) if self._quick else (2_000, 30)
        self.rows += small_ack_rows(broker, one_by_one=acks, seconds=seconds)
        updates = 100_000 if self._quick else 1_000_000
        self._say(f"a state partition of {updates:,} updates")
        self.rows += load_rows(broker, updates)

    # --- with Spark

    def _with_spark(self, spark: SparkProcess, broker: KafkaBroker, parts: Sequence[str]) -> None:
        if "throughput" in parts:
            self._throughput(spark, broker)
        if "zstd" in parts:
            topic = self._fill(broker, "zstd", 4 * LARGE, 200, compression_type="zstd")
            workload = Workload(name="200 B zstd, 500,000", topic=topic, per_batch=LARGE)
            self._compare(spark, broker, workload, 1.0)
        if "lz4" in parts:
            topic = self._fill(broker, "lz4", 4 * LARGE, 200, compression_type="lz4")
            self._compare(spark, broker, Workload(name="200 B lz4, 500,000", topic=topic, per_batch=LARGE), 1.0)
        if "large" in parts:
            topic = self._fill(broker, "ten-kilobytes", 60 * SMALL, 10_000)
            self._compare(spark, broker, Workload(name="10 KB, 20,000", topic=topic, per_batch=20 * SMALL), 1.0)
        if "secured" in parts:
            with secured_broker() as secured:
                topic = self._fill(secured.broker, "secured", 4 * LARGE, 200)
                for security in SECURITY:
                    options = options_by_source(secured.configs[security])
                    self._compare(spark, secured.broker, _as_everywhere(security, topic, options), None)
        if "two-brokers" in parts:
            with KafkaBroker(java_options=()) as one, KafkaBroker(java_options=(), joins=one):
                topic = self._fill(one, "two-brokers", 4 * LARGE, 200, nodes=(1, 2, 1, 2))
                self._compare(spark, one, _as_everywhere("two brokers", topic), None)
        if "small" in parts:
            self._small(spark, broker, "Unix sockets", OVERHEAD_MS)
        if "sink" in parts:
            topic = self._fill(broker, "decided", 4 * LARGE, 200)
            self._say("the sink")
            self.rows += sink_rows(spark, broker, topic, LARGE, 1 if self._quick else 3)

    def _throughput(self, spark: SparkProcess, broker: KafkaBroker) -> None:
        plain = self._fill(broker, "plain", 4 * LARGE if self._quick else 6 * LARGE, 200)
        large = self._fill(broker, "kilobyte", 3 * LARGE, 1000)
        self._compare(spark, broker, Workload(name="200 B, 500,000", topic=plain, per_batch=LARGE), 1.5)
        self._compare(spark, broker, Workload(name="200 B, 100,000", topic=plain, per_batch=MEDIUM), 1.1)
        self._compare(spark, broker, Workload(name="1 KB, 500,000", topic=large, per_batch=LARGE), 1.2)

    def _compare(self, spark: SparkProcess, broker: KafkaBroker, workload: Workload, target: float | None) -> None:
        self._say(f"throughput: {workload.name} a batch")
        runs = interleaved(spark, broker, workload, self._sources, self._rounds)
        self._keep(workload.name, runs)
        self.rows += throughput_rows(workload, runs, target)

    def _small(self, spark: SparkProcess, broker: KafkaBroker, sockets: str, target_ms: float | None) -> None:
        self._say(f"small batches, {sockets}")
        topic = self._fill(broker, f"small-{sockets.split()[0]}", (20 if self._quick else 30) * SMALL, 200)
        workload = Workload(name=f"1,000 a batch, {sockets}", topic=topic, per_batch=SMALL, tasks=1, warm_up=5)
        runs = interleaved(spark, broker, workload, tuple(dict.fromkeys((*self._sources, NOTHING))), self._rounds)
        self._keep(workload.name, runs)
        self.rows += overhead_rows(workload, runs, target_ms)

    def _fill(self, broker: KafkaBroker, name: str, records: int, value_bytes: int, **config: Any) -> Topic:
        self._say(f"filling {name}: {records:,} records of {value_bytes:,} B")
        return fill(broker, name, records, value_bytes, **config)

    def _keep(self, name: str, runs: dict[str, list[Any]]) -> None:
        self.details[name] = {source: [asdict(run) for run in of] for source, of in runs.items()}


def _as_everywhere(where: str, topic: Topic, options: Mapping[str, Mapping[str, str]] | None = None) -> Workload:
    return Workload(name=f"200 B, 500,000, {where}", topic=topic, per_batch=LARGE, options=options or {})
