"""The coordinator's own dead letters: how many a second it reads, writes and files, and what each costs it of CPU."""

from __future__ import annotations

import tempfile
import time
import uuid
from pathlib import Path

import psutil

from benchmarks.report import Row
from benchmarks.topics import Topic
from coordinator.protocol.values import AcknowledgeType
from tests.support.kafka_broker import KafkaBroker
from tests.support.rejecting import Rejecting
from tests.support.waiting import wait_until

SCATTERED = 10
"""Of so many records one is rejected: as many runs as letters."""
PARTITIONS = 4
WITHIN_S = 300


def letter_rows(broker: KafkaBroker, topic: Topic) -> list[Row]:
    """All records of the topic at once, then one of SCATTERED; the coordinator has a process with the measuring."""
    return [_rate(broker, topic, "all of them", 1), _rate(broker, topic, f"one of {SCATTERED}", SCATTERED)]


def _rate(broker: KafkaBroker, topic: Topic, which: str, step: int) -> Row:
    queue = broker.create_topic(None, PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="sgb-") as directory:
        name = f"benchmark-{uuid.uuid4().hex[:8]}"
        group = Rejecting(broker.bootstrap, Path(directory) / "state.db", name, topic.name, dlq_topic_name=queue)
        try:
            acquired = 0
            while acquired < topic.records:
                acquired += group.acquire()
            began_s, began_cpu_s = time.monotonic(), _cpu_s()
            group.acknowledge(*_types(step))
            wait_until(lambda: group.archiving() == 0, timeout_s=WITHIN_S, what="the letters are filed")
            took_s, cpu_s = time.monotonic() - began_s, _cpu_s() - began_cpu_s
        finally:
            group.stop()
    letters = topic.records // step
    return Row(
        name=f"coordinator's dead letters, {which} of {topic.records:,} records",
        value=letters / took_s,
        unit="letters/s",
        how=f"{cpu_s / letters * 1e6:.0f} µs CPU a letter",
    )


def _types(step: int) -> tuple[AcknowledgeType, ...]:
    return (AcknowledgeType.REJECT,) + (AcknowledgeType.ACCEPT,) * (step - 1)


def _cpu_s() -> float:
    used = psutil.Process().cpu_times()
    return used.user + used.system
