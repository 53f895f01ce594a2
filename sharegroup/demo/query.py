"""A query of the story: its process, and its batches, bills and state, as its files show them.

Rule: the demo knows a query only by its files. Spark writes a batch's offset, which is the plan, to
``checkpoint/offsets`` before the batch runs, and ``checkpoint/commits`` after it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sharegroup.demo.processes import kill_session, signal_session
from sharegroup.demo.workspace import Workspace

TASKS = 4
"""Each batch has this many tasks (minPartitions of query_program); two run at a time."""
_END_WITHIN_S = 10.0
_FAILS = re.compile(r"^(?:Exception in thread .*|(?!BrokenPipe)[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)
# A worker whose task ended early logs a BrokenPipeError, without harm.


class Bill(NamedTuple):
    """A line of a query's output. ``task``: the file that its task wrote."""

    query: str
    batch_id: int
    task: str
    order: int
    partition: int
    offset: int
    delivery_count: int


class KilledBatch(NamedTuple):
    """A batch at the moment when its query was killed. ``planned``: its (partition, offset) pairs, from Spark's log.
    ``written``: the output of finished tasks. ``committed``: the kill came too late."""

    query: str
    batch_id: int
    planned: frozenset[tuple[int, int]]
    written: tuple[Bill, ...]
    committed: bool


class Query:
    """A query that can be killed and started again. ``should_run``: the story has started it, and not killed it."""

    def __init__(self, name: str, workspace: Workspace, bootstrap_servers: str) -> None:
        self.name = name
        self.should_run = False
        self._folder = workspace.make(f"query={name}")
        self._log = workspace.logs / f"query-{name}.log"
        self._workspace = workspace
        self._bootstrap_servers = bootstrap_servers
        self._process: subprocess.Popen[bytes] | None = None
        self._killed_batch: int | None = None
        self._plans: dict[int, dict[str, dict[str, str]]] = {}

    # --- its process

    def start(self) -> None:
        """Start the program in a session of its own, which Spark's workers do not leave. It appends to the log file."""
        program = ("sharegroup.demo.parent_watch", "sharegroup.demo.query_program")
        arguments = (self.name, self._bootstrap_servers, str(self._folder), str(self._workspace.payments))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *program, *arguments],
                stdin=subprocess.PIPE,  # parent_watch ends the program when this pipe closes
                stdout=log,
                stderr=log,
                env=self._workspace.environment,
                cwd=self._workspace.folder,
                start_new_session=True,
            )
        self.should_run = True

    def kill(self) -> int:
        """Kill the program, its JVM and all their Python processes. Returns how many processes there were."""
        self.should_run = False
        if self._process is None:
            return 0
        process, self._process = self._process, None
        killed = kill_session(process.pid)
        process.wait(_END_WITHIN_S)
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        return killed

    def error(self) -> str:
        """Returns the first line of the log that names an error, if the query has ended by itself; else empty."""
        if not self.should_run or self._process is None or self._process.poll() is None:
            return ""
        found = _FAILS.search(self._log.read_text(errors="replace"))
        return found.group() if found else "its log has no error"

    def stopped_in_a_batch(self) -> KilledBatch | None:
        """Returns the running batch if some of its orders are written and some are not, and pauses the query: on a busy
        machine the batch could be done before the query is killed."""
        batch = self._running_batch()
        if self._process is None or batch is None or not 0 < len(self._parts(batch)) < TASKS:
            return None
        signal_session(self._process.pid, signal.SIGSTOP)
        written = tuple(bill for part in self._parts(batch) for bill in self._bills(batch, part))
        planned = frozenset(_offsets_of(self._plan(batch)))
        stopped = KilledBatch(self.name, batch, planned, written, self.is_committed(batch))
        if 0 < len(written) < len(planned) and not stopped.committed:
            self._killed_batch = batch
            return stopped
        signal_session(self._process.pid, signal.SIGCONT)
        return None

    # --- its files

    def committed(self) -> list[int]:
        """Returns the finished batches, without the empty ones with which an idle query begins."""
        return [batch_id for batch_id in self._numbered("commits") if self._plan(batch_id)]

    def is_committed(self, batch_id: int) -> bool:
        return batch_id in self._numbered("commits")

    def bills(self, batch_id: int) -> list[Bill]:
        return list(self._bills(batch_id, self._output(batch_id)))

    def all_bills(self) -> Iterator[Bill]:
        """Call it when no process writes any more. Yields the output of all batches."""
        for folder in self._folder.glob("bills/batch=*"):
            yield from self._bills(int(folder.name.partition("=")[2]), folder)

    def view(self) -> tuple[str, str, str]:
        """Returns the query's state in a word, its finished batches, and the batch that it processes."""
        batch, done = self._running_batch(), len(self.committed())
        state = self._state(batch)
        running = f"batch {batch}: {0 if batch is None else len(self._parts(batch))} of {TASKS} tasks written"
        if state == "replaying":  # the files on disk are the killed attempt's
            running = f"batch {self._killed_batch} again"
        batches = f"{done} {'batch' if done == 1 else 'batches'} done"
        return state, batches, running if state in ("running", "replaying") else ""

    def _state(self, batch: int | None) -> str:
        if not self.should_run:
            return "killed"
        if self._killed_batch is not None and not self.is_committed(self._killed_batch):
            return "replaying"
        if not self._numbered("offsets"):
            return "starting"
        return "idle" if batch is None else "running"

    def _running_batch(self) -> int | None:
        """Returns the batch that is in Spark's log and not finished; None if there is none."""
        newest = max(self._numbered("offsets"), default=None)
        return None if newest is None or self.is_committed(newest) or not self._plan(newest) else newest

    def _plan(self, batch_id: int) -> dict[str, dict[str, str]]:
        """Returns the plan in Spark's log, ``{TOPIC: {"id": …, PARTITION: "first-last:delivery_count,…"}}``."""
        if batch_id not in self._plans:
            with contextlib.suppress(OSError, ValueError):  # Spark may be writing the file
                logged = (self._folder / "checkpoint" / "offsets" / str(batch_id)).read_text(encoding="utf-8")
                last = re.sub(r"^\d+:", "", logged.splitlines()[-1])  # offset log format 2: the source's number first
                self._plans[batch_id] = json.loads(last).get("plan", {})
        return self._plans.get(batch_id, {})

    def _numbered(self, log: str) -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(path.name) for path in (self._folder / "checkpoint" / log).iterdir() if path.name.isdecimal()]
        return []

    def _output(self, batch_id: int) -> Path:
        return self._folder / "bills" / f"batch={batch_id}"

    def _parts(self, batch_id: int) -> list[Path]:
        """Returns the folders in which Spark keeps the tasks' output until the whole batch is written."""
        return list(self._output(batch_id).glob("_temporary/0/task_*"))

    def _bills(self, batch_id: int, folder: Path) -> Iterator[Bill]:
        for part in sorted(folder.glob("part-*.json")):
            for line in part.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                place = row["order"], row["partition"], row["offset"], row["deliveryCount"]
                yield Bill(self.name, batch_id, part.name, *place)


def _offsets_of(plan: dict[str, dict[str, str]]) -> Iterator[tuple[int, int]]:
    for partitions in plan.values():
        for partition, ranges in partitions.items():
            if partition.isdecimal():
                for text in ranges.split(","):
                    first, _, last = text.partition(":")[0].partition("-")
                    yield from ((int(partition), offset) for offset in range(int(first), int(last) + 1))
