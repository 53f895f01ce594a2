"""What a query left on disk: its bills, Spark's checkpoint, and the half-written output of a batch that was killed.

Rule: these files are all that is known of a query; nothing is asked of the query itself. Spark writes the offset of a
batch to ``checkpoint/offsets`` before it runs (the offset is the plan), and ``checkpoint/commits`` after it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Bill(NamedTuple):
    """A line of a query's output: an order, where it came from, and how often it had been delivered by then."""

    order: int
    partition: int
    offset: int
    delivery_count: int


@dataclass(frozen=True)
class BatchOutput:
    """What the output holds of a (query, batch id); ``tasks``: how many tasks wrote it."""

    query: str
    batch_id: int
    tasks: int
    bills: tuple[Bill, ...]


@dataclass(frozen=True)
class KilledBatch:
    """A batch as it was when its query was killed.

    ``planned``: its (partition, offset) pairs, from Spark's log. ``written``: what the tasks that were done had
    written. ``committed``: it was too late, the batch was done.
    """

    query: str
    batch_id: int
    planned: frozenset[tuple[int, int]]
    written: tuple[Bill, ...]
    committed: bool


class Traces:
    """The traces of one query, in its folder."""

    def __init__(self, query: str, folder: Path) -> None:
        self.query = query
        self._bills = folder / "bills"
        self._checkpoint = folder / "checkpoint"
        self._plans: dict[int, dict[str, dict[str, str]]] = {}

    def __repr__(self) -> str:
        return f"<Traces of query {self.query} committed={self.committed()}>"

    def has_begun(self) -> bool:
        """Whether it has come as far as its first batch, or an empty one."""
        return bool(_numbered(self._checkpoint / "offsets"))

    def committed(self) -> list[int]:
        """The batches that are done; one without a plan, which is how an idle query begins, does not count."""
        return [batch_id for batch_id in _numbered(self._checkpoint / "commits") if self._has_plan(batch_id)]

    def is_committed(self, batch_id: int) -> bool:
        """Whether this batch is done."""
        return (self._checkpoint / "commits" / str(batch_id)).exists()

    def running_batch(self) -> int | None:
        """The batch whose plan Spark has logged and that is not done, if there is one."""
        newest = max(_numbered(self._checkpoint / "offsets"), default=None)
        return None if newest is None or self.is_committed(newest) or not self._has_plan(newest) else newest

    def tasks_done(self, batch_id: int) -> int:
        """How many tasks of a running batch have written their part."""
        return len(list(self._parts(batch_id)))

    def killed(self, batch_id: int) -> KilledBatch:
        """The batch that was running when the query was killed; to be called before it starts again."""
        return KilledBatch(
            query=self.query,
            batch_id=batch_id,
            planned=frozenset(_offsets_of(self._plan(batch_id))),
            written=tuple(bill for part in self._parts(batch_id) for bill in _bills(part)),
            committed=self.is_committed(batch_id),
        )

    def bill(self, batch_id: int, order: int) -> Bill | None:
        """An order's bill in a batch that is done."""
        return next((bill for bill in _bills(self._bills / f"batch={batch_id}") if bill.order == order), None)

    def outputs(self) -> list[BatchOutput]:
        """All of the output but empty batches; to be called when nothing writes any more."""
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
            with contextlib.suppress(OSError, ValueError):  # Spark is just writing it
                logged = (self._checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
                self._plans[batch_id] = json.loads(logged.splitlines()[-1]).get("plan", {})
        return self._plans.get(batch_id, {})

    def _parts(self, batch_id: int) -> Iterator[Path]:
        """Where Spark's committer keeps the output of tasks until the batch is written whole."""
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
                for each in ranges.split(","):
                    first, _, last = each.partition(":")[0].partition("-")
                    yield from ((int(partition), offset) for offset in range(int(first), int(last) + 1))
