"""Runs deploy/jobs/nightly.py and stops it at a point, for a test that kills it there.

    python -m tests.support.held_job POINT CALL FILE [argument of the job]...

POINT is ``before`` or ``after`` the write of a batch, CALL the number of that write in this run, from 1 on; or ``end``,
after the last batch. FILE is made at the point; then the job waits for its end.
"""

import importlib.util
import sys
import threading
from pathlib import Path

from tests.support.imports import ROOT

JOB = ROOT / "deploy" / "jobs" / "nightly.py"


def main(point: str, call: str, file: str, *arguments: str) -> None:
    spec = importlib.util.spec_from_file_location("nightly", JOB)
    nightly = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nightly)
    write = nightly.write
    calls = []

    def held_write(*given):
        calls.append(given)
        is_here = len(calls) == int(call)
        if point == "before" and is_here:
            hold(file)
        write(*given)
        if point == "after" and is_here:
            hold(file)

    nightly.write = held_write
    nightly.main(arguments)
    if point == "end":
        hold(file)


def hold(file):
    Path(file).touch()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
