"""Runs read tasks in the test's own process, and returns the records that they read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import VARIABLE, is_native, reader_choice
from share_source.executor.task_reader import read_task


@contextmanager
def reading_with(reader: str) -> Iterator[None]:
    """Reads with this reader, `native` or `python`, in this process and in those that it starts."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = reader
    _choose_again()
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before
        _choose_again()


def _choose_again() -> None:
    reader_choice.cache_clear()
    is_native.cache_clear()


def rows(task: ReadTask) -> list[dict[str, Any]]:
    return [row for batch in read_task(task) for row in batch.to_pylist()]


def offsets(task: ReadTask) -> list[int]:
    return [offset for batch in read_task(task) for offset in batch.column("offset").to_pylist()]


def located(task: ReadTask) -> list[tuple[int, int]]:
    """(partition, offset) of each record, sorted."""
    return sorted((row["partition"], row["offset"]) for row in rows(task))
