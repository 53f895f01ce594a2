"""README's first program as a person runs it, against the broker of ``sharegroup quickstart``: the seconds from the
program's start to its first rows on the disk, and where they go. Each run is in a folder of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.coordinator_cost import bytecode
from benchmarks.report import Row
from sharegroup.demo.programs import READING, program
from tests.support.imports import ROOT
from tests.support.printed_program import end
from tests.support.waiting import wait_until

AT_MOST_S = 25
TIMEOUT_S = 180
_SAY = """
import time


def say(what):
    with open("said", "a") as file:
        file.write(f"{what} {time.time()}\\n")


say("Python")
"""
_MARKS = {
    "from pyspark.sql": f"{_SAY}from pyspark.sql",
    "\nspark = ": "\nsay('imports')\nspark = ",
    "\norders = ": "\nsay('session')\norders = ",
    "\nwriter = ": "\nsay('load')\nwriter = ",
    "    batch.write": "    say('batch')\n    batch.write",
}
"""What the program says of itself, by the text before which it says so."""
STEPS = ("Python", "imports", "session", "load", "batch", "rows")


def first_rows(rounds: int) -> list[Row]:
    """Return the median time until the first batch is complete on the disk, and the medians of its steps."""
    with bytecode(), quickstart() as port:
        _run(port)  # the modules are compiled, and their files are in memory
        runs = [_run(port) for _ in range(rounds)]
    whole = [run["rows"] for run in runs]
    before = dict(zip(STEPS, ("", *STEPS), strict=False))
    steps = {step: statistics.median(run[step] - run.get(before[step], 0.0) for run in runs) for step in STEPS}
    return [
        Row(
            name="README's first program, from its start to its first rows on the disk",
            value=statistics.median(whole),
            unit="s",
            at_most=AT_MOST_S,
            how=f"{rounds} starts, {min(whole):.1f} to {max(whole):.1f}; "
            + ", ".join(f"{step} {took_s:.1f}" for step, took_s in steps.items()),
        )
    ]


@contextmanager
def quickstart() -> Iterator[int]:
    """A broker with README's records; its port."""
    command = [sys.executable, "-m", "sharegroup", "quickstart", "--port", "0", "--rate", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        told = next(line for line in process.stdout if "at localhost:" in line)
        yield int(told.partition("at localhost:")[2].partition(".")[0])
    finally:
        end(process)


def _run(port: int) -> Mapping[str, float]:
    """Run the program once under a new name and in a new group; returns the seconds since its start by step."""
    name = f"run-{time.time_ns()}"
    text = program(READING, port).replace("billing-1", name).replace('"billing"', f'"{name}"')
    for at, said in _MARKS.items():
        assert text.count(at) == 1, f"README's first program has no line {at!r}"
        text = text.replace(at, said)
    with tempfile.TemporaryDirectory(prefix="sgb-") as made:
        folder = Path(made)
        (folder / "billing.py").write_text(text)
        log = folder / "log"
        began_s = time.time()
        with log.open("w") as file:
            process = subprocess.Popen([sys.executable, "billing.py"], cwd=folder, stdout=file, stderr=file)
        complete = folder / "output" / name / "batch=0" / "_SUCCESS"
        try:
            wait_until(
                lambda: complete.exists() or process.poll() is not None, timeout_s=TIMEOUT_S, what="the first batch"
            )
            assert complete.exists(), log.read_text()[-3_000:]
            said = [line.split() for line in (folder / "said").read_text().splitlines()]
            at = {step: float(at_s) - began_s for step, at_s in reversed(said)}
            return {**at, "rows": complete.stat().st_mtime - began_s}
        finally:
            end(process)


if __name__ == "__main__":
    (row,) = first_rows(int(sys.argv[1]) if sys.argv[1:] else 3)
    print(f"{row.name}: {row.value:.1f} s ({row.how})")
