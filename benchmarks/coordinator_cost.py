"""The start of a coordinator, and the cost of a plan by RPC: 1,000,000 records as ranges over 50 partitions.

As a query does: one request completes a plan and acquires the next, one more starts that plan."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any
from unittest import mock

from confluent_kafka import Producer

from benchmarks.report import Row
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan, Plan, StartPlan
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker

PARTITIONS = 50
PLAN_RECORDS = 1_000_000
PLANS = 5
TARGET_MS = 20
START_MS = 700


def start_rows(broker: KafkaBroker, rounds: int) -> list[Row]:
    """Return the time from the request for a coordinator, none running, until one has answered: a process's start. The
    state topic is there, and so is the modules' bytecode."""
    with bytecode():
        _start(broker)
        took_ms = [_start(broker) for _ in range(rounds)]
    return [
        Row(
            name="a coordinator on demand, from its start until it answers",
            value=statistics.median(took_ms),
            unit="ms",
            at_most=START_MS,
            how=f"{rounds} starts, {min(took_ms):.0f} to {max(took_ms):.0f}",
        )
    ]


@contextlib.contextmanager
def bytecode() -> Iterator[None]:
    """A context in which the modules of a started process are compiled once, as pip compiles those of a package. Where
    the environment keeps Python from that, each start of a checkout compiles them, for a quarter of its CPU time."""
    with tempfile.TemporaryDirectory(prefix="sgb-") as folder, mock.patch.dict(os.environ, PYTHONPYCACHEPREFIX=folder):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        yield


def _start(broker: KafkaBroker) -> float:
    """The milliseconds until a new coordinator has answered."""
    kill_coordinators()
    began_s = time.perf_counter()
    client = CoordinatorClient.connect(broker.bootstrap)
    took_ms = (time.perf_counter() - began_s) * 1000
    client.close()
    return took_ms


def coordinator_rows(broker: KafkaBroker, groups: int) -> list[Row]:
    """Returns medians over the plans of ``groups`` groups, without the first plan of each."""
    topic = broker.create_topic(f"wide-{uuid.uuid4().hex[:8]}", PARTITIONS)
    _fill(broker, topic)
    client = CoordinatorClient.connect(broker.bootstrap)
    nexts: list[float] = []
    starts: list[float] = []
    for _ in range(groups):
        session = MemberSession(
            client, f"rpc-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex, topics=(topic,), starting_offsets="earliest"
        )
        _plans(session, nexts, starts)
        session.close(leave=True)
    client.close()
    both = [a + b for a, b in zip(nexts, starts, strict=True)]
    how = f"RPC and fsync, {len(both)} plans, 95th percentile {statistics.quantiles(both, n=20)[-1]:.1f}"
    return [
        Row(
            name="acquire + complete 1,000,000 records, 50 partitions",
            value=statistics.median(nexts),
            unit="ms",
            at_most=TARGET_MS,
            how=f"one request; RPC and fsync, {len(nexts)} plans, 95th percentile "
            f"{statistics.quantiles(nexts, n=20)[-1]:.1f}",
        ),
        Row(name="… with starting the plan", value=statistics.median(both), unit="ms", how=how),
    ]


def _next_plan(session: MemberSession, start: str) -> Plan:
    return session.call(lambda who: NextPlan(**who, start=start, max_records=PLAN_RECORDS, wait_ms=0)).plan


def _start_plan(session: MemberSession, plan_id: str) -> None:
    session.call(lambda who: StartPlan(**who, plan_id=plan_id))


def _plans(session: MemberSession, nexts: list[float], starts: list[float]) -> None:
    number = ""
    for plan in range(PLANS):
        began_s = time.perf_counter()
        acquired = _next_plan(session, number)
        acquired_s = time.perf_counter()
        _start_plan(session, acquired.plan_id)
        started_s = time.perf_counter()
        number = acquired.plan_id
        held = sum(last - first + 1 for part in acquired.partitions for first, last, _ in part.ranges)
        assert (held, len(acquired.partitions)) == (PLAN_RECORDS, PARTITIONS), (held, len(acquired.partitions))
        if plan:
            nexts.append((acquired_s - began_s) * 1000)
            starts.append((started_s - acquired_s) * 1000)


def _fill(broker: KafkaBroker, topic: str) -> None:
    """Produce records with empty values: only their number matters."""
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "log_level": 0}
    producer = Producer({**config, "queue.buffering.max.messages": 1_000_000})
    for partition in range(PARTITIONS):
        left = PLANS * PLAN_RECORDS // PARTITIONS
        while left:
            left -= producer.produce_batch(topic, [{"value": b""} for _ in range(min(left, 10_000))], partition)
            producer.poll(0)
    assert producer.flush(120) == 0
