"""README's first program, as it is printed, in processes of a person's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from sharegroup.demo.programs import READING, program
from tests.support.imports import ROOT, python_path
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

AT_ONCE = 20_000
"""The test produces this number of records at a time: two batches."""
TIMEOUT_S = 300


class PrintedProgram:
    """The program under the name billing-1, or the copy under another one, in a folder that it makes."""

    def __init__(self, folder: Path, name: str, bootstrap: str, *, enter: Sequence[str] = (), **more: str) -> None:
        """``enter``: the words before the command that make it run on another host; ``more``: of its environment."""
        folder.mkdir()
        text = program(READING).replace("localhost:9092", bootstrap).replace("billing-1", name)
        (folder / "program.py").write_text(text)
        self._folder, self._name, self._log = folder, name, folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*enter, sys.executable, "program.py"],
                cwd=folder,
                env={**environment_of(), "SPARK_LOCAL_IP": "127.0.0.1", **more},
                stdout=log,
                stderr=log,
            )

    def __repr__(self) -> str:
        return f"<PrintedProgram {self._name} in {self._folder}>"

    def rows(self) -> list[dict[str, Any]]:
        """The rows of its complete batches."""
        assert self._process.poll() is None, f"{self} has ended: {self._log.read_text()[-6_000:]}"
        return written(self._folder, self._name)

    def end(self) -> None:
        """The end of it, and of its processes."""
        end(self._process)


def written(folder: Path, name: str = "billing-1") -> list[dict[str, Any]]:
    """Rows of the batches that are complete: Spark writes _SUCCESS last."""
    done = [path.parent for path in folder.glob(f"output/{name}/batch=*/_SUCCESS")]
    return [row for batch in done for file in batch.glob("*.parquet") for row in pq.read_table(file).to_pylist()]


def end(process: subprocess.Popen[Any]) -> None:
    """Have the program and its processes end, and wait for it."""
    with suppress(psutil.NoSuchProcess):
        program = psutil.Process(process.pid)
        for each in (*program.children(recursive=True), program):
            with suppress(psutil.NoSuchProcess):
                each.terminate()
    process.wait(60)


def environment_of(version: str = "") -> dict[str, str]:
    """The environment of a person's program. ``version``: of an older Spark."""
    older = [str(ROOT / ".build" / f"pyspark-{version}")] if version else []
    path = os.pathsep.join([*older, python_path()])
    return {**os.environ, **SPARK_ENVIRONMENT, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def assert_they_share(programs: Sequence[PrintedProgram], produce: Callable[[Iterable[str]], None]) -> None:
    """Produce until each of the programs has written records; each record is written once."""
    produced = 0
    while not all(each.rows() for each in programs):  # one of them may have taken all so far
        produce(numbers(AT_ONCE, first=produced))
        produced += AT_ONCE
        wait_until(
            lambda: sum(len(each.rows()) for each in programs) >= produced,  # noqa: B023
            timeout_s=TIMEOUT_S,
            what=f"{programs} have written all",
        )
    rows = [(row["partition"], row["offset"]) for each in programs for row in each.rows()]
    assert len(rows) == len(set(rows)) == produced
