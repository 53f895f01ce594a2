"""Starts, tells and kills a user's Spark program (tests.support.query_program), and reads what it says.

Rule: it signals the processes that the program started, found by parentage, and no other. A coordinator that a query
of the program started belongs to the user, not to the program, and survives it: tests.support.coordinator_process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from tests.support.coordinator_process import coordinator_pids, has_ended
from tests.support.imports import ROOT
from tests.support.java_options import SHORT_LIVED, SPARK_OPTIONS
from tests.support.query_spec import QuerySpec
from tests.support.waiting import wait_until

START_TIMEOUT_S = 180
BATCH_TIMEOUT_S = 240
KILL_TIMEOUT_S = 60
"""A kill fails after this many seconds: a busy machine takes far less. Only a hang takes so long, so that tests of this
folder fail by what they observe."""
SLOW_START = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which a loaded machine may not keep: what starts Spark once and
ends with this text is started again, as a scheduler would."""

SPARK_CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "640m",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


class RunningQuery:
    """One start of a query, as its events tell it."""

    def __init__(self, program: SparkProgram, spec: QuerySpec, events: Path) -> None:
        self.spec = spec
        self._program = program
        self._events = events

    def __repr__(self) -> str:
        return f"<RunningQuery {self.spec.name} {self._events}>"

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The events so far, all of them or those of one kind: started, refused, written, progress, ended."""
        if not self._events.exists():
            return []
        lines = [line for line in self._events.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in map(json.loads, lines) if not kind or event["event"] == kind]

    def rows(self) -> int:
        """Records in the batches that Spark reported."""
        return sum(event["rows"] for event in self.events("progress"))

    def tasks(self) -> int:
        """The most tasks that a stage of this query had."""
        return max((event["tasks"] for event in self.events("progress")), default=0)

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = BATCH_TIMEOUT_S) -> Any:
        """Wait for a condition; at once an AssertionError when the query has ended and it still doesn't hold."""

        def holds_or_ended() -> Any:
            ended = self.over()
            answer = condition()
            if not answer and ended:
                raise AssertionError(f"{self.spec.name} ended before {what}: {self.error() or 'without an error'}")
            return answer

        return wait_until(holds_or_ended, timeout_s=timeout_s, what=f"{self.spec.name}: {what}")

    def wait_started(self) -> RunningQuery:
        self.wait(lambda: self.events("started"), "it has started")
        return self

    def wait_held(self, *values: str) -> RunningQuery:
        """Wait until the work has stopped at all of these values."""
        self.wait(lambda: set(values) <= set(self.spec.held()), f"the work is held at {values}")
        return self

    def wait_tasks(self, tasks: int) -> RunningQuery:
        """Waits until a stage of a reported batch had at least ``tasks`` tasks."""
        self.wait(lambda: self.tasks() >= tasks, f"a stage has had {tasks} tasks")
        return self

    def wait_written(self, batches: int = 1) -> RunningQuery:
        self.wait(lambda: len(self.events("written")) >= batches, f"{batches} batches are written")
        return self

    def wait_over(self, timeout_s: float = BATCH_TIMEOUT_S) -> RunningQuery:
        """Wait until the query has ended, or was refused."""
        wait_until(self.over, timeout_s=timeout_s, what=f"{self.spec.name} ends")
        return self

    def over(self) -> bool:
        return bool(self.events("ended") or self.events("refused")) or not self._program.alive

    def error(self) -> str:
        """Why the query ended or was refused; empty for a good end."""
        for event in self.events():
            if event["event"] in ("ended", "refused"):
                return str(event["error"])
        return "" if self._program.alive else f"the program is gone, its log: {self._program.log_tail()}"

    def stop(self) -> None:
        """query.stop(), once it has started, and wait for the end."""
        wait_until(lambda: self.events("started") or self.over(), timeout_s=BATCH_TIMEOUT_S, what=f"{self} starts")
        self._program.tell({"do": "stop", "name": self.spec.name})
        self.wait_over()


