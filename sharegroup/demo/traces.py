"""Reads a query's files: its bills, Spark's checkpoint, and the half-written output of a batch that was killed.

Rule: the demo knows a query by these files only, and asks the query nothing. Spark writes the offset of a batch to
``checkpoint/offsets`` before the batch runs (the offset is the plan), and ``checkpoint/commits`` after it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Bill(NamedTuple):
    """A line of a query's output: an order, its partition and offset, and its delivery count."""

    order: int
    partition: int
    offset: int
    delivery_count: int


@dataclass(frozen=True)
class BatchOutput:
    """The output of one batch of a query. ``tasks``: how many tasks wrote it."""

    query: str
    batch_id: int
    tasks: int
    bills: tuple[Bill, ...]


@dataclass(frozen=True)
class KilledBatch:
    """A batch as it was when its query was killed.

    ``planned``: its (partition, offset) pairs, from Spark's log. ``written``: the output of the tasks that were done.
    ``committed``: the batch was done already, so the kill came too late.
    """

    query: str
    batch_id: int
    planned: frozenset[tuple[int, int]]
    written: tuple[Bill, ...]
    committed: bool


class Traces:
    """The files of one query, in its folder."""

    def __init__(self, query: str, folder: Path) -> None:
        self.query = query
        self._bills = folder / "bills"
        self._checkpoint = folder / "checkpoint"
        self._plans: dict[int, dict[str, dict[str, str]]] = {}

    def __repr__(self) -> str:
        return f"<Traces of query {self.query} committed={self.committed()}>"

    def has_begun(self) -> bool:
        """Whether the query has logged its first batch, or an empty batch."""
        return bool(_numbered(self._checkpoint / "offsets"))

    def committed(self) -> list[int]:
        """The batches that are done, but for batches without a plan, with which an idle query begins."""
        return [batch_id for batch_id in _numbered(self._checkpoint / "commits") if self._has_plan(batch_id)]

    def is_committed(self, batch_id: int) -> bool:
        """Whether this batch is done."""
        return (self._checkpoint / "commits" / str(batch_id)).exists()

    def running_batch(self) -> int | None:
        """The batch that Spark has logged and that is not done; None if there is none."""
        newest = max(_numbered(self._checkpoint / "offsets"), default=None)
        return None if newest is None or self.is_committed(newest) or not self._has_plan(newest) else newest

    def tasks_done(self, batch_id: int) -> int:
        """How many tasks of a running batch have written their output."""
        return len(list(self._parts(batch_id)))

    def killed(self, batch_id: int) -> KilledBatch:
        """The batch that ran when the query was killed. Call it before the query starts again."""
        return KilledBatch(
            query=self.query,
            batch_id=batch_id,
            planned=frozenset(_offsets_of(self._plan(batch_id))),
            written=tuple(bill for part in self._parts(batch_id) for bill in _bills(part)),
            committed=self.is_committed(batch_id),
        )

    def bill(self, batch_id: int, order: int) -> Bill | None:
        """The bill of an order in a batch that is done; None if there is none."""
        return next((bill for bill in _bills(self._bills / f"batch={batch_id}") if bill.order == order), None)

    def outputs(self) -> list[BatchOutput]:
        """The output of all batches that are not empty. Call it when no process writes any more."""
        batches = (
            BatchOutput(self.query, int(batch.name.partition("=")[2]), *_read(batch))
            for batch in sorted(self._bills.glob("batch=*"))
        )
        return [batch for batch in batches if batch.bills]

    def _has_plan(self, batch_id: int) -> bool:
        return bool(self._plan(batch_id))

    def _plan(self, batch_id: int) -> dict[str, dict[str, str]]:
        """The plan in Spark's log, ``{TOPIC: {"id": …, PARTITION: "first-last:delivery_count,…"}}``."""
        if batch_id not in self._plans:
            with contextlib.suppress(OSError, ValueError):  # Spark may be writing the file
                logged = (self._checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
                last = re.sub(r"^\d+:", "", logged.splitlines()[-1])  # offset log format 2: the source's number first
                self._plans[batch_id] = json.loads(last).get("plan", {})
        return self._plans.get(batch_id, {})

    def _parts(self, batch_id: int) -> Iterator[Path]:
        """The folders in which Spark's committer keeps the tasks' output until the whole batch is written."""
        return self._bills.glob(f"batch={batch_id}/_temporary/0/task_*")


def _numbered(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    return []


def _read(folder: Path) -> tuple[int, tuple[Bill, ...]]:
    return len(list(folder.glob("part-*.json"))), tuple(_bills(folder))


def _bills(folder: Path) -> Iterator[Bill]:
    for part in sorted(folder.glob("part-*.json")):
        for line in part.read_text(encoding="utf-8").splitlines():
            bill = json.loads(line)
            yield Bill(bill["order"], bill["partition"], bill["offset"], bill["deliveryCount"])


def _offsets_of(plan: dict[str, dict[str, str]]) -> Iterator[tuple[int, int]]:
    for partitions in plan.values():
        for partition, ranges in partitions.items():
            if partition.isdecimal():
                for text in ranges.split(","):
                    first, _, last = text.partition(":")[0].partition("-")
                    yield from ((int(partition), offset) for offset in range(int(first), int(last) + 1))
