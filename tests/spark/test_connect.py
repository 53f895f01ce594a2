"""Spark Connect: what README shows, from a client in a process of its own. Source, sink and foreachBatch run on the
server."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from sharegroup.demo.orders import is_broken, record_of
from tests.support.dead_letters import read_dead_letters
from tests.support.group_state import describe, forget_clients
from tests.support.imports import ROOT, python_path
from tests.support.java_options import SHORT_LIVED, SPARK_OPTIONS
from tests.support.ports import free_ports
from tests.support.readme import readme_program, until_idle
from tests.support.share_job import numbers
from tests.support.spark_program import SPARK_CONFIG, START_TIMEOUT_S, kill_processes
from tests.support.table_formats import DELTA, TableFormat
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]

RECORDS = 2_000

DECIDING = """
import sys
import sharegroup
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

servers, topic, dead_letters, way, mode = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "kafka.group.id": "group-" + topic,
           "errors.deadletterqueue.topic.name": dead_letters, "share.acknowledgement.mode": mode}
replaces = {**options, "outputOnReplay": "replaces"}
spark = SparkSession.builder.getOrCreate()
assert "connect" in type(spark).__module__, type(spark)
numbers = (
    spark.readStream.format("sharegroup").options(**options).option("subscribe", topic)
    .option("startingOffsets", "earliest").load().withColumn("number", expr("int(string(value))"))
)

def each(batch, batch_id):
    outcome = expr("if(number % 10 = 3, 'reject', 'accept')")
    with sharegroup.decide(batch.withColumn("acknowledgement", outcome)) as decided:
        sharegroup.acknowledge(decided.withColumn("reason", expr("'ends with 3'")), batch_id, replaces)
        decided.where("acknowledgement = 'accept'").selectExpr("number").write.mode("overwrite").parquet(
            f"output/{topic}/batch={batch_id}"
        )

def nothing(batch, batch_id):
    sharegroup.acknowledge(batch.where("offset < 0").withColumn("acknowledgement", expr("'accept'")), batch_id, options)

writer = numbers.writeStream.foreachBatch(each if way == "each" else nothing)
writer.option("checkpointLocation", f"checkpoints/{topic}").trigger(availableNow=True).start().awaitTermination()
"""

TABLES = """
import sys
from pathlib import Path
import sharegroup
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

servers, topic, folder = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "kafka.group.id": "group-" + topic}
checkpoint, table, failed = f"{folder}/checkpoint", f"delta.`{folder}/{topic}`", Path(folder, "failed")
spark = SparkSession.builder.getOrCreate()
spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (topic STRING, partition INT, offset LONG, number INT) USING delta")
merged = f"delta.`{folder}/merged-{topic}`"
spark.sql(f"CREATE TABLE IF NOT EXISTS {merged} (topic STRING, partition INT, offset LONG, number INT) USING delta")
rows = spark.readStream.format("sharegroup").options(**options).option("subscribe", topic)
rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1_000).load()

def each(batch, batch_id):
    rows = batch.selectExpr("*", "int(string(value)) number", "if(offset % 10 = 3, 'reject', 'accept') acknowledgement")
    try:
        sharegroup.append_once(rows, batch_id, table, options)
    except sharegroup.ShareGroupError as error:
        assert type(error).__name__ == "QueryNotKnown", error
    else:
        raise AssertionError("append_once needs the checkpoint")
    with sharegroup.decide(rows) as decided:
        sharegroup.append_once(decided, batch_id, table, {**options, "checkpointLocation": checkpoint})
        sharegroup.merge_once(decided, batch_id, merged, options)
    if not batch_id and not failed.exists():
        failed.touch()
        raise ConnectionError("a batch that is written fails")

def run():
    writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()

while True:
    try:
        run()
        break
    except Exception as error:
        assert "a batch that is written fails" in str(error) or "failed to connect back" in str(error), error
assert failed.exists()
for name in (table, merged):
    written = sorted(row.number for row in spark.table(name).collect())
    print("each once:", written == [number for number in range(2_000) if number % 10 != 3])
"""

KEPT = """
import sys
from pathlib import Path
import sharegroup
from pyspark.sql import SparkSession

servers, topic = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "kafka.group.id": "group-" + topic, "startingOffsets": "earliest"}
spark, tries, output = SparkSession.builder.getOrCreate(), Path(f"tries-{topic}").absolute(), f"output/{topic}"

def each(batch, batch_id):
    with tries.open("a") as lines:
        lines.write("x")
    if tries.stat().st_size <= 3:
        raise ConnectionError("the service is away")
    batch.selectExpr("int(string(value)) number").write.mode("overwrite").parquet(f"{output}/batch={batch_id}")

rows = spark.readStream.format("sharegroup").options(**options).option("subscribe", topic).load()
writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", f"checkpoints/{topic}")
query = sharegroup.keep_running(writer.trigger(availableNow=True).start)
print("ended with", query.exception(), "after", tries.stat().st_size)

def stops(batch, batch_id):
    raise ConnectionError("the service is away")

print("not started again:")
writer = rows.writeStream.foreachBatch(stops).option("checkpointLocation", f"checkpoints/other-{topic}")
sharegroup.keep_running(writer.trigger(availableNow=True).start, max_restarts=0)
"""

WRONG = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "kafka.group.id": "billing", "subscribe": "orders"}
try:
    spark.readStream.format("sharegroup").options(**options).option("maxOffsetsPerTriger", 5).load().printSchema()
except Exception as error:
    print(str(error)[:1_000])
"""


