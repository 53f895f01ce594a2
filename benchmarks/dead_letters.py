"""The coordinator's own dead letters: read and written per second, and the CPU time of each."""

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
"""Every tenth record is rejected, so that each dead letter has a run of its own."""
PARTITIONS = 4
WITHIN_S = 300


def dead_letter_rows(broker: KafkaBroker, topic: Topic) -> list[Row]:
    """Reject all records of the topic, then one of SCATTERED; the coordinator runs in the measuring process."""
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
            wait_until(lambda: group.archiving() == 0, timeout_s=WITHIN_S, what="the dead letters are written")
            took_s, cpu_s = time.monotonic() - began_s, _cpu_s() - began_cpu_s
        finally:
            group.stop()
    dead_letters = topic.records // step
    return Row(
        name=f"coordinator's dead letters, {which} of {topic.records:,} records",
        value=dead_letters / took_s,
        unit="dead letters/s",
        how=f"{cpu_s / dead_letters * 1e6:.0f} µs CPU a dead letter",
    )


def _types(step: int) -> tuple[AcknowledgeType, ...]:
    return (AcknowledgeType.REJECT,) + (AcknowledgeType.ACCEPT,) * (step - 1)


def _cpu_s() -> float:
    used = psutil.Process().cpu_times()
    return used.user + used.system
