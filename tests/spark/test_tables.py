"""The programs of docs/do/cookbook.md write into tables of Delta Lake, Apache Iceberg and PostgreSQL, in runs that are
killed."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from coordinator.admin.admin import Admin
from tests.support.dead_letters import read_dead_letters
from tests.support.postgres import PostgresServer, programs
from tests.support.share_job import numbers
from tests.support.spark_runs import kill_run, runs_folder
from tests.support.table_formats import APPENDED, DELTA, ICEBERG, MERGE_ON_READ, RUN_TIMEOUT_S, TableFormat, start_with
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(3_600)]

RECORDS, BATCH = 1_000, 80
REJECTED = {str(number) for number in range(RECORDS) if number % 7 == 3}
RUNS_TO_THE_END = 6


class Runs:
    """The runs of one job, one after another."""

    def __init__(self, folder: Path, function: str, table_format: TableFormat, options: dict[str, str]) -> None:
        self._folder, self._function, self._format, self._options = folder, function, table_format, options
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
        kill_run(job)

    def table(self) -> list[str]:
        """The values in the table at the end of the newest run."""
        return [row["value"] for row in json.loads((self._folder / "table.json").read_text())]

    def _start(self, *point: str) -> subprocess.Popen:
        table = self._format.table.format(folder=self._folder)
        command = [self._function, table, self._format.create, str(self._folder), json.dumps(self._options), *point]
        self._runs += 1
        return start_with(self._format, self._folder, self._log(), "tests.support.cookbook_job", *command)

    def _log(self) -> Path:
        return self._folder / f"run-{self._runs}.log"


@pytest.fixture
def folder():
    with runs_folder() as path:
        yield path


@pytest.fixture
def options(kafka, topic, unique):
    """Those of a source, whose topic has all records."""
    orders, letters = topic("orders", partitions=2), topic("dlq")
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.group.id": unique("group"),
        "errors.deadletterqueue.topic.name": letters,
        "subscribe": orders,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(BATCH),
        "share.release.backoff.ms": "0",
        "share.delivery.count.limit": "10",  # else so many kills of one batch isolate its records
    }
    kafka.produce(orders, numbers(RECORDS))
    return options


MERGE_KILLS = [("before", 2), ("between", 1), ("writing", 2), ("committed", 2), ("staged", 1), ("after", 2)]
MERGE_KILLS += [("between", 2), ("writing", 1), ("committed", 1), ("after", 1)]
APPEND_KILLS = [("before", 2), ("between", 1), ("writing", 2), ("after", 2), ("between", 2), ("after", 2)]
APPEND_KILLS += [("writing", 2), ("before", 2), ("after", 2), ("between", 2)]
"""No batch that may be in the table is killed again: isolation would cut it, and what is cut away is appended twice."""
STAGED_KILLS = [*APPEND_KILLS[:3], ("committed", 2), *APPEND_KILLS[4:7], ("staged", 2), *APPEND_KILLS[8:]]
FUNCTIONS = {
    "merge-delta": ("merge", DELTA, MERGE_KILLS),
    "append-delta": ("append", DELTA, APPEND_KILLS),
    "merge-iceberg": ("merge", ICEBERG, MERGE_KILLS),
    "merge-iceberg-on-read": ("merge", MERGE_ON_READ, MERGE_KILLS),
    "append-iceberg": ("append", APPENDED, STAGED_KILLS),
}


@pytest.mark.parametrize(("function", "table_format", "kills"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_killed_runs_leave_each_accepted_record_in_the_table_once(options, folder, function, table_format, kills):
    """The decisions of ``merge`` read ``deliveryCount``: records are released until their third delivery."""
    job = Runs(folder, function, table_format, options)
    for point, call in kills:
        job.run_killed(point, call)
    run_to_the_end(job, options)
    assert Counter(job.table()) == Counter(set(numbers(RECORDS)) - REJECTED)
    assert dead_letters_of(options) == REJECTED


LOOKS, STATEMENTS = 2, 4
"""``merge_once`` looks at the table, and then executes so many statements: temporary table, lock, DELETE, INSERT."""


@pytest.mark.skipif(not programs(), reason="there is no PostgreSQL server: neither initdb nor postgres is installed")
def test_killed_runs_leave_each_accepted_record_in_postgresql_once(options, folder):
    """The decisions read ``deliveryCount``, as in the test above."""
    with PostgresServer(programs()) as server:
        key = 'PRIMARY KEY (topic, partition, "offset")'
        server.rows(f'CREATE TABLE orders (topic text, partition int, "offset" bigint, value text, {key})')
        job = Runs(folder, "replace", TableFormat("", "", "orders", server.database, {}), options)
        inside = [
            ("row", 40),
            ("row", BATCH + 20),
            *(("statement", LOOKS + 1 + number) for number in range(STATEMENTS)),
        ]
        for point, call in (("before", 2), ("between", 1), *inside, ("after", 2), ("after", 1)):
            job.run_killed(point, call)
        run_to_the_end(job, options)
        values = [value for (value,) in server.rows("SELECT value FROM orders")]
    assert Counter(values) == Counter(set(numbers(RECORDS)) - REJECTED)
    assert dead_letters_of(options) == REJECTED


def run_to_the_end(job, options):
    """Runs until the group has decided all records: a run gets a released record once."""
    with Admin({"bootstrap.servers": options["kafka.bootstrap.servers"]}) as admin:
        for _ in range(RUNS_TO_THE_END):
            job.run()
            if not sum(each.lag or 0 for each in admin.list_offsets(options["kafka.group.id"]).partitions):
                break


def dead_letters_of(options):
    """The values of the dead letters. A kill may leave two of one record."""
    letters = read_dead_letters(options["kafka.bootstrap.servers"], options["errors.deadletterqueue.topic.name"])
    return {letter.value.decode() for letter in letters}
