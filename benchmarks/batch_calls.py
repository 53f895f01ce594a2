"""``python -m benchmarks.batch_calls``: what small batches, and an idle query, cost on the driver, without Spark.

A process makes Spark's calls of a reader, with Spark's pauses between them; the coordinator has its state in Kafka.

--against PATH     another checkout, which takes turns with this one on the same broker
--rounds N         runs of each checkout, 3 if not given
--idle SECONDS     instead of batches, an idle query's CPU time over SECONDS"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

from benchmarks.topics import Topic, fill
from tests.support.coordinator_process import kill
from tests.support.imports import ROOT
from tests.support.kafka_broker import KafkaBroker

BATCHES, WARM_UP, PER_BATCH = 45, 5, 1_000
SETTLE_S = 6.0
"""Ends a query's warm-up: after this many seconds without a record the query counts as idle."""
_READER = """
import json, sys, time
from pyspark.sql.streaming.datasource import ReadMaxRows
from share_source.options import SourceOptions
from share_source.driver.reader import ShareGroupStreamReader

reader, limit = ShareGroupStreamReader(SourceOptions.parse(json.loads(sys.argv[1]))), ReadMaxRows(int(sys.argv[2]))
start, took = reader.initialOffset(), []
for _ in range(int(sys.argv[3])):
    at = [time.perf_counter()]
    end = reader.latestOffset(start, limit)
    at.append(time.perf_counter())
    time.sleep(0.08)  # Spark writes offsets/N
    at.append(time.perf_counter())
    reader.partitions(start, end)
    at.append(time.perf_counter())
    time.sleep(0.05)  # tasks, and commits/N
    start = end
    took.append([1000 * (at[1] - at[0]), 1000 * (at[3] - at[2])])
print(json.dumps(took), flush=True)
while True:
    end = reader.latestOffset(start, limit)
    reader.reportLatestOffset()
    if end != start:  # else Spark asks for no partitions, and the query stays idle
        reader.partitions(start, end)
        start = end
    time.sleep(0.01)  # Spark's pollingDelay
"""


class Reader:
    """A reader of a new group in a process of its own, with the modules of a checkout, and its coordinator."""

    def __init__(
        self, checkout: Path, broker: KafkaBroker, topic: Topic, batches: int, folder: Path, group_id: str = ""
    ) -> None:
        """``folder`` is the host's runtime folder if ``group_id`` names a group that others have begun."""
        run = folder if group_id else folder / uuid.uuid4().hex[:8]
        run.mkdir(mode=0o700, exist_ok=True)
        places = {"PYTHONPATH": str(checkout), "SHAREGROUP_RUNTIME_DIR": str(run), "SHAREGROUP_STATE_DIR": str(run)}
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic.name, "startingOffsets": "earliest"}
        options["kafka.group.id"] = group_id or run.name
        self._process = subprocess.Popen(
            [sys.executable, "-c", _READER, json.dumps(options), str(PER_BATCH), str(batches)],
            env={**os.environ, **places},
            cwd=checkout,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.took_ms: list[list[float]] = json.loads(self._process.stdout.readline())
        """How long `latestOffset` and `partitions` took in each batch, in milliseconds."""
        (endpoint,) = run.glob("endpoint-*.json")
        self.both = (psutil.Process(self._process.pid), psutil.Process(json.loads(endpoint.read_bytes())["pid"]))

    def idle_percent(self, seconds: float) -> list[float]:
        """Returns the reader's and the coordinator's share of a core over ``seconds``, in percent."""
        time.sleep(SETTLE_S)
        before, began_s = [sum(each.cpu_times()[:2]) for each in self.both], time.monotonic()
        time.sleep(seconds)
        after, lasted_s = [sum(each.cpu_times()[:2]) for each in self.both], time.monotonic() - began_s
        return [100 * (b - a) / lasted_s for a, b in zip(before, after, strict=True)]

    def close(self) -> None:
        for process in self.both:
            kill(process.pid)
        self._process.wait()


def main() -> None:
    """Measure in turns, and print the medians of each checkout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_calls", description="a small batch's calls")
    parser.add_argument("--against", type=Path, metavar="PATH", help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=float, default=0.0, metavar="SECONDS", help="the cost of an idle query instead")
    given = parser.parse_args()
    checkouts = [ROOT, given.against] if given.against else [ROOT]
    found: dict[Path, list[list[float]]] = {checkout: [] for checkout in checkouts}
    with KafkaBroker(java_options=()) as broker, tempfile.TemporaryDirectory(prefix="sgb-") as folder:
        topic = fill(broker, "small", (1 if given.idle else BATCHES + 2) * PER_BATCH, 200)
        for round_ in range(given.rounds):
            for checkout in checkouts if round_ % 2 == 0 else reversed(checkouts):
                reader = Reader(checkout, broker, topic, 1 if given.idle else BATCHES, Path(folder))
                found[checkout] += [reader.idle_percent(given.idle)] if given.idle else reader.took_ms[WARM_UP:]
                reader.close()
    names = ("reader %", "coordinator %") if given.idle else ("latestOffset ms", "partitions ms")
    for checkout, rows in found.items():
        medians = [f"{name} {statistics.median(row[i] for row in rows):.2f}" for i, name in enumerate(names)]
        together = statistics.median(sum(row) for row in rows)
        print(f"{checkout}: {', '.join(medians)}, together {together:.2f}; load {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
