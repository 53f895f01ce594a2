"""The unit costs of a coordinator's process that tests/simulation/load_costs.py has, with the state in Kafka; and a
loaded coordinator, against which the simulation is held.

CPU time is told apart by thread: librdkafka's run beside Python's, which share one interpreter and so one core."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Producer

from benchmarks.report import Row
from benchmarks.small_acks import p99
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import Heartbeat, LatestOffsets, NextPlan, StartPlan
from coordinator.service.brokers.cluster import LATEST, KafkaCluster
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.state_topic import StateTopic
from tests.support.kafka_broker import KafkaBroker

PARTITIONS = (1, 50)
A_BATCH = 1_000
SPARK_S = 0.01
"""A plan waits this long, in seconds, between acquisition and start, and after its tasks: Spark writes its log then."""
LOAD_GROUPS, LOAD_QUERIES = 8, 4
PROCESSES = 2
READY_S = 120.0
SETTLED_AFTER = 1_000
CONFIGS = {"share.session.timeout.ms": "600000", "share.heartbeat.interval.ms": "60000"}


class Spent(NamedTuple):
    """CPU milliseconds of a process: of librdkafka's threads, and of all others."""

    native: float
    python: float

    def each(self, count: int) -> str:
        """The times of one of ``count`` calls, for a table."""
        return f"CPU each: Python {self.python / count:.2f}, librdkafka {self.native / count:.2f}"

    def __sub__(self, before: Spent) -> Spent:
        return Spent(self.native - before.native, self.python - before.python)


def spent(pid: int) -> Spent:
    """The CPU time of a process until now. A thread that has ended counts as Python's."""
    native_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if (task / "comm").read_text().startswith("rdk:"):
                native_ns += int((task / "schedstat").read_text().split()[0])
    whole_s = sum(psutil.Process(pid).cpu_times()[:2])
    return Spent(native_ns / 1e6, 1000 * whole_s - native_ns / 1e6)


def loaded_rows(broker: KafkaBroker, *, batches: int, seconds: int) -> list[Row]:
    """Returns the unit costs of ``batches`` batches, and the load of one coordinator over ``seconds``."""
    return [
        *_transaction_rows(broker, batches),
        *(row for partitions in PARTITIONS for row in _call_rows(broker, partitions, batches)),
        *_load_rows(broker, seconds),
    ]


# --- a transaction, and a question, alone


def _transaction_rows(broker: KafkaBroker, count: int) -> list[Row]:
    name = broker.create_topic(f"alone-{uuid.uuid4().hex[:8]}", 1)
    cluster = KafkaCluster(broker.bootstrap, {}, 30_000)
    topic = StateTopic(
        cluster=cluster,
        bootstrap_servers=broker.bootstrap,
        kafka_config={},
        partitions=1,
        write_timeout_ms=60_000,
        broker_timeout_ms=30_000,
        name=name,
    )
    writer = GroupWriter(topic, 0, "alone")
    writer.fence()
    own, of_broker = psutil.Process().pid, broker.pid
    rows = []
    wide = broker.create_topic(f"asked-{uuid.uuid4().hex[:8]}", PARTITIONS[-1])
    asked = [(wide, partition) for partition in range(PARTITIONS[-1])]
    _settle(broker, lambda: writer.write([(b"key", b"x" * 500)]))
    for what, act in (
        ("a transaction", lambda: writer.write([(b"key", b"x" * 500)])),
        (f"the ends of {PARTITIONS[-1]} partitions", lambda: cluster.offsets(asked, LATEST)),
    ):
        for _ in range(20):
            act()
        before, before_broker = spent(own), _whole_ms(of_broker)
        took_ms = []
        for _ in range(count):
            began_s = time.perf_counter()
            act()
            took_ms.append(1000 * (time.perf_counter() - began_s))
        here, at_broker = spent(own) - before, _whole_ms(of_broker) - before_broker
        how = f"99th percentile {p99(took_ms):.1f}; {here.each(count)}, broker {at_broker / count:.2f} ms"
        rows.append(Row(name=f"load: {what}", value=statistics.median(took_ms), unit="ms", how=how))
    writer.close()
    return rows


def _settle(broker: KafkaBroker, act: Callable[[], object]) -> None:
    """Do it until the broker, which has just been started, takes as little CPU time for it as before."""
    last_ms = math.inf
    while True:
        before_ms = _whole_ms(broker.pid)
        for _ in range(SETTLED_AFTER):
            act()
        spent_ms = _whole_ms(broker.pid) - before_ms
        if spent_ms > 0.9 * last_ms:
            return
        last_ms = spent_ms


def _whole_ms(pid: int) -> float:
    return 1000 * sum(psutil.Process(pid).cpu_times()[:2])


# --- the calls of a query, one after the other


