"""Runs read tasks in the test's own process, and returns the records that they read."""

from __future__ import annotations

from typing import Any

from share_source.range_reader import ReadTask, read_task


def rows(task: ReadTask) -> list[dict[str, Any]]:
    return [row for batch in read_task(task) for row in batch.to_pylist()]


def offsets(task: ReadTask) -> list[int]:
    return [offset for batch in read_task(task) for offset in batch.column("offset").to_pylist()]


def located(task: ReadTask) -> list[tuple[int, int]]:
    """(partition, offset) of each record, sorted."""
    return sorted((row["partition"], row["offset"]) for row in rows(task))
