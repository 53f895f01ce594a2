"""Small acknowledgements through a coordinator with the Kafka store: one after the other, and many at once."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import NamedTuple

import psutil

from benchmarks.report import Row
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquireRecords, PartitionAcks
from tests.support.kafka_broker import KafkaBroker

ROUND_TRIP_AT_MOST_MS = 15
OFFERED = 1_000
MEMBERS = 50
PROCESSES = 2
READY_S = 120.0
"""The benchmark fails if not all members of all processes have joined and acquired after this many seconds."""
ASSIGNED_MS = 5_000
"""A member of a group with other members has its partitions within this many milliseconds."""
CONFIGS = {"share.record.lock.duration.ms": "600000", "share.session.timeout.ms": "120000"}
_ACCEPT = (1,)


class Paced(NamedTuple):
    """The result of one process: of each acknowledgement its due time, in seconds from the start, and its latency from
    then on in ms; and the number that had not begun when all of them were due."""

    acknowledged: list[tuple[float, float]]
    backlog: int
    cpu_s: float = 0.0

    @property
    def took_ms(self) -> list[float]:
        return [ms for _, ms in self.acknowledged]


def small_ack_rows(broker: KafkaBroker, *, one_by_one: int, seconds: int) -> list[Row]:
    """Measure round trips of one member, then ``OFFERED`` acknowledgements a second from 50 members for so long."""
    topic = broker.create_topic(f"acks-{uuid.uuid4().hex[:8]}", 4)
    needed = one_by_one + (OFFERED * seconds + MEMBERS) * 2
    for partition in range(4):
        broker.produce(topic, [b""] * (needed // 4 + MEMBERS), partition=partition)
    alone_ms = _one_by_one(broker.bootstrap, topic, one_by_one)
    return [
        Row(
            name="state: acknowledge one record, round trip",
            value=statistics.median(alone_ms),
            unit="ms",
            at_most=ROUND_TRIP_AT_MOST_MS,
            how=f"RPC and a transaction; {one_by_one:,} one after the other, 99th percentile {p99(alone_ms):.1f}",
        ),
        *_paced_rows(broker.bootstrap, topic, seconds),
    ]


def _paced_rows(bootstrap: str, topic: str, seconds: int) -> list[Row]:
    group_id = f"acks-{uuid.uuid4().hex[:8]}"
    client = CoordinatorClient.connect(bootstrap)
    coordinator = psutil.Process(client.endpoint_of("").pid)
    client.close()
    before_s = sum(coordinator.cpu_times()[:2])
    found = paced(bootstrap, topic, group_id, seconds)
    took_ms = [ms for each in found for ms in each.took_ms]
    backlog = sum(each.backlog for each in found)
    rate = len(took_ms) / seconds
    spent_ms = [1000 * (sum(coordinator.cpu_times()[:2]) - before_s), 1000 * sum(each.cpu_s for each in found)]
    how = (
        f"{MEMBERS} members, one record each time, for {seconds} s; from when it was due: median "
        f"{statistics.median(took_ms):.1f} ms, 99th percentile {p99(took_ms):.1f} ms; CPU each: coordinator "
        f"{spent_ms[0] / len(took_ms):.2f} ms, members {spent_ms[1] / len(took_ms):.2f} ms"
    )
    return [
        Row(name="state: acknowledgements/s of 1,000 offered", value=rate, at_least=0.99 * OFFERED, how=how),
        Row(
            name="state: … still due at the end",
            value=backlog,
            at_most=MEMBERS,
            how="one under way for each member is no queue",
        ),
    ]


def paced(
    bootstrap: str,
    topic: str,
    group_id: str,
    seconds: int,
    on_begin: Callable[[float], None] = lambda began_at: None,
    *,
    store: str = "kafka",
    offered: int = OFFERED,
) -> list[Paced]:
    """Sends ``offered`` acknowledgements a second from ``MEMBERS`` members in ``PROCESSES`` processes, for ``seconds``.
    Returns what each process measured. ``on_begin`` is called with the time of the first; ``store``:
    share.state.store."""
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Barrier(PROCESSES + 1)
    with ProcessPoolExecutor(PROCESSES, spawn, initializer=_get_ready, initargs=(ready,)) as processes:
        given = (bootstrap, topic, group_id, seconds, store, offered)
        asked = [processes.submit(_paced, number, *given) for number in range(PROCESSES)]
        ready.wait(READY_S)
        on_begin(time.time())
        return [each.result() for each in asked]


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[-1]


class _Member:
    """A ShareConsumer that holds records and acknowledges them one by one."""

    def __init__(self, client: CoordinatorClient, group_id: str, topic: str, records: int) -> None:
        self.session = MemberSession(
            client,
            group_id,
            uuid.uuid4().hex,
            query=False,
            topics=(topic,),
            starting_offsets="earliest",
            configs=CONFIGS,
        )
        self.held: list[tuple[str, int, int, int]] = []
        while len(self.held) < records:
            reply = self.session.call(
                lambda who: AcquireRecords(**who, max_records=records - len(self.held), wait_ms=ASSIGNED_MS)
            )
            assert reply.partitions, "the topic has too few records"
            for part in reply.partitions:
                for first, last, count in part.ranges:
                    self.held += [(part.topic_id, part.partition, at, count) for at in range(first, last + 1)]
        self.held.reverse()

    def acknowledge(self) -> None:
        topic_id, partition, offset, count = self.held.pop()
        batches = (AckBatch(first=offset, last=offset, delivery_count=count, types=_ACCEPT),)
        acks = PartitionAcks(topic_id=topic_id, partition=partition, batches=batches)
        reply = self.session.call(lambda who: Acknowledge(**who, partitions=(acks,)))
        assert not reply.errors, reply.errors


def _one_by_one(bootstrap: str, topic: str, count: int) -> list[float]:
    client = CoordinatorClient.connect(bootstrap)
    member = _Member(client, f"alone-{uuid.uuid4().hex[:8]}", topic, count)
    took_ms = []
    for _ in range(count):
        began_s = time.perf_counter()
        member.acknowledge()
        took_ms.append((time.perf_counter() - began_s) * 1000)
    member.session.close(leave=True)
    client.close()
    return took_ms[count // 10 :]  # without the first ones, which warm everything up


# --- at a pace, in processes of their own


_ready: list[Barrier] = []
"""In each process, the barrier at which the processes and their parent wait for each other."""


def _get_ready(barrier: Barrier) -> None:
    _ready.append(barrier)


def _paced(number: int, bootstrap: str, topic: str, group_id: str, seconds: int, store: str, offered: int) -> Paced:
    members = MEMBERS // PROCESSES
    each = offered * seconds // MEMBERS
    client = CoordinatorClient.connect(bootstrap, {}, store)
    joined = [_Member(client, group_id, topic, each) for _ in range(members)]
    _ready[0].wait(READY_S)
    began_s = time.perf_counter()
    found = Paced([], 0)
    threads = []
    for index, member in enumerate(joined):
        phase = (index * PROCESSES + number) / MEMBERS
        due = [began_s + (at + phase) * seconds / each for at in range(each)]
        threads.append(threading.Thread(target=_keep_pace, args=(member, due, began_s, seconds, found)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for member in joined:
        member.session.close(leave=True)
    client.close()
    return found._replace(backlog=members * each - len(found.acknowledged), cpu_s=time.process_time())


def _keep_pace(member: _Member, due: list[float], began_s: float, seconds: int, found: Paced) -> None:
    """Acknowledge at each due time, or at once when that is past, until the end."""
    for due_s in due:
        time.sleep(max(0.0, due_s - time.perf_counter()))
        if time.perf_counter() >= began_s + seconds:
            return
        member.acknowledge()
        found.acknowledged.append((due_s - began_s, (time.perf_counter() - due_s) * 1000))
