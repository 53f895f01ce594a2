"""The functions of docs/cookbook.md write into a table of Delta Lake, in runs that are killed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from coordinator.client.admin import ShareAdmin
from tests.support.coordinator_process import has_ended, kill_coordinators
from tests.support.dead_letters import read_letters
from tests.support.imports import ROOT
from tests.support.java_options import SHORT_LIVED, SPARK_OPTIONS
from tests.support.share_job import numbers
from tests.support.spark_program import KILL_TIMEOUT_S, SPARK_CONFIG, kill_processes
from tests.support.waiting import wait_until
from tools.bootstrap import DELTA_JARS, OLDEST_SPARK

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(1_800)]

RECORDS, BATCH = 1_000, 250
REJECTED = {str(number) for number in range(RECORDS) if number % 7 == 3}
RUNS_TO_THE_END = 6
RUN_TIMEOUT_S = 1_200
DELTA = {
    "spark.jars": ",".join(map(str, (ROOT / ".build" / DELTA_JARS[0]).glob("*.jar"))),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}


class Runs:
    """The runs of one job, one after another."""

    def __init__(self, folder: Path, function: str, options: dict[str, str]) -> None:
        self._folder, self._function, self._options = folder, function, options
        self._runs = 0

    def run(self) -> None:
        """One run to its end."""
        assert self._start().wait(RUN_TIMEOUT_S) == 0, self._log().read_text(errors="replace")

    def run_killed(self, point: str, call: int) -> None:
        """One run that is killed with its coordinator at the point."""
        reached = self._folder / f"reached-{self._runs}"
        job = self._start(point, str(call), str(reached))
        wait_until(lambda: reached.exists() or job.poll() is not None, timeout_s=RUN_TIMEOUT_S, what=point)
        assert reached.exists(), self._log().read_text(errors="replace")
        killed = kill_processes(lambda: [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)])
        kill_coordinators()
        assert job.wait(KILL_TIMEOUT_S) == -9
        wait_until(lambda: all(map(has_ended, killed)), timeout_s=KILL_TIMEOUT_S, what="the job has ended")

    def table(self) -> list[str]:
        """The values in the table at the end of the newest run."""
        return [row["value"] for row in json.loads((self._folder / "table.json").read_text())]

    def _start(self, *point: str) -> subprocess.Popen:
        java = " ".join((f"-Djava.io.tmpdir={self._folder}", *SPARK_OPTIONS))
        config = {
            **SPARK_CONFIG,
            **DELTA,
            "spark.local.dir": self._folder,
            "spark.sql.warehouse.dir": self._folder / "warehouse",
            "spark.driver.extraJavaOptions": f'"{java}"',
        }
        words = " ".join(f"--conf {key}={value}" for key, value in config.items())
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / ".build" / f"pyspark-{OLDEST_SPARK}"), str(ROOT))),
            "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED),
            "PYSPARK_SUBMIT_ARGS": f"--master local[2] {words} pyspark-shell",
        }
        command = ["-m", "tests.support.cookbook_job", self._function, str(self._folder), json.dumps(self._options)]
        self._runs += 1
        with self._log().open("wb") as log:
            return subprocess.Popen(
                [sys.executable, *command, *point], stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def _log(self) -> Path:
        return self._folder / f"run-{self._runs}.log"


@pytest.fixture
def runs(request, kafka, topic, unique):
    orders, letters = topic("orders", partitions=2), topic("dlq")
    folder = Path(tempfile.mkdtemp(prefix="sgt-"))
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.group.id": unique("group"),
        "errors.deadletterqueue.topic.name": letters,
        "subscribe": orders,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH),
    }
    kafka.produce(orders, numbers(RECORDS))
    yield Runs(folder, request.param, options), options
    with suppress(psutil.Error):
        mine = psutil.Process().children(recursive=True)
        left = [each for each in mine if each.is_running() and str(folder) in " ".join(each.cmdline())]
        kill_processes(lambda: left)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("runs", ["merge", "append"], indirect=True)
def test_killed_runs_leave_each_accepted_record_in_the_table_once(kafka, runs):
    """The decisions of ``merge`` read ``deliveryCount``: records are released until their third delivery."""
    job, options = runs
    for point, call in (("before", 2), ("between", 1), ("after", 2), ("between", 2), ("after", 1)):
        job.run_killed(point, call)
    with ShareAdmin({"bootstrap.servers": kafka.bootstrap}) as admin:
        for _ in range(RUNS_TO_THE_END):
            job.run()
            if not sum(each.lag or 0 for each in admin.list_offsets(options["kafka.group.id"]).partitions):
                break
    assert Counter(job.table()) == Counter(set(numbers(RECORDS)) - REJECTED)
    letters = read_letters(kafka.bootstrap, options["errors.deadletterqueue.topic.name"])
    assert {letter.value.decode() for letter in letters} == REJECTED