def _call_rows(broker: KafkaBroker, partitions: int, batches: int) -> list[Row]:
    topic = _filled(broker, partitions, (batches + 20) * A_BATCH)
    client = CoordinatorClient.connect(broker.bootstrap)
    session = _session(client, f"calls-{uuid.uuid4().hex[:8]}", topic)
    pid = client.endpoint_of("").pid
    query = _Query(session)
    for _ in range(20):
        query.batch(SPARK_S)
    query.took_ms.clear()
    before, before_broker = spent(pid), _whole_ms(broker.pid)
    for _ in range(batches):
        query.batch(SPARK_S)
    found, at_broker = spent(pid) - before, _whole_ms(broker.pid) - before_broker
    nexts, starts = zip(*query.took_ms, strict=True)
    both = [sum(each) for each in query.took_ms]
    how = (
        f"next {statistics.median(nexts):.1f}, start {statistics.median(starts):.1f}; 99th percentile {p99(both):.1f}; "
        f"{found.each(batches)}, broker {at_broker / batches:.2f} ms"
    )
    name = f"load: next and start, a batch of {partitions} partition(s)"
    rows = [Row(name=name, value=statistics.median(both), unit="ms", how=how)]
    requests: dict[str, Callable[[], object]] = {
        "Heartbeat": lambda: session.call(lambda who: Heartbeat(**who)),
        "LatestOffsets": lambda: session.call(lambda who: LatestOffsets(**who)),
    }
    for kind, ask in requests.items():
        before, began_s = spent(pid), time.perf_counter()
        for _ in range(batches):
            ask()
        found, took_ms = spent(pid) - before, 1000 * (time.perf_counter() - began_s) / batches
        how = f"{partitions} partition(s); {found.each(batches)} ms"
        rows.append(Row(name=f"load: {kind}", value=took_ms, unit="ms", how=how))
    session.close(leave=True)
    client.close()
    return rows


class _Query:
    """A query's calls of its coordinator; ``took_ms`` has both of each batch."""

    def __init__(self, session: MemberSession) -> None:
        self._session, self._plan_id = session, ""
        self.took_ms: list[tuple[float, float]] = []

    def batch(self, spark_s: float) -> None:
        """Complete the last plan, acquire and start the next one, with Spark's pauses."""
        began_s = time.perf_counter()
        plan = self._session.call(lambda who: NextPlan(**who, start=self._plan_id, max_records=A_BATCH, wait_ms=0)).plan
        assert plan.plan_id, "the topic has too few records"
        next_ms = 1000 * (time.perf_counter() - began_s)
        time.sleep(spark_s)
        began_s = time.perf_counter()
        self._session.call(
            lambda who: StartPlan(**who, plan_id=plan.plan_id, logged=plan.partitions, acquired_here=True)
        )
        self.took_ms.append((next_ms, 1000 * (time.perf_counter() - began_s)))
        self._plan_id = plan.plan_id
        time.sleep(spark_s)


def _session(client: CoordinatorClient, group_id: str, topic: str) -> MemberSession:
    return MemberSession(
        client, group_id, uuid.uuid4().hex, topics=(topic,), starting_offsets="earliest", configs=CONFIGS
    )


def _filled(broker: KafkaBroker, partitions: int, records: int) -> str:
    """Creates a topic with ``records`` records without values, since only their number matters. Returns its name."""
    topic = broker.create_topic(f"load-{uuid.uuid4().hex[:8]}", partitions)
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "log_level": 0}
    producer = Producer({**config, "queue.buffering.max.messages": 1_000_000})
    for partition in range(partitions):
        left = -(-records // partitions)
        while left:
            left -= producer.produce_batch(topic, [{"value": b""} for _ in range(min(left, 10_000))], partition)
            producer.poll(0)
    assert producer.flush(120) == 0
    return topic


# --- one coordinator under load


def _load_rows(broker: KafkaBroker, seconds: int) -> list[Row]:
    """``LOAD_GROUPS`` groups of ``LOAD_QUERIES`` queries, as fast as they can, without Spark's pauses."""
    topics = [_filled(broker, PARTITIONS[-1], 60 * seconds * A_BATCH) for _ in range(LOAD_GROUPS)]
    client = CoordinatorClient.connect(broker.bootstrap)
    pid = client.endpoint_of("").pid
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Barrier(PROCESSES + 1)
    with ProcessPoolExecutor(PROCESSES, spawn, initializer=_get_ready, initargs=(ready,)) as processes:
        asked = [processes.submit(_load, broker.bootstrap, topics[n::PROCESSES], seconds) for n in range(PROCESSES)]
        ready.wait(READY_S)
        before, before_broker = spent(pid), _whole_ms(broker.pid)
        found = [each.result() for each in asked]
        coordinator, at_broker = spent(pid) - before, _whole_ms(broker.pid) - before_broker
    client.close()
    took_ms = [ms for each, _ in found for ms in each]
    clients_ms = sum(cpu_ms for _, cpu_ms in found)
    count = len(took_ms)
    how = (
        f"{LOAD_GROUPS} groups of {LOAD_QUERIES} queries, {PARTITIONS[-1]} partitions, without pauses, {seconds} s; "
        f"next and start median {statistics.median(took_ms):.0f}, 99th percentile {p99(took_ms):.0f} ms; "
        f"{coordinator.each(count)}, broker {at_broker / count:.2f}, clients {clients_ms / count:.2f} ms"
    )
    return [Row(name="load: batches/s of one coordinator", value=count / seconds, how=how)]


_ready: list[Barrier] = []


def _get_ready(barrier: Barrier) -> None:
    _ready.append(barrier)


def _load(bootstrap: str, topics: Sequence[str], seconds: int) -> tuple[list[float], float]:
    client = CoordinatorClient.connect(bootstrap)
    queries = [_Query(_session(client, f"load-{topic}", topic)) for topic in topics for _ in range(LOAD_QUERIES)]
    for query in queries:
        query.batch(0)
        query.took_ms.clear()
    _ready[0].wait(READY_S)
    before_s, until_s = time.process_time(), time.monotonic() + seconds

    def go_on(query: _Query) -> None:
        while time.monotonic() < until_s:
            query.batch(0)

    threads = [threading.Thread(target=go_on, args=(query,)) for query in queries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu_ms = 1000 * (time.process_time() - before_s)
    return [sum(each) for query in queries for each in query.took_ms], cpu_ms
