"""Runs of a job that begins its own session of Spark: each is a process, in a folder that all runs of the job share."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from tests.support.coordinator_process import has_ended, kill_coordinators
from tests.support.imports import python_path
from tests.support.java_options import SHORT_LIVED, SPARK_OPTIONS
from tests.support.spark_program import KILL_TIMEOUT_S, SPARK_CONFIG, kill_processes
from tests.support.waiting import wait_until


@contextlib.contextmanager
def runs_folder() -> Iterator[Path]:
    """A folder; processes that a test left there end with it."""
    path = Path(tempfile.mkdtemp(prefix="sgr-"))
    try:
        yield path
    finally:
        with contextlib.suppress(psutil.Error):
            mine = psutil.Process().children(recursive=True)
            left = [each for each in mine if each.is_running() and str(path) in " ".join(each.cmdline())]
            kill_processes(lambda: left)
        shutil.rmtree(path, ignore_errors=True)


def start_run(
    folder: Path, log: Path, *command: str, settings: Mapping[str, object] | None = None, spark: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start a program, or a module with ``-m``. ``spark``: the folder of another Spark than the environment's."""
    java = " ".join((f"-Djava.io.tmpdir={folder}", *SPARK_OPTIONS))
    config = {
        **SPARK_CONFIG,
        **(settings or {}),
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.driver.extraJavaOptions": f'"{java}"',
    }
    words = " ".join(f"--conf {key}={value}" for key, value in config.items())
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*([str(spark)] if spark else []), python_path()]),
        "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED),
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {words} pyspark-shell",
    }
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=output, env=environment, start_new_session=True
        )


def kill_run(run: subprocess.Popen[bytes]) -> None:
    """Kill the run with all that it started, and each coordinator: one of an earlier run is no child of this one."""
    killed = kill_processes(lambda: [psutil.Process(run.pid), *psutil.Process(run.pid).children(recursive=True)])
    kill_coordinators()
    assert run.wait(KILL_TIMEOUT_S) == -9
    wait_until(lambda: all(map(has_ended, killed)), timeout_s=KILL_TIMEOUT_S, what="the run has ended")