class Server:
    """The server, and the clients that a test runs against it."""

    def __init__(self, folder: Path, tables: TableFormat | None = None) -> None:
        """``tables``: a format, with the Spark that has a release of it."""
        self.folder = folder
        (port,) = free_ports(1)
        java = " ".join((f"-Djava.io.tmpdir={folder}", *SPARK_OPTIONS))
        config = {
            **SPARK_CONFIG,
            "spark.master": "local[2]",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": folder / "warehouse",
            "spark.driver.extraJavaOptions": java,
        }
        path = python_path()
        if tables is not None:
            config |= {**tables.settings, "spark.jars": tables.jar_files()}
            path = os.pathsep.join([str(ROOT / ".build" / f"pyspark-{tables.spark}"), path])
        self._environment = {**os.environ, "PYTHONPATH": path, "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED)}
        self._log = (folder / "server.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.connect_server", str(port)] + [f"{k}={v}" for k, v in config.items()],
            cwd=folder, env=self._environment, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        self._environment["SPARK_REMOTE"] = f"sc://127.0.0.1:{port}"
        wait_until(lambda: "serving" in self.log() or self._process.poll() is not None, timeout_s=START_TIMEOUT_S)
        assert self._process.poll() is None, self.log()

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def client(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """A client, in a folder of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments], cwd=self.folder, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def close(self) -> None:
        """End the server, and all that it started."""
        with suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            kill_processes(lambda: [*process.children(recursive=True), process])
        self._process.wait(60)
        self._process.stdin.close()
        self._log.close()


@contextmanager
def serving(tables=None):
    """A server, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="sgc-"))
    started = Server(folder, tables)
    try:
        yield started
    finally:
        started.close()
        forget_clients()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(runtime_dir):
    with serving() as started:
        yield started


def written(folder: Path) -> list[dict]:
    """Rows of the batches that are complete: Spark writes _SUCCESS last."""
    done = [path.parent for path in folder.glob("batch=*/_SUCCESS")]
    return [row for batch in done for file in batch.glob("*.parquet") for row in pq.read_table(file).to_pylist()]


def test_readmes_sink_program_decides_records_from_a_client(kafka, topic, job, server):
    """The records that it releases wait for their backoff of 30 s."""
    orders, dlq = topic("orders"), topic("dlq")
    kafka.produce(orders, [record_of(number).value.decode() for number in range(RECORDS)])
    queue = job(orders)
    program = (
        until_idle(readme_program("Outcomes by row"))
        .replace("localhost:9092", kafka.bootstrap)
        .replace('"orders"', repr(orders))
        .replace('"payments"', repr(queue.group))
        .replace('"dlq.payments"', repr(dlq))
    )
    client = server.client(program)
    said = client.communicate(timeout=240)[0]
    assert client.returncode == 0, said
    found = read_dead_letters(kafka.bootstrap, dlq)
    broken = [record_of(number).value for number in range(RECORDS) if is_broken(number)]
    assert sorted(letter.value for letter in found) == sorted(broken)
    assert {letter.said["message"] for letter in found} == {"no amount"}
    released = [number for number in range(RECORDS) if not is_broken(number) and 5 + number % 100 > 100]
    wait_until(lambda: describe(queue).lag() == len(released), what="all but the released records are done")
    assert describe(queue).start_offset(orders) == released[0]


@pytest.mark.soak
def test_outcomes_by_row_of_foreach_batch_from_a_client(kafka, topic, server):
    orders, letters = topic("orders", partitions=2), topic("dlq")
    kafka.produce(orders, numbers(RECORDS))
    client = server.client(DECIDING, kafka.bootstrap, orders, letters, "each", "implicit")
    said = client.communicate(timeout=240)[0]
    assert client.returncode == 0, said
    rejected = {str(number) for number in range(3, RECORDS, 10)}
    found = read_dead_letters(kafka.bootstrap, letters)
    assert {letter.value.decode() for letter in found} == rejected
    assert {letter.said["message"] for letter in found} == {"ends with 3"}
    accepted = sorted(row["number"] for row in written(server.folder / "output" / orders))
    assert accepted == [number for number in range(RECORDS) if number % 10 != 3]


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_tables_have_a_batch_of_a_client_once(kafka, topic, runtime_dir):
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    with serving(DELTA) as server:
        client = server.client(TABLES, kafka.bootstrap, orders, str(server.folder))
        said = client.communicate(timeout=900)[0]
    assert client.returncode == 0, said
    assert said.count("each once: True") == 2, said


@pytest.mark.soak
def test_in_explicit_mode_a_commit_without_rows_from_a_client_is_refused(kafka, topic, job, server):
    """Tasks of Spark Connect know no query of their batch."""
    orders, letters = topic("orders"), topic("dlq")
    kafka.produce(orders, numbers(100))
    client = server.client(DECIDING, kafka.bootstrap, orders, letters, "nothing", "explicit")
    said = client.communicate(timeout=240)[0]
    assert client.returncode != 0 and "BatchNotNamed" in said
    assert describe(replace(job(orders), group=f"group-{orders}")).lag() == 100


@pytest.mark.soak
def test_a_query_of_a_client_is_kept_running(kafka, topic, server):
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    client = server.client(KEPT, kafka.bootstrap, orders)
    said = client.communicate(timeout=240)[0]
    ended, _, last = said.partition("not started again:")
    assert "ended with None after 4" in ended, said
    assert ended.count("it starts again in") == 3, said
    assert client.returncode != 0 and "it has failed 1 times in a row" in last, said
    accepted = [row["number"] for row in written(server.folder / "output" / orders)]
    assert sorted(accepted) == list(range(RECORDS))


def test_an_error_reaches_the_client_by_name(kafka, server):
    """A client's load() asks the server nothing; the first use of the DataFrame does."""
    said = server.client(WRONG, kafka.bootstrap).communicate(timeout=120)[0]
    assert "unknownoption: maxoffsetspertriger is not an option of the sharegroup source" in said.lower()
