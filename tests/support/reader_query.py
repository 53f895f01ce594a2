"""A query's reader and tasks in the test's process, on a coordinator on demand and a real broker, without Spark."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from share_source.driver.reader import ShareGroupStreamReader
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_task
from share_source.options import SourceOptions
from tests.support.waiting import wait_until


class Query:
    """One query as Spark runs it: the source's own reader and tasks, in this process, on a coordinator on demand."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.reader = ShareGroupStreamReader(SourceOptions.parse(options))
        self.committed = self.reader.initialOffset()
        self.end = self.committed
        self.delivered: Counter[tuple[int, int]] = Counter()
        """By (partition, offset), the number of times that it was read in a committed batch."""

    def __repr__(self) -> str:
        return f"<Query at {self.committed}>"

    def next_batch(self, most: int = 1_000_000) -> list[ReadTask]:
        """Complete the batch before, and start the next one. Its tasks; none while nothing is to be had. A batch
        without ranges, which only reports a loss, is committed as Spark does."""
        self.end = self.reader.latestOffset(self.committed, ReadMaxRows(most))
        found = self.reader.partitions(self.committed, self.end)
        tasks = [part.task for part in found if part.task.partitions]
        if not tasks:
            self.committed = self.end
        return tasks

    def wait_batch(self, most: int = 1_000_000) -> list[ReadTask]:
        return wait_until(lambda: self.next_batch(most), what="there is a batch")

    def commit(self, rows: list[dict[str, Any]]) -> None:
        self.delivered.update((row["partition"], row["offset"]) for row in rows)
        self.committed = self.end

    def run(self, most: int = 1_000_000) -> list[dict[str, Any]]:
        """Runs a whole batch. Returns the records that it read."""
        rows = [row for task in self.wait_batch(most) for row in read(task)]
        self.commit(rows)
        return rows


def read(task: ReadTask) -> list[dict[str, Any]]:
    """The rows of the task."""
    return [row for batch in read_task(task) for row in batch.to_pylist()]
