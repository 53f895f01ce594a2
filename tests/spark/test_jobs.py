"""deploy/jobs/nightly.py as a scheduler runs it: runs in a row, with failures in between that take the coordinator
along. Its output replaces what an earlier attempt wrote, so each record is there once.

The long forms are for `make soak`. There JOBS_MINUTES=30 JOBS_SEED=7 is a longer run with other choices."""

import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pyspark
import pytest

from coordinator.admin.admin import Admin
from tests.support.coordinator_process import coordinator_pids, has_ended, kill_coordinators
from tests.support.held_job import JOB
from tests.support.share_job import numbers
from tests.support.spark_program import BATCH_TIMEOUT_S, KILL_TIMEOUT_S, SLOW_START, kill_processes
from tests.support.spark_runs import kill_run, runs_folder, start_run
from tests.support.waiting import wait_until
from tools.bootstrap import OLDEST_SPARK_WITH_START

MINUTES = float(os.environ.get("JOBS_MINUTES", "4"))
SEED = int(os.environ.get("JOBS_SEED", "20261123"))

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(1800 + 60 * MINUTES)]

BATCH = 500
RUN, LONG_RUN = 2 * BATCH, 3 * BATCH
"""The number of records produced before a run; the second in the long forms."""


class Schedule:
    """The runs of one job, one after another, and what they wrote."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, group: str) -> None:
        self.folder = folder
        self._runs = 0
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.group.id": group}
        options["maxOffsetsPerTrigger"] = str(BATCH)
        self._arguments = ["--folder", str(folder), *(f"--option={key}={value}" for key, value in options.items())]

    def run(self, *more: str) -> int:
        """One run to its end; returns its exit status."""
        status = self._start(str(JOB), *self._arguments, *more).wait(BATCH_TIMEOUT_S)
        return self.run(*more) if status and SLOW_START in self.log_of_run() else status

    def run_killed(self, point: str, call: int) -> bool:
        """One run that is killed with its coordinator at the point; false if it ended before."""
        reached = self.folder / f"reached-{point}-{self._runs}"
        job = self._start("-m", "tests.support.held_job", point, str(call), str(reached), *self._arguments)
        wait_until(
            lambda: reached.exists() or job.poll() is not None, timeout_s=BATCH_TIMEOUT_S, what=f"the job is {point}"
        )
        if not reached.exists():
            if job.returncode and SLOW_START in self.log_of_run():
                return self.run_killed(point, call)
            assert job.returncode == 0, self.log_of_run()
            return False
        kill_run(job)
        return True

    def run_harmed(self, harms: Iterable[tuple[float, str]]) -> tuple[int, Counter[str]]:
        """One run. After each number of seconds in ``harms`` the victims are killed: ``driver``, ``coordinator`` or
        ``both``. Returns the exit status, and the victims that were killed before the run ended."""
        job, killed = self._start(str(JOB), *self._arguments), Counter()
        for pause_s, victims in harms:
            with suppress(subprocess.TimeoutExpired):
                job.wait(pause_s)
            if job.poll() is not None:
                break
            if victims != "driver" and kill_coordinators():
                killed["coordinator"] += 1
            if victims != "coordinator":
                self._kill_driver(job)
                killed["driver"] += job.returncode == -9
        return job.wait(BATCH_TIMEOUT_S), killed

    def _kill_driver(self, job: subprocess.Popen) -> None:
        """Kill the job with its Java process and its workers, but no coordinator that it has started."""

        def processes() -> list[psutil.Process]:
            with suppress(psutil.NoSuchProcess):
                tree = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
                return [each for each in tree if each.pid not in coordinator_pids()]
            return []

        killed = kill_processes(processes)
        job.wait(KILL_TIMEOUT_S)
        wait_until(lambda: all(map(has_ended, killed)), timeout_s=KILL_TIMEOUT_S, what="the driver has ended")

    def _start(self, *command: str) -> subprocess.Popen:
        self._runs += 1
        return start_run(self.folder, self._log(), *command)

    def batches(self) -> set[int]:
        """The batches whose output is complete: Spark writes _SUCCESS last."""
        return {int(path.parent.name.removeprefix("batch=")) for path in self.folder.glob("output/batch=*/_SUCCESS")}

    def logged(self, kind: str) -> set[int]:
        """The batches in Spark's log of ``offsets`` or of ``commits``."""
        names = (path.name for path in (self.folder / "checkpoint" / kind).iterdir())
        return {int(name) for name in names if name.isdecimal()}

    def values(self) -> list[str]:
        """All values in the output, in order."""
        table = ds.dataset(str(self.folder / "output"), format="parquet").to_table(columns=["value"])
        return sorted(table.column("value").to_pylist(), key=int)

    def log_of_run(self) -> str:
        """Return the log of the newest run."""
        return self._log().read_text(errors="replace")

    def _log(self) -> Path:
        return self.folder / f"run-{self._runs}.log"


