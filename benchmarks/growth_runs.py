"""How the core's cost grows with the number of runs in one partition: CPU time, memory and bytes of state a run."""

from __future__ import annotations

import gc
import random
import statistics
from array import array
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil

from benchmarks.core_cost import GROUP, MEMBER, TOPIC_ID, Core, timed
from benchmarks.growth import TIMES, growths, least
from benchmarks.report import Row
from coordinator.core.commands import AcquireForConsumer, AlterConfigs, Expire
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks

SMALLEST, STEP = 1_000, 10
AT_MOST_US, AT_MOST_BYTES = 15, 300
A_REQUEST = 10_000
OUTCOMES = (1, 2, 3)
LATER_MS = 10_000_000
AT_ONCE = 1_000
"""The state is filled from this number of records at a time: all runs' records take more memory than the state."""
MEASURED_RUNS = 100_000
"""Each size measures at least this number of runs: several partitions where one has fewer."""


def run_rows(largest: int) -> list[Row]:
    """Return the costs of 1,000 runs and of each ten times as many, up to ``largest``."""
    sizes = [SMALLEST]
    while sizes[-1] < largest:
        sizes.append(min(sizes[-1] * STEP, largest))
    measured = [least(TIMES if size <= MEASURED_RUNS else 1, _at, size) for size in sizes]
    rows = []
    for growth in growths("runs of a partition", "a run", sizes, measured, "the core alone"):
        cost, slope = growth.rows()
        at_most = AT_MOST_BYTES if growth.cost == "memory" else AT_MOST_US if growth.unit == "µs" else None
        rows += [Row(**{**vars(cost), "at_most": at_most}), slope]
    return rows


def _at(runs: int) -> dict[tuple[str, str], float]:
    """Returns the costs of ``runs`` runs; where the runs are few, the mean of several partitions."""
    copies = max(1, MEASURED_RUNS // runs)
    gc.collect()
    before = psutil.Process().memory_info().rss
    cores = [Core(query=False, records=runs) for _ in range(copies)]
    for core in cores:
        for change in _alternating(runs):
            replay(core.group, change)
    gc.collect()
    memory_bytes = (psutil.Process().memory_info().rss - before) / copies
    spent = [_spent(core, runs) for core in cores]
    means = {key: statistics.fmean(each[key] for each in spent) for key in spent[0]}
    return {**means, ("memory", "B"): memory_bytes}


def _spent(core: Core, runs: int) -> dict[tuple[str, str], float]:
    """The costs to acquire all runs, to acknowledge half of them, and to end the session that holds the others."""
    who: dict[str, Any] = {"group_id": GROUP, "member_id": MEMBER, "member_epoch": core.epoch}
    core.run(AlterConfigs(configs={"share.partition.max.record.locks": "100000000"}))
    core.encoded_bytes = 0
    acquire_us: list[float] = []
    held = array("q")
    while len(held) < 3 * runs:
        command = AcquireForConsumer(**who, max_records=A_REQUEST, bounds=core.bounds)
        reply = timed(acquire_us, partial(core.run, command))
        assert reply.partitions, "nothing is left to acquire"
        held.extend(number for part in reply.partitions for each in part.ranges for number in each)
    acknowledge_us: list[float] = []
    rnd, half = random.Random(1), runs // 2
    for at in range(0, half, A_REQUEST):
        numbers = iter(held[3 * at : 3 * min(at + A_REQUEST, half)])
        batches = tuple(
            AckBatch(first=first, last=last, delivery_count=count, types=(rnd.choice(OUTCOMES),))
            for first, last, count in zip(numbers, numbers, numbers, strict=True)
        )
        acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
        command = Acknowledge(**who, partitions=acks)
        assert not timed(acknowledge_us, partial(core.run, command)).errors
    expire_us: list[float] = []
    timed(expire_us, partial(core.run, Expire(), LATER_MS))
    return {
        ("acquire", "µs"): sum(acquire_us),
        ("acknowledge", "µs"): sum(acknowledge_us) * runs / half,
        ("expire", "µs"): sum(expire_us) * runs / (runs - half),
        ("state", "B"): float(core.encoded_bytes),
    }


def _alternating(runs: int) -> Iterator[RunsChanged]:
    """Make records that came back, no two neighbours alike."""
    kinds = (Run(RecordState.AVAILABLE, 1), Run(RecordState.AVAILABLE, 2))
    for first in range(0, runs, AT_ONCE):
        some = tuple((n, n, kinds[n % 2]) for n in range(first, min(first + AT_ONCE, runs)))
        yield RunsChanged(topic_id=TOPIC_ID, partition=0, runs=some)
