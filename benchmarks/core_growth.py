"""How the core's cost grows with the number of runs in one partition: CPU time and memory a run, and log-log slopes."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from functools import partial
from itertools import pairwise
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.core_cost import GROUP, MEMBER, TOPIC_ID, Core, timed
from benchmarks.report import Row
from coordinator.core.commands import AcquireForConsumer, Expire
from coordinator.core.record_state import RecordState
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Run
from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks
from coordinator.service.server.acknowledged_rows import SCHEMA, partition_acks

AT_MOST_US, AT_MOST_BYTES, AT_MOST_SLOPE, AT_MOST_ROWS_S = 15, 300, 1.1, 0.5
ROWS = 100_000
A_REQUEST = 10_000
OUTCOMES = (1, 2, 3)
LATER_MS = 10_000_000


def growth_rows(largest: int) -> list[Row]:
    """Return the costs at a hundredth, a tenth and the whole of ``largest`` runs."""
    sizes = (largest // 100, largest // 10, largest)
    measured = [_at(size) for size in sizes]
    how = f"{largest:,} runs in one partition; CPU"
    rows = []
    for name in ("acquire", "acknowledge", "expire"):
        whole_us = [size * each[name] for size, each in zip(sizes, measured, strict=True)]
        slope = max(
            math.log(later / before) / math.log(more / fewer)
            for (fewer, more), (before, later) in zip(pairwise(sizes), pairwise(whole_us), strict=True)
        )
        found_us = measured[-1][name]
        rows.append(Row(name=f"core: {name}, a run", value=found_us, unit="µs", at_most=AT_MOST_US, how=how))
        steps = f"log-log, the steepest of {' to '.join(f'{size:,}' for size in sizes)} runs"
        rows.append(Row(name=f"core: {name}, slope", value=slope, at_most=AT_MOST_SLOPE, how=steps))
    memory = measured[-1]["memory"]
    rows.append(Row(name="core: memory, a run", value=memory, unit="B", at_most=AT_MOST_BYTES, how=how))
    took_s = statistics.median(_random_rows() for _ in range(5))
    how = f"{ROWS:,} records of random outcomes, from Arrow to replayed; CPU"
    return [*rows, Row(name="core: acknowledge rows", value=took_s, unit="s", at_most=AT_MOST_ROWS_S, how=how)]


def _at(runs: int) -> dict[str, float]:
    gc.collect()
    before = psutil.Process().memory_info().rss
    core = Core(query=False, records=runs)
    core.group.replay(_alternating(runs))
    gc.collect()
    found = {"memory": (psutil.Process().memory_info().rss - before) / runs}
    who: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    acquire_us: list[float] = []
    held: list[Any] = []
    while len(held) < runs:
        command = AcquireForConsumer(**who, max_records=A_REQUEST, bounds=core.bounds)
        reply = timed(acquire_us, partial(core.run, command))
        held += [each for part in reply.partitions for each in part.ranges]
    acknowledge_us: list[float] = []
    rnd = random.Random(1)
    half = held[: runs // 2]
    for at in range(0, len(half), A_REQUEST):
        batches = tuple(
            AckBatch(first=first, last=last, delivery_count=count, types=(rnd.choice(OUTCOMES),))
            for first, last, count in half[at : at + A_REQUEST]
        )
        acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
        command = Acknowledge(**who, partitions=acks)
        assert not timed(acknowledge_us, partial(core.run, command)).errors
    expire_us: list[float] = []
    timed(expire_us, partial(core.run, Expire(), LATER_MS))
    found["acquire"] = sum(acquire_us) / runs
    found["acknowledge"] = sum(acknowledge_us) / len(half)
    found["expire"] = sum(expire_us) / (runs - len(half))
    return found


def _alternating(runs: int) -> RunsChanged:
    """Make records that came back, no two neighbours alike."""
    kinds = (Run(RecordState.AVAILABLE, 1), Run(RecordState.AVAILABLE, 2))
    return RunsChanged(topic_id=TOPIC_ID, partition=0, runs=tuple((n, n, kinds[n % 2]) for n in range(runs)))


def _random_rows() -> float:
    core = Core(query=False, records=ROWS)
    who: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    core.run(AcquireForConsumer(**who, max_records=ROWS, bounds=core.bounds))
    rnd = random.Random(1)
    columns = (
        [TOPIC_ID] * ROWS,
        [0] * ROWS,
        list(range(ROWS)),
        [1] * ROWS,
        [rnd.choice(OUTCOMES) for _ in range(ROWS)],
    )
    rows = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    began_ns = time.thread_time_ns()
    reply = core.run(Acknowledge(**who, partitions=partition_acks(rows)))
    took_ns = time.thread_time_ns() - began_ns
    assert not reply.errors
    return took_ns / 1e9
