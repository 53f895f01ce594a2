"""A standalone Spark cluster on loopback: a master, and a worker with one core on each of two addresses.

Spark runs no speculative copy of a task on the host that has an attempt of it already, and all executors of
``local-cluster`` have one host. Here each worker has an address of 127.0.0.0/8 of its own.

The rule: all its processes are one process group, which is gone when its owner is gone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.support.imports import python_path
from tests.support.java_options import SHORT_LIVED
from tests.support.kafka_broker import free_ports
from tests.support.waiting import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")
START_TIMEOUT_S = 180
_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"


class SparkCluster:
    """`master` is its address for ``spark.master``. ``environment`` is the workers', and so their executors'; without
    it that of the tests. ``host`` is the master's address, ``hosts`` are the workers', ``enter`` the words before the
    command of a worker."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        hosts: Sequence[str] = HOSTS,
        host: str = HOSTS[0],
        enter: Sequence[str] = (),
    ) -> None:
        self._hosts = hosts
        self._enter = enter
        self.directory = Path(tempfile.mkdtemp(prefix="sgm-"))
        (port,) = free_ports(1)
        self.master = f"spark://{host}:{port}"
        self._log = self.directory / "cluster.log"
        guard = [sys.executable, str(Path(__file__).with_name("process_guard.py")), str(self.directory)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, text=True, start_new_session=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", f"{self._script(host, port)} wait"],
                env={
                    **({**os.environ, "PYTHONPATH": python_path()} if environment is None else environment),
                    "SPARK_HOME": str(_SPARK),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": " ".join(SHORT_LIVED),
                    "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{self._process.pid}\n")
        self._guard.stdin.flush()

    def __repr__(self) -> str:
        return f"<SparkCluster {self.master}>"

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self) -> SparkCluster:
        """Wait until both workers are registered."""
        wait_until(
            lambda: self.log().count("Successfully registered with master") == len(self._hosts),
            timeout_s=START_TIMEOUT_S,
            what=f"{self!r} has its workers (log: {self._log})",
        )
        return self

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """The end: its processes and its folder are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._guard.stdin:
            self._guard.stdin.close()
        self._guard.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _script(self, host: str, port: int) -> str:
        start = shlex.quote(str(_SPARK / "bin" / "spark-class"))
        commands = [f"{start} {_DEPLOY}.master.Master --host {host} --port {port} --webui-port 0 &"]
        enter = shlex.join(self._enter)
        for worker in self._hosts:
            place = shlex.quote(str(self.directory / worker))
            given = f"--host {worker} --cores 1 --memory 1g --webui-port 0 --work-dir {place}"
            commands.append(f"{enter} {start} {_DEPLOY}.worker.Worker {given} {self.master} &")
        return " ".join(commands)