@pytest.fixture
def orders(topic):
    return topic("orders", partitions=2)


@pytest.fixture
def group(unique):
    return unique("group")


@pytest.fixture
def schedule(kafka, orders, group):
    with runs_folder() as folder:
        yield Schedule(folder, kafka.bootstrap, orders, group)


def all_done(bootstrap, group) -> bool:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        return sum(each.lag or 0 for each in admin.list_offsets(group).partitions) == 0


@pytest.mark.slow
def test_a_run_killed_with_its_coordinator_writes_each_record_once(kafka, orders, group, schedule):
    """Killed after its last batch is written and before Spark's commit; then a good run."""
    kafka.produce(orders, numbers(RUN))
    assert schedule.run_killed("after", 2)
    assert (schedule.batches(), schedule.logged("offsets"), schedule.logged("commits")) == ({0, 1}, {0, 1}, {0})

    kafka.produce(orders, numbers(RUN, RUN))
    assert schedule.run() == 0, schedule.log_of_run()
    assert schedule.values() == numbers(2 * RUN)
    assert all_done(kafka.bootstrap, group)


@pytest.mark.slow if pyspark.__version__ < OLDEST_SPARK_WITH_START else pytest.mark.soak
def test_a_run_of_one_batch_completes_it(kafka, orders, group, schedule):
    """4.0 and 4.1 leave the last batch of a run to the program; on later ones the killed run's successor shows it."""
    kafka.produce(orders, numbers(BATCH))
    assert schedule.run() == 0, schedule.log_of_run()
    assert schedule.values() == numbers(BATCH)
    assert all_done(kafka.bootstrap, group)


@pytest.mark.soak
def test_a_run_killed_before_its_write_leaves_the_batch_to_the_next(kafka, orders, group, schedule):
    """The coordinator is killed with it; the next run is killed as well, after it has written two batches."""
    kafka.produce(orders, numbers(LONG_RUN))
    assert schedule.run_killed("before", 2)
    assert (schedule.batches(), schedule.logged("offsets"), schedule.logged("commits")) == ({0}, {0, 1}, {0})

    assert schedule.run_killed("after", 2)  # the first one is the replay of batch 1
    assert (schedule.batches(), schedule.logged("commits")) == ({0, 1, 2}, {0, 1})
    assert schedule.run() == 0, schedule.log_of_run()
    assert schedule.values() == numbers(LONG_RUN)
    assert all_done(kafka.bootstrap, group)


@pytest.mark.slow
def test_a_run_that_fails_ends_with_status_1(kafka, orders, schedule):
    """A wrong option is such a failure, before anything is read."""
    kafka.produce(orders, numbers(RUN))
    assert schedule.run("--option=maxOffsetsPerTrigger=many") == 1
    assert "maxOffsetsPerTrigger" in schedule.log_of_run()
    assert schedule.batches() == set()


@pytest.mark.soak
def test_drivers_and_coordinators_killed_at_any_time_lose_and_repeat_nothing(kafka, orders, group, schedule):
    """Within runs and between them, each alone or both. A run whose driver lives writes all, whatever else died."""
    choice = random.Random(SEED)
    end_s = time.monotonic() + 60 * MINUTES
    produced, killed = 0, Counter()
    while time.monotonic() < end_s or not killed["driver"] or not killed["coordinator"]:
        count = choice.randrange(1, 2 * LONG_RUN)
        kafka.produce(orders, numbers(count, produced))
        produced += count
        if choice.random() < 0.5:
            killed["between"] += len(kill_coordinators())
        for _ in range(choice.randrange(3)):
            status, more = schedule.run_harmed([(choice.uniform(4, 25), choice.choice(["driver", "both"]))])
            killed += more
            assert status in (0, -9) or SLOW_START in schedule.log_of_run(), schedule.log_of_run()
        status, more = schedule.run_harmed([(choice.uniform(4, 15), "coordinator") for _ in range(choice.randrange(3))])
        killed += more
        if status and SLOW_START in schedule.log_of_run():
            status = schedule.run()
        assert status == 0, schedule.log_of_run()
        assert schedule.values() == numbers(produced)
        print(f"{produced} records, killed: {dict(killed)}", flush=True)
    assert all_done(kafka.bootstrap, group)
