"""Several hosts: calls on a host that does not own the group, a takeover, and a coordinator that owns nothing are
measured. A host is a runtime folder here: its coordinator reaches the others' by the broker alone."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import psutil

from benchmarks.batch_calls import BATCHES, PER_BATCH, WARM_UP, Reader
from benchmarks.report import Row
from benchmarks.takeover import takeover_rows
from benchmarks.topics import Topic, fill
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import Heartbeat, JoinGroup
from share_consumer.consumer import ShareConsumer
from tests.support.coordinator_process import coordinator_pids, kill_coordinators
from tests.support.imports import ROOT
from tests.support.kafka_broker import KafkaBroker

MORE_MS, IDLE_PERCENT = 25, 0.5
"""The targets: what a batch takes more on a host that does not own its group, and a coordinator that owns nothing."""
MEMBERS, EVERY_S = 1_000, 5.0
"""As many members of another host send a heartbeat each within this many seconds."""
SETTLE_S = 6.0
WARM_UP_POLLS, POLLS = 20, 200


@contextlib.contextmanager
def new_host() -> Iterator[Path]:
    """A context with a new host's runtime folder, whose coordinators are killed at the end."""
    with tempfile.TemporaryDirectory(prefix="sgb-") as folder:
        try:
            yield Path(folder)
        finally:
            kill_coordinators(Path(folder))


@contextlib.contextmanager
def on(host: Path) -> Iterator[None]:
    """A context in which clients are made on this host."""
    with mock.patch.dict(os.environ, SHAREGROUP_RUNTIME_DIR=str(host), SHAREGROUP_STATE_DIR=str(host)):
        yield


@contextlib.contextmanager
def member(broker: KafkaBroker, host: Path, group_id: str, topic: str) -> Iterator[CoordinatorClient]:
    """A context with the client of a member that acquires nothing; a group's first member makes its host the owner."""
    with on(host):
        client = CoordinatorClient.connect(broker.bootstrap)
    session = MemberSession(client, group_id, uuid.uuid4().hex, topics=(topic,), starting_offsets="earliest")
    try:
        yield client
    finally:
        session.close()
        client.close()


def host_rows(broker: KafkaBroker, rounds: int, seconds: float) -> list[Row]:
    """Measure all of it, on one broker."""
    return [
        *batch_rows(broker, rounds),
        *poll_rows(broker, rounds),
        *heartbeat_rows(broker, seconds),
        *takeover_rows(broker, rounds),
        idle_row(broker, seconds),
    ]


def _group() -> str:
    return f"hosts-{uuid.uuid4().hex[:8]}"


def batch_rows(broker: KafkaBroker, rounds: int) -> list[Row]:
    """Return the medians of a batch's two calls on the owner's host, and on another one, which take turns."""
    topic = fill(broker, _group(), (BATCHES + 2) * PER_BATCH, 200)
    took_ms: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for elsewhere in took_ms:
            group_id = _group()
            with new_host() as owners, new_host() as other, member(broker, owners, group_id, topic.name):
                reader = Reader(ROOT, broker, topic, BATCHES, other if elsewhere else owners, group_id)
                reader.close()
            took_ms[elsewhere] += [sum(batch) for batch in reader.took_ms[WARM_UP:]]
    here, there = (statistics.median(took_ms[elsewhere]) for elsewhere in (False, True))
    return [
        Row(name=f"hosts: a batch of {PER_BATCH:,}, on the owner's host", value=here, unit="ms"),
        Row(
            name=f"hosts: a batch of {PER_BATCH:,}, more on another host",
            value=there - here,
            unit="ms",
            at_most=MORE_MS,
            how=f"medians of {len(took_ms[True])} batches; 90 of 100 up to {_of_100(took_ms[True], 90):.0f} ms",
        ),
    ]


def poll_rows(broker: KafkaBroker, rounds: int) -> list[Row]:
    """Return the medians of a ShareConsumer's poll of 10 records, whose predecessors it acknowledges."""
    topic = fill(broker, _group(), 4_000, 200)
    took_ms: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for elsewhere in took_ms:
            group_id = _group()
            with new_host() as owners, new_host() as other, member(broker, owners, group_id, topic.name):
                took_ms[elsewhere] += _polls(broker, other if elsewhere else owners, group_id, topic)
    here, there = (statistics.median(took_ms[elsewhere]) for elsewhere in (False, True))
    return [
        Row(name="hosts: a poll of 10 records, on the owner's host", value=here, unit="ms"),
        Row(
            name="hosts: a poll of 10 records, on another host",
            value=there,
            unit="ms",
            how=f"medians of {len(took_ms[True])} polls; 90 of 100 up to {_of_100(took_ms[True], 90):.0f} ms",
        ),
    ]


