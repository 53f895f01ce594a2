"""A query of the story: its process and its traces, and what it does now, as these show it."""

from __future__ import annotations

from sharegroup.demo.processes import QueryProcess
from sharegroup.demo.screen import QueryView
from sharegroup.demo.traces import KilledBatch, Traces
from sharegroup.demo.workspace import Workspace

TASKS = 4
"""In each batch of a query, two at a time: query_program's minPartitions."""


class Query:
    """Its state, as far as the story knows it: whether it should run, and which batch it replays."""

    def __init__(self, name: str, workspace: Workspace, bootstrap_servers: str) -> None:
        self.name = name
        self.process = QueryProcess(name, workspace, bootstrap_servers)
        self.traces = Traces(name, self.process.folder)
        self.should_run = False
        self.replays: int | None = None

    def __repr__(self) -> str:
        return f"<Query {self.name} {self.process!r}>"

    def start(self) -> None:
        """Start it, or start it again."""
        self.process.start()
        self.should_run = True

    def kill(self) -> int:
        """SIGKILL to all of its processes; how many these were."""
        self.should_run = False
        return self.process.kill()

    def stopped_in_a_batch(self) -> KilledBatch | None:
        """The batch that it is in the middle of: some of its orders are written, and some are not. It is stopped then:
        on a busy machine the batch would be done before it is killed."""
        batch = self.traces.running_batch()
        if batch is None or not 0 < self.traces.tasks_done(batch) < TASKS:
            return None
        self.process.stop()
        found = self.traces.killed(batch)
        if 0 < len(found.written) < len(found.planned) and not found.committed:
            return found
        self.process.go_on()
        return None

    def view(self) -> QueryView:
        """What it does now."""
        batch = self.traces.running_batch()
        return QueryView(
            name=self.name,
            state=self._state(batch),
            batch=batch if self.should_run else None,
            tasks_done=0 if batch is None else self.traces.tasks_done(batch),
            tasks=TASKS,
            committed=len(self.traces.committed()),
        )

    def _state(self, batch: int | None) -> str:
        if not self.should_run:
            return "killed"
        if self.replays is not None and not self.traces.is_committed(self.replays):
            return "replaying"
        if not self.traces.has_begun():
            return "starting"
        return "idle" if batch is None else "running"
