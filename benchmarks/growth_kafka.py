"""The memory, threads and files that a group keeps in the coordinator's process, with the state in Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import psutil

from benchmarks.growth import growths
from benchmarks.report import Row
from coordinator.client.client import CoordinatorClient
from coordinator.protocol.messages import JoinGroup
from tests.support.kafka_broker import KafkaBroker

SIZES = (1, 100, 900)
"""Measured numbers of groups. They end below 1,024, the most Kafka clients that a process can have (PTHREAD_KEYS_MAX):
some clients belong to no group."""
JOINS_AT_ONCE = 16
CONFIGS = {"share.session.timeout.ms": "3600000"}


def kafka_group_rows(broker: KafkaBroker, sizes: Sequence[int]) -> list[Row]:
    """Returns what the groups of one coordinator on demand keep in its process, at each of these numbers of groups.
    Each has a producer of its own."""
    topic = broker.create_topic(f"groups-{uuid.uuid4().hex[:8]}", 1)
    client = CoordinatorClient.connect(broker.bootstrap)
    process = psutil.Process(client.endpoint_of("").pid)
    rest = _kept(process)
    measured, run = [], uuid.uuid4().hex[:8]
    joined = 0
    for size in sizes:
        with ThreadPoolExecutor(JOINS_AT_ONCE) as joins:
            list(joins.map(lambda number: _join(client, f"{run}-{number}", topic), range(joined, size)))
        joined = size
        kept = _kept(process)
        measured.append({key: kept[key] - rest[key] for key in kept})
    client.close()
    how = "a group with one query that has joined; state in Kafka, the coordinator's process"
    found = growths("groups in Kafka", "a group", sizes, measured, how)
    return [row for growth in found for row in growth.rows()]


def _join(client: CoordinatorClient, group_id: str, topic: str) -> None:
    client.call(
        JoinGroup(group_id=group_id, member_id=uuid.uuid4().hex, process_id="p", topics=(topic,), configs=CONFIGS)
    )


def _kept(process: psutil.Process) -> dict[tuple[str, str], float]:
    return {
        ("memory", "B"): float(process.memory_info().rss),
        ("threads", ""): float(process.num_threads()),
        ("files", ""): float(process.num_fds()),
    }