def _polls(broker: KafkaBroker, host: Path, group_id: str, topic: Topic) -> list[float]:
    took_ms: list[float] = []
    with on(host), contextlib.closing(_consumer(broker, group_id, topic.name)) as consumer:
        while len(took_ms) < WARM_UP_POLLS + POLLS:
            began_s = time.perf_counter()
            if consumer.poll(5.0):
                took_ms.append(1000 * (time.perf_counter() - began_s))
    return took_ms[WARM_UP_POLLS:]


def _consumer(broker: KafkaBroker, group_id: str, topic: str) -> ShareConsumer:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group_id, "max.poll.records": 10}
    consumer = ShareConsumer(config)
    consumer.subscribe([topic])
    return consumer


def heartbeat_rows(broker: KafkaBroker, seconds: float) -> list[Row]:
    """Return how long heartbeats of many members of another host last, and the two coordinators' CPU time."""
    topic, groups = broker.create_topic(_group(), 4), (_group(), _group())
    with contextlib.ExitStack() as stack:
        owners, other = stack.enter_context(new_host()), stack.enter_context(new_host())
        for group_id in groups:
            stack.enter_context(member(broker, owners, group_id, topic))
        stack.enter_context(on(other))
        client = CoordinatorClient.connect(broker.bootstrap)

        def join(number: int) -> Heartbeat:
            group_id, who = groups[number % len(groups)], f"m{number}"
            joins = JoinGroup(group_id=group_id, member_id=who, process_id=who, query=False, topics=(topic,))
            return Heartbeat(group_id=group_id, member_id=who, member_epoch=client.call(joins).member_epoch)

        def beat(heartbeat: Heartbeat, at_s: float) -> float:
            time.sleep(max(0.0, at_s - time.monotonic()))
            began_s = time.perf_counter()
            client.call(heartbeat)
            return 1000 * (time.perf_counter() - began_s)

        with ThreadPoolExecutor(64) as threads:
            members = list(threads.map(join, range(MEMBERS)))
            processes = [psutil.Process(pid) for host in (owners, other) for pid in coordinator_pids(host)]
            before = [sum(process.cpu_times()[:2]) for process in processes]
            began_s, count = time.monotonic(), int(seconds / EVERY_S) * MEMBERS
            at_s = [began_s + number * EVERY_S / MEMBERS for number in range(count)]
            took_ms = list(threads.map(beat, [members[number % MEMBERS] for number in range(count)], at_s))
            lasted_s = time.monotonic() - began_s
            cpu = [100 * (sum(p.cpu_times()[:2]) - b) / lasted_s for p, b in zip(processes, before, strict=True)]
        client.close()
    how = f"{count / lasted_s:.0f} a second, 99 of 100 up to {_of_100(took_ms, 99):.0f} ms"
    return [
        Row(
            name=f"hosts: a heartbeat of {MEMBERS:,} members of another host",
            value=statistics.median(took_ms),
            unit="ms",
            how=how,
        ),
        Row(name="hosts: its owner's coordinator", value=cpu[0], unit="% of a core"),
        Row(name="hosts: its members' coordinator", value=cpu[1], unit="% of a core"),
    ]


def idle_row(broker: KafkaBroker, seconds: float) -> Row:
    """Return the CPU time of a coordinator that owns nothing, and whose host has asked another one."""
    topic, group_id = broker.create_topic(_group(), 4), _group()
    with new_host() as owners, new_host() as other, member(broker, owners, group_id, topic):
        with member(broker, other, group_id, topic):
            pass
        time.sleep(SETTLE_S)
        (pid,) = coordinator_pids(other)
        process = psutil.Process(pid)
        before, began_s = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(seconds)
        percent = 100 * (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began_s)
    name = "hosts: a coordinator that owns nothing"
    return Row(name=name, value=percent, unit="% of a core", at_most=IDLE_PERCENT, how=f"over {seconds:.0f} s")


def _of_100(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