class SparkProgram:
    """One Spark session in a process of its own; `start_query` runs queries in it. `settings` are Spark's.
    `environment` is the driver's, and its executors' unless `executors` sets another."""

    def __init__(
        self,
        *,
        master: str = "local[2]",
        settings: Mapping[str, str] | None = None,
        executors: Mapping[str, str] | None = None,
        java_options: Sequence[str] = SPARK_OPTIONS,
        enter: Sequence[str] = (),
        **environment: str,
    ) -> None:
        """``enter``: the words before the program's command that make it run on another host."""
        self.directory = Path(tempfile.mkdtemp(prefix="sgj-"))  # short: sockets' paths lie in it
        # What a killed JVM leaves behind goes with the folder.
        java = " ".join((f"-Djava.io.tmpdir={self.directory}", *java_options))
        config = {
            **SPARK_CONFIG,
            "spark.master": master,
            "spark.local.dir": str(self.directory),
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.python.unix.domain.socket.dir": str(self.directory),
            "spark.executor.memory": "640m",
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
            **(settings or {}),
            **{f"spark.executorEnv.{key}": value for key, value in {**environment, **(executors or {})}.items()},
        }
        config_path = self.directory / "program.json"
        config_path.write_text(json.dumps(config))
        self._ready = config_path.with_suffix(".ready")
        self._log = self.directory / "program.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*enter, sys.executable, "-m", "tests.support.query_program", str(config_path)],
                cwd=ROOT,
                env={
                    **os.environ,
                    "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED),  # of the JVM that puts the driver's command together
                    "SPARK_WORKER_DIR": str(self.directory / "cluster"),
                    **environment,
                },
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        self._starts = 0

    def __repr__(self) -> str:
        return f"<SparkProgram pid={self._process.pid} {'alive' if self.alive else 'dead'}>"

    def __enter__(self) -> SparkProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def version(self) -> str:
        """Spark's, once the session has begun."""
        return self.wait_ready()._ready.read_text()

    def start_query(self, spec: QuerySpec) -> RunningQuery:
        """Starts a query, and the session if it has not begun yet. Returns at once: wait for the query's events."""
        self._starts += 1
        events = Path(spec.directory, "events", f"{spec.name}-{self._process.pid}-{self._starts}.jsonl")
        events.parent.mkdir(parents=True, exist_ok=True)
        self.tell({"do": "start", "spec": asdict(spec), "events": str(events)})
        return RunningQuery(self, spec, events)

    def wait_ready(self) -> SparkProgram:
        """Wait until the session has begun."""
        wait_until(lambda: self._ready.exists() or not self.alive, timeout_s=START_TIMEOUT_S, what=f"{self!r} is ready")
        assert self.alive, f"the program did not start: {self.log_tail()}"
        return self

    def tell(self, command: dict[str, Any]) -> None:
        self.wait_ready()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def run(self, code: str, **arguments: Any) -> Any:
        """Runs the function ``run(spark, **arguments)`` of the code in the session, and returns its result, which went
        through JSON. An error of the function is an AssertionError."""
        answer = self.directory / f"result-{uuid.uuid4().hex}.json"
        self.tell({"do": "run", "code": code, "arguments": arguments, "to": str(answer)})
        wait_until(lambda: answer.exists() or not self.alive, timeout_s=BATCH_TIMEOUT_S, what="the code has run")
        assert self.alive, self.log_tail()
        outcome = json.loads(answer.read_text())
        assert "error" not in outcome, outcome["error"]
        return outcome["result"]

    def processes(self, word: str = "") -> list[psutil.Process]:
        """The processes that the program started, itself included, whose command line has this word; no coordinator."""
        with contextlib.suppress(psutil.NoSuchProcess):
            main = psutil.Process(self._process.pid)
            found = [main, *main.children(recursive=True)]
            spared = coordinator_pids()
            return [each for each in found if each.pid not in spared and word in _command(each)]
        return []

    def kill(self) -> None:
        """SIGKILL of the driver, its JVM and all its Python workers, as when a host goes away."""
        found = kill_processes(self.processes)
        self._process.wait(KILL_TIMEOUT_S)
        wait_until(lambda: all(map(has_ended, found)), timeout_s=KILL_TIMEOUT_S, what=f"{self!r} has ended")

    def pause(self) -> None:
        """SIGSTOP of the same processes."""
        suspend_processes(self.processes)

    def resume(self) -> None:
        """SIGCONT of the same processes."""
        for each in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()

    def end(self) -> None:
        """The end of its commands, at which the program stops its session and ends by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(START_TIMEOUT_S)

    def close(self) -> None:
        """The end: its processes and its folder are gone."""
        self.kill()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_said(self, text: str) -> None:
        """Waits until the log has the text: Python's output reaches it through a thread of the JVM's, a while later."""
        wait_until(lambda: text in self.log() or not self.alive, timeout_s=BATCH_TIMEOUT_S, what=f"{text!r} is logged")
        assert text in self.log()


def kill_processes(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """SIGKILL of all processes that ``find`` returns, as when a host goes away; returns those."""
    found = suspend_processes(find)  # all stand still first: nobody starts, or says, anything meanwhile
    for each in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(signal.SIGKILL)
    return found


def suspend_processes(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """SIGSTOP of all processes that ``find`` returns; returns those."""
    found: list[psutil.Process] = []
    while new := [each for each in find() if each not in found]:  # also what they started in the meantime
        for each in new:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.suspend()
        found += new
    return found


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
