"""Pages of the runs in flight of a group with a million of them, beside 1,000 acknowledgements a second: what a reader
of pages costs the members, and how soon it has its first page."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from benchmarks.report import Row
from benchmarks.small_acks import ASSIGNED_MS, CONFIGS, MEMBERS, OFFERED, READY_S, p99, paced
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquiredReply, AcquireRecords, PartitionAcks
from tests.support.kafka_broker import KafkaBroker

PARTITIONS = 4
A_REQUEST = 10_000
WINDOWS = 6
"""The number of windows of the same length, alternately without and with a reader of pages."""
FIRST_PAGE_AT_MOST_MS, RATIO_AT_MOST = 200, 1.5
_RELEASE = (2,)


class Pages(NamedTuple):
    """The pages that a reader had: the ms of each one, and those of the first one of each window."""

    took_ms: list[float]
    first_ms: list[float]


def in_flight_rows(broker: KafkaBroker, runs: int, seconds: int) -> list[Row]:
    """Measures with ``runs`` runs in flight, in ``WINDOWS`` windows of ``seconds`` seconds."""
    group_id, held, acks = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("pages", "held", "acks"))
    for topic, records in ((held, runs), (acks, (OFFERED * seconds * WINDOWS + MEMBERS) * 2)):
        broker.create_topic(topic, PARTITIONS)
        for partition in range(PARTITIONS):
            broker.produce(topic, [b""] * (records // PARTITIONS + MEMBERS), partition=partition)
    client = CoordinatorClient.connect(broker.bootstrap)
    holder = hold(client, group_id, held, runs)
    begun: Future[float] = Future()
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(paced, broker.bootstrap, acks, group_id, seconds * WINDOWS, begun.set_result)
        began_at = begun.result(2 * READY_S)
        pages = Pages([], [])
        for window in range(1, WINDOWS, 2):
            _read(client, group_id, began_at + window * seconds, began_at + (window + 1) * seconds, pages)
        found = asked.result()
    holder.close(leave=True)
    client.close()
    ms: tuple[list[float], list[float]] = ([], [])
    for each in found:
        for due_s, took_ms in each.acknowledged:
            ms[int(due_s / seconds) % 2].append(took_ms)
    without, beside = map(p99, ms)
    count = len(pages.took_ms)
    return [
        Row(
            name=f"in flight: first page of {runs:,} runs",
            value=max(pages.first_ms),
            unit="ms",
            at_most=FIRST_PAGE_AT_MOST_MS,
            how=f"the slowest of {len(pages.first_ms)}, beside {OFFERED:,} acknowledgements/s; of {count:,} pages of "
            f"1,000 runs, one after the other, the 99th percentile is {p99(pages.took_ms):.0f} ms",
        ),
        Row(
            name="in flight: acknowledgements beside a reader of pages",
            value=beside / without,
            at_most=RATIO_AT_MOST,
            how=f"99th percentile {beside:.1f} ms, {without:.1f} ms without; {len(ms[1]):,} and {len(ms[0]):,} "
            f"acknowledgements in windows of {seconds} s by turns",
        ),
    ]


def hold(client: CoordinatorClient, group_id: str, topic: str, runs: int) -> MemberSession:
    """A member that holds every second record of the topic, and has released the others: each record is a run."""
    session = MemberSession(
        client, group_id, uuid.uuid4().hex, query=False, topics=(topic,), starting_offsets="earliest", configs=CONFIGS
    )
    left = runs
    while left:
        reply = _acquire(session, left)
        assert reply.partitions, "the topic has too few records"
        for part in reply.partitions:
            for first, last, count in part.ranges:
                left -= last - first + 1
                for start in range(first, last + 1, 2 * A_REQUEST):
                    offsets = range(start, min(start + 2 * A_REQUEST, last + 1), 2)
                    batches = tuple(AckBatch(first=at, last=at, delivery_count=count, types=_RELEASE) for at in offsets)
                    acks = PartitionAcks(topic_id=part.topic_id, partition=part.partition, batches=batches)
                    _acknowledge(session, acks)
    return session


def _acquire(session: MemberSession, records: int) -> AcquiredReply:
    return session.call(lambda who: AcquireRecords(**who, max_records=records, wait_ms=ASSIGNED_MS))


def _acknowledge(session: MemberSession, acks: PartitionAcks) -> None:
    reply = session.call(lambda who: Acknowledge(**who, partitions=(acks,)))
    assert not reply.errors, reply.errors


def _read(client: CoordinatorClient, group_id: str, began_at: float, end_at: float, pages: Pages) -> None:
    """Ask for one page after the other, from the first on, in this window of time."""
    time.sleep(max(0.0, began_at - time.time()))
    cursor = None
    is_first = True
    while time.time() < end_at:
        began_s = time.perf_counter()
        page = client.call(ListInFlight(group_id=group_id, cursor=cursor))
        took_ms = (time.perf_counter() - began_s) * 1000
        assert page.runs
        if is_first:
            pages.first_ms.append(took_ms)
        pages.took_ms.append(took_ms)
        cursor, is_first = page.cursor, False
