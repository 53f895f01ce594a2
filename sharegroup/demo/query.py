"""A query of the story: its process, its files, and its state as these show it."""

from __future__ import annotations

from sharegroup.demo.processes import QueryProcess
from sharegroup.demo.screen import QueryView
from sharegroup.demo.traces import KilledBatch, Traces
from sharegroup.demo.workspace import Workspace

TASKS = 4
"""Tasks of each batch (minPartitions of query_program); two run at a time."""


class Query:
    """A query. ``should_run``: the story has started it, and not killed it. ``replays``: the batch that it replays."""

    def __init__(self, name: str, workspace: Workspace, bootstrap_servers: str) -> None:
        self.name = name
        self.process = QueryProcess(name, workspace, bootstrap_servers)
        self.traces = Traces(name, self.process.folder)
        self.should_run = False
        self.replays: int | None = None

    def __repr__(self) -> str:
        return f"<Query {self.name} {self.process!r}>"

    def start(self) -> None:
        """Start the query, or start it again."""
        self.process.start()
        self.should_run = True

    def kill(self) -> int:
        """Send SIGKILL to all processes of the query. Returns how many these were."""
        self.should_run = False
        return self.process.kill()

    def stopped_in_a_batch(self) -> KilledBatch | None:
        """The running batch, if some of its orders are written and some are not; None if there is no such batch. The
        query is then stopped: on a busy machine the batch could be done before the query is killed."""
        batch = self.traces.running_batch()
        if batch is None or not 0 < self.traces.tasks_done(batch) < TASKS:
            return None
        self.process.stop()
        stopped = self.traces.killed(batch)
        if 0 < len(stopped.written) < len(stopped.planned) and not stopped.committed:
            return stopped
        self.process.go_on()
        return None

    def view(self) -> QueryView:
        """The query's state, for the screen."""
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
