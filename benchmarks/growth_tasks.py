"""How a batch's cost grows with its tasks: the cut of its plan, the reading, and the staging of a sink's outcomes."""

from __future__ import annotations

import pickle
import statistics
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from benchmarks.growth import TIMES, Growth, cpu_us, growths, least
from benchmarks.report import Row
from benchmarks.served_groups import Query, ServedGroups
from coordinator.protocol.outcome_rows import SCHEMA, coalesce, partition_outcomes
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_source.driver.plan_reader import TaskPartition
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges, plan_tasks
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_task
from tests.support.kafka_broker import KafkaBroker

TASKS = (1, 8, 64)
PARTITIONS = 16
A_TASK = 2_000
"""The number of records that a task reads."""
BATCHES, WARM_UP = 8, 2
REJECTED_EVERY = 10
"""A sink rejects every tenth record, which makes two runs."""


def task_rows(broker: KafkaBroker) -> list[Row]:
    """Return the costs of batches of 1, 8 and 64 tasks, which read all of a topic of a real broker."""
    topic = broker.create_topic("tasks", PARTITIONS)
    for partition in range(PARTITIONS):
        broker.produce(topic, [b"%0200d" % 0] * (BATCHES * TASKS[-1] * A_TASK // PARTITIONS), partition=partition)
    measured = [least(TIMES, _measured, broker.bootstrap, topic, tasks) for tasks in TASKS]
    how = f"{PARTITIONS} partitions, {A_TASK:,} records a task, one in {REJECTED_EVERY} rejected"
    found: list[Growth] = growths("tasks of a batch", "a task", TASKS, measured, how)
    return [row for growth in found for row in growth.rows()]


def _measured(bootstrap: str, topic: str, tasks: int) -> dict[tuple[str, str], float]:
    """Returns the medians of the costs of batches with ``tasks`` tasks."""
    costs: dict[tuple[str, str], list[float]] = {}
    each = tasks * A_TASK // PARTITIONS
    with ServedGroups() as served:
        served.produce(topic, PARTITIONS, BATCHES * each)
        query = Query(served, "tasks", topic)
        for _ in range(BATCHES):
            appended = served.appended_bytes
            plan = query.batch(tasks * A_TASK)
            parts = [PartitionRanges(p.topic, p.partition, p.ranges) for p in plan.partitions]
            cut_us, cut = cpu_us(lambda parts=parts: plan_tasks(parts, min_partitions=tasks))
            assert len(cut) == tasks
            sent_us, sent = cpu_us(lambda cut=cut: _sent(cut, bootstrap))
            read_us, count = cpu_us(lambda sent=sent: sum(map(_read, sent)))
            assert count == tasks * A_TASK, count
            outcomes = [_outcomes(task) for task in cut]
            staged_us, _ = cpu_us(lambda outcomes=outcomes: _stage(query, outcomes))
            found = {
                ("cut and sent, CPU", "µs"): cut_us + sent_us,
                ("sent", "B"): float(sum(map(len, sent))),
                ("read, CPU", "µs"): read_us,
                ("outcomes staged, CPU", "µs"): staged_us,
                ("state", "B"): float(served.appended_bytes - appended),
            }
            for key, cost in found.items():
                costs.setdefault(key, []).append(cost)
    consumers.cache().close()
    return {key: statistics.median(each[WARM_UP:]) for key, each in costs.items()}


def _sent(cut: Sequence[tuple[PartitionRanges, ...]], bootstrap: str) -> list[bytes]:
    config = {"bootstrap.servers": bootstrap, "log_level": "0"}
    return [pickle.dumps(TaskPartition(ReadTask(partitions=parts, kafka_config=config))) for parts in cut]


def _read(sent: bytes) -> int:
    return sum(batch.num_rows for batch in read_task(pickle.loads(sent).task))


def _outcomes(task: Sequence[PartitionRanges]) -> pa.Table:
    """The table that an executor makes of the task's rows."""
    rows: list[tuple[Any, ...]] = []
    for part in task:
        for acquired in part.ranges:
            rows += [(part.topic, part.partition, *run) for run in _runs(acquired)]
    columns = zip(*((*row, None, False, None) for row in rows), strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return coalesce(pa.Table.from_arrays(arrays, schema=SCHEMA))


def _runs(acquired: AcquiredRange) -> list[tuple[int, int, int, int]]:
    runs = []
    for first in range(acquired.first, acquired.last + 1, REJECTED_EVERY):
        last = min(first + REJECTED_EVERY - 1, acquired.last)
        if first < last:
            runs.append((first, last - 1, acquired.delivery_count, int(AcknowledgeType.ACCEPT)))
        runs.append((last, last, acquired.delivery_count, int(AcknowledgeType.REJECT)))
    return runs


def _stage(query: Query, outcomes: Sequence[pa.Table]) -> None:
    """The driver merges the tasks' outcomes, the coordinator stages them."""
    query.stage(partition_outcomes(coalesce(pa.concat_tables(outcomes))))
