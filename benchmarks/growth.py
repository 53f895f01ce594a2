"""How costs grow with partitions, queries of a group and groups of a coordinator: CPU time, memory and bytes of state.

The slope between two neighbouring sizes is that of the whole cost in a log-log plot: 1 is a cost that grows as the size
does, 2 one that grows with its square. Rule: no slope is above AT_MOST_SLOPE."""

from __future__ import annotations

import gc
import math
import multiprocessing
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from benchmarks.report import Row
from benchmarks.served_groups import Query, ServedGroups
from coordinator.service.coordinator import set_up_python

K = TypeVar("K")
T = TypeVar("T")

AT_MOST_SLOPE = 1.1
PARTITIONS = (1, 4, 16, 64)
QUERIES = (1, 10, 100)
GROUPS = (1, 100, 10_000)
RECORDS = 1_000
"""The number of records that a batch has of each partition."""
OF_A_GROUP = 16
"""The number of partitions of the group whose queries are counted."""
LEAST_BATCHES = 200
"""Each size runs at least this number of batches: a cost is the median of three parts of them."""
PARTS = 3
TIMES = 3
"""Each size is measured in this number of processes; the largest sizes in one."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The whole cost at each size. ``of``: the counted things, in the plural; ``each``: one of them."""

    of: str
    each: str
    cost: str
    unit: str
    sizes: Sequence[int]
    whole: Sequence[float]
    how: str

    @property
    def slopes(self) -> list[float]:
        """The log-log slopes between neighbouring sizes."""
        pairs = zip(pairwise(self.sizes), pairwise(self.whole), strict=True)
        return [math.log(later / before) / math.log(more / fewer) for (fewer, more), (before, later) in pairs]

    def rows(self) -> list[Row]:
        """The cost for each at the largest size, and the steepest slope."""
        each = [cost / size for size, cost in zip(self.sizes, self.whole, strict=True)]
        by_size = ", ".join(f"{cost:.4g} of {size:,}" for size, cost in zip(self.sizes, each, strict=True))
        name = f"{self.of}: {self.cost}, {self.each}"
        slopes = ", ".join(f"{slope:.2f}" for slope in self.slopes)
        return [
            Row(name=name, value=each[-1], unit=self.unit, how=f"{by_size}; {self.how}"),
            Row(name=f"{name}: slope", value=max(self.slopes), at_most=AT_MOST_SLOPE, how=f"the steepest of {slopes}"),
        ]


def growths(
    of: str, each: str, sizes: Sequence[int], measured: Sequence[Mapping[tuple[str, str], float]], how: str
) -> list[Growth]:
    """The costs that were measured at the sizes, each a whole cost by its name and unit."""
    return [
        Growth(
            of=of,
            each=each,
            cost=cost,
            unit=unit,
            sizes=sizes,
            whole=[found[cost, unit] for found in measured],
            how=how,
        )
        for cost, unit in measured[0]
    ]


def alone(measure: Callable[..., T], *arguments: Any) -> T:
    """Measure in a process of its own, which nothing was allocated in before, as a coordinator's."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=set_up_python) as process:
        return process.submit(measure, *arguments).result()


def least(times: int, measure: Callable[..., dict[K, float]], *arguments: Any) -> dict[K, float]:
    """Measures ``times`` times, each in a new process. Returns the least of each cost: other programs only add."""
    found = [alone(measure, *arguments) for _ in range(times)]
    return {key: min(each[key] for each in found) for key in found[0]}


def partition_rows() -> list[Row]:
    """One query of a group, whose batch has records of each partition."""
    measured = [least(TIMES, _measured, 1, 1, partitions) for partitions in PARTITIONS]
    how = "one query, its batch has 1,000 records of each partition"
    return _rows("partitions", "a partition and batch", PARTITIONS, measured, how)


def query_rows() -> list[Row]:
    """Queries of one group, which have a batch each in turn."""
    measured = [least(TIMES, _measured, 1, queries, OF_A_GROUP) for queries in QUERIES]
    how = f"one group of {OF_A_GROUP} partitions, a batch each of 16,000 records"
    return _rows("queries of a group", "a query and batch", QUERIES, measured, how)


def group_rows(*, most: int) -> list[Row]:
    """Groups of one coordinator, each with a topic and a query, which have a batch each in turn."""
    sizes = [*(size for size in GROUPS if size < most), most]
    measured = [least(TIMES if groups < 1_000 else 1, _measured, groups, 1, 1) for groups in sizes]
    how = "a topic of one partition and a query each, a batch each of 1,000 records"
    return _rows("groups of a coordinator", "a group and batch", sizes, measured, how)


def _rows(
    of: str, each: str, sizes: Sequence[int], measured: Sequence[Mapping[tuple[str, str], float]], how: str
) -> list[Row]:
    return [row for growth in growths(of, each, sizes, measured, how) for row in growth.rows()]


def _measured(groups: int, queries: int, partitions: int) -> dict[tuple[str, str], float]:
    """Returns the costs of a round in which each of ``queries`` queries in each of ``groups`` groups has a batch, and
    of what they keep in memory."""
    gc.collect()
    with ServedGroups() as served:
        tracemalloc.start()
        joined = {f"g{number}": _joined(served, f"g{number}", queries, partitions) for number in range(groups)}
        _round(served, joined, partitions)
        gc.collect()
        kept_bytes = float(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        rounds = max(1, -(-LEAST_BATCHES // (groups * queries)))
        batches_us: list[float] = []
        before = served.appended_bytes
        for _ in range(PARTS):
            batches_us.append(sum(_round(served, joined, partitions) for _ in range(rounds)) / rounds)
        appended = (served.appended_bytes - before) / rounds / PARTS
        beats = 5 * rounds
        beats_us = statistics.median(cpu_us(lambda: _beat(joined, beats))[0] / beats for _ in range(PARTS))
    return {
        ("CPU", "µs"): statistics.median(batches_us),
        ("memory", "B"): kept_bytes,
        ("state", "B"): appended,
        ("CPU of a heartbeat", "µs"): beats_us,
    }


def _joined(served: ServedGroups, group_id: str, queries: int, partitions: int) -> list[Query]:
    served.produce(f"topic-{group_id}", partitions, 0)
    return [Query(served, group_id, f"topic-{group_id}") for _ in range(queries)]


def _round(served: ServedGroups, joined: Mapping[str, Sequence[Query]], partitions: int) -> float:
    """A batch of each query; returns the CPU time, in microseconds, of the coordinator's part."""
    for group_id, queries in joined.items():
        served.produce(f"topic-{group_id}", partitions, RECORDS * len(queries))
    return cpu_us(lambda: _batches(joined, RECORDS * partitions))[0]


def _batches(joined: Mapping[str, Sequence[Query]], records: int) -> None:
    for queries in joined.values():
        for query in queries:
            query.batch(records)


def _beat(joined: Mapping[str, Sequence[Query]], times: int) -> None:
    for _ in range(times):
        for queries in joined.values():
            for query in queries:
                query.beat()


def cpu_us(act: Callable[[], T]) -> tuple[float, T]:
    """Run ``act``; its CPU time in microseconds, that of all threads of this process, and its result."""
    began_ns = time.process_time_ns()
    answer = act()
    return (time.process_time_ns() - began_ns) / 1000, answer
