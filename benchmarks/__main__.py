"""``python -m benchmarks`` (or ``make bench``): sharegroup against its peers on a broker of its own, in one run.

--quick            a few minutes: fewer rounds, smaller topics
--only PART …      throughput, zstd, lz4, large, secured, two-brokers, two-executors, small, first-rows, sink,
                   dead-letters, kept-query, share-consumer, rpc, state, web, core, growth, load, hosts, order,
                   flow
--most-runs N      growth: the runs of the largest partition, 1,000,000 if not given; 10,000,000 take several GB
--sources NAME …   beside kafka and sharegroup: nothing, and sharegroup-python (without the compiled reader)"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.report import Row, markdown, print_table, write_json
from benchmarks.suite import PARTS, Suite
from benchmarks.workloads import KAFKA, NOTHING, SHAREGROUP, SOURCES
from tests.support.coordinator_process import kill_coordinators
from tests.support.imports import ROOT

RESULTS = ROOT / "benchmarks" / "results"
BUSY_PERCENT = 15


def main() -> int:
    """Run the benchmark, print and write the results; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="measure sharegroup against its peers")
    parser.add_argument("--quick", action="store_true", help="a few minutes: fewer rounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=(KAFKA, SHAREGROUP, NOTHING), metavar="NAME")
    parser.add_argument(
        "--most-runs", type=int, default=1_000_000, metavar="N", help="growth: of the largest partition"
    )
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=None if sys.stdout.isatty() else 160)
    began_s = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="sgb-"))
    for variable, name in (("SHAREGROUP_RUNTIME_DIR", "run"), ("SHAREGROUP_STATE_DIR", "state")):
        (directory / name).mkdir(mode=0o700)
        os.environ[variable] = str(directory / name)

    def say(what: str) -> None:
        console.print(f"{time.monotonic() - began_s:4.0f} s  {what}", style="dim")

    busy_percent = psutil.cpu_percent(interval=3)
    if busy_percent > BUSY_PERCENT:
        say(f"other programs keep this machine {busy_percent:.0f} % busy: the ratios will mean little, since a source")
        say("with more processes gets more of what is left; the CPU per record can still be compared")
    suite = Suite(given.sources, quick=given.quick, most_runs=given.most_runs, say=say)
    try:
        suite.run(given.only)
    finally:  # print what was measured, also after a failure
        kill_coordinators()
        shutil.rmtree(directory, ignore_errors=True)
        suite.details["busy_percent_before"] = busy_percent
        _tell(suite, given, console)
    console.print(f"{time.monotonic() - began_s:.0f} s")
    return _verdict(suite.rows, console)


def _tell(suite: Suite, given: argparse.Namespace, console: Console) -> None:
    print_table(suite.rows, console)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}{'-quick' if given.quick else ''}.json"
    write_json(path, suite.rows, suite.details)
    if given.markdown:
        given.markdown.write_text(markdown(suite.rows), encoding="utf-8")
    console.print(str(path.relative_to(ROOT)))


def _verdict(rows: list[Row], console: Console) -> int:
    missed = [row.name for row in rows if row.met is False]
    aimed = [row for row in rows if row.met is not None]
    console.print("\n  ✗ ".join([f"{len(aimed) - len(missed)} of {len(aimed)} targets met", *missed]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
