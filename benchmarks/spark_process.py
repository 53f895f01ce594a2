"""The handle of a Spark session that runs queries for the benchmark (benchmarks.spark_session)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.support.coordinator_process import coordinator_pids
from tests.support.imports import ROOT, python_path

JARS = ROOT / ".build" / "spark-kafka"
CORES = 2
JVM, PYTHON, COORDINATOR = "JVM", "Python", "coordinator"
"""The kinds of processes, without the broker. Python: the driver, the source's runner and the tasks."""
_ANSWER_TIMEOUT_S = 300
_CONFIG = {
    "spark.driver.extraClassPath": f"{JARS}/*",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


class QueryFailed(RuntimeError):
    """A query of the benchmark failed, or did not end."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a query, with its batches from Spark's progress."""

    whole_s: float
    cpu_s: dict[str, float]
    """CPU seconds by the kind of process, as in `SparkProcess.cpu_s`."""
    batches: list[dict[str, Any]]

    @property
    def records(self) -> int:
        return sum(batch["records"] for batch in self.batches)

    @property
    def all_cpu_s(self) -> float:
        return sum(self.cpu_s.values())

    def steady_rate(self, warm_up: int) -> float:
        """Return the records a second in the median batch, without the first batches."""
        steady = self.batches[warm_up:] or self.batches[-1:]
        return statistics.median(batch["records"] * 1000 / batch["triggerExecution"] for batch in steady)

    def median_ms(self, what: str, warm_up: int) -> float:
        """Return the median of one of Spark's durations over the batches, without the first ones."""
        steady = self.batches[warm_up:] or self.batches[-1:]
        return statistics.median(batch.get(what, 0) for batch in steady)


class SparkProcess:
    """One session. Use it in a ``with``, whose end ends all its processes and removes its folder."""

    def __init__(self, *, unix_sockets: bool, executors: int = 0) -> None:
        """Start it. ``executors``: processes of one core each, beside the driver; without them the driver runs
        ``CORES`` tasks at a time."""
        self.directory = Path(tempfile.mkdtemp(prefix="sgb-"))  # short: sockets' paths lie in it
        self._answers, theirs = os.pipe()
        self._log = self.directory / "spark.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.spark_session", str(theirs)],
                cwd=ROOT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(theirs,),
                start_new_session=True,
                text=True,
            )
        os.close(theirs)
        self._said = b""
        self._tell(
            {
                **_CONFIG,
                "spark.master": f"local[{CORES}]",
                "spark.local.dir": str(self.directory),
                "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self.directory}",
                "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
                "spark.python.unix.domain.socket.enabled": str(unix_sockets).lower(),
                "spark.python.unix.domain.socket.dir": str(self.directory),
                **(_executors(executors) if executors else {}),
            }
        )

    def __enter__(self) -> SparkProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, source: str, options: dict[str, str], **fields: Any) -> None:
        """Start a query; `finish` waits for its end."""
        self._cpu_before_s = self.cpu_s()
        checkpoint = self.directory / f"checkpoint-{uuid.uuid4().hex[:8]}"
        self._tell({"source": source, "options": options, "checkpoint": str(checkpoint), **fields})

    def finish(self) -> Run:
        """Return the run of the query that was started last; raises QueryFailed."""
        answer = self._listen()
        if "error" in answer:
            raise QueryFailed(answer["error"])
        after_s = self.cpu_s()
        return Run(**answer, cpu_s={kind: after_s[kind] - self._cpu_before_s[kind] for kind in after_s})

    def run(self, source: str, options: dict[str, str]) -> Run:
        self.start(source, options)
        return self.finish()

    def processes(self) -> list[psutil.Process]:
        """Return the live processes: the session and those that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            main = psutil.Process(self._process.pid)
            return [main, *main.children(recursive=True)]
        return []

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU time so far of the session, all processes that it started and the coordinators, by the kind of
        process. Ended processes count, since their parents have their time as children's time: the JVM's are Python's.
        """
        total = dict.fromkeys((JVM, PYTHON, COORDINATOR), 0.0)
        coordinators = coordinator_pids()
        found = {each.pid: each for each in (*self.processes(), *map(psutil.Process, coordinators))}
        for pid, each in found.items():
            with contextlib.suppress(psutil.Error):
                kind = COORDINATOR if pid in coordinators else JVM if is_jvm(each) else PYTHON
                times = each.cpu_times()
                total[kind] += times.user + times.system
                total[PYTHON] += times.children_user + times.children_system
        return total

    def close(self) -> None:
        found = self.processes()
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(found, timeout=20)
        self._process.wait(20)
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        os.close(self._answers)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _tell(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> dict[str, Any]:
        while b"\n" not in self._said:
            ready, _, _ = select.select([self._answers], [], [], _ANSWER_TIMEOUT_S)
            more = os.read(self._answers, 1 << 20) if ready else b""
            if not more:
                end = self._log.read_text(errors="replace")[-3000:]
                raise QueryFailed(f"{'it ended' if ready else 'no answer'}:\n{end}")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


def is_jvm(process: psutil.Process) -> bool:
    """Return whether the process runs Java; raises psutil.Error if it has ended."""
    return os.path.basename(process.exe()) == "java"


def _executors(number: int) -> dict[str, str]:
    return {
        "spark.master": f"local-cluster[{number},1,1024]",
        "spark.executor.memory": "1g",
        "spark.executor.extraClassPath": f"{JARS}/*",
        "spark.executorEnv.PYTHONPATH": python_path(),
    }
