"""Makes the archives of the classes that Spark and the broker load: `python -m tests.support.class_archives`.

Rule: an archive is made once for a Java and its jars, and is there whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyspark

from tests.support.broker_versions import jars_of
from tests.support.coordinator_process import has_ended
from tests.support.java_options import BROKER_CLASSES, SHORT_LIVED, SPARK_CLASSES
from tests.support.kafka_broker import KafkaBroker
from tests.support.query_spec import QuerySpec
from tests.support.spark_program import SparkProgram
from tests.support.waiting import wait_until
from tools.bootstrap import KAFKA_VERSION


def make_all() -> None:
    """Make the archives that are missing, or that an older Java or other jars were the source of."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    with SPARK_CLASSES.with_suffix(".lock").open("w") as lock, ThreadPoolExecutor(2) as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for made in [
            threads.submit(_make, SPARK_CLASSES, spark_jars, _run_spark),
            threads.submit(_make, BROKER_CLASSES, jars_of(KAFKA_VERSION), _run_broker),
        ]:
            made.result()


def _make(archive: Path, jars: Path, run: Callable[[tuple[str, ...]], None]) -> None:
    source = archive.with_suffix(".source")
    expected = _source(jars)
    if archive.exists() and source.exists() and source.read_text() == expected:
        return
    print(f"sharegroup: {archive.name}: an archive of classes is made, so that the tests' Java starts sooner")
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    run((*SHORT_LIVED, f"-XX:ArchiveClassesAtExit={new}"))
    if new.exists():
        new.rename(archive)
        source.write_text(expected)


def _source(jars: Path) -> str:
    """The archive depends on this text: it names the Java, and each jar with its size and time."""
    java = subprocess.run([java_program(), "-version"], capture_output=True, text=True, check=True).stderr
    return java + "".join(
        f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}\n" for jar in sorted(jars.glob("*.jar"))
    )


def java_program() -> str:
    """The one that Spark and the broker run."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _run_spark(java_options: tuple[str, ...]) -> None:
    """A query with foreachBatch, on Spark's rate source."""
    rate = {"rowsPerBatch": "100", "numPartitions": "2"}
    with tempfile.TemporaryDirectory(prefix="sga-") as directory, SparkProgram(java_options=java_options) as program:
        os.environ["SHAREGROUP_RUNTIME_DIR"] = directory  # no coordinator has its endpoint there
        query = program.start_query(
            QuerySpec(name="rate", directory=directory, options=rate, source="rate-micro-batch")
        )
        query.wait_written(2).stop()
        processes = psutil.Process(program.pid).children(recursive=True)
        program.end()
        _wait_ended(processes)


def _run_broker(java_options: tuple[str, ...]) -> None:
    with KafkaBroker(version=KAFKA_VERSION, java_options=java_options) as broker:
        broker.produce_transaction(broker.create_topic(), ["record"])
        process = psutil.Process(broker.pid)
        process.terminate()
        _wait_ended([process])


def _wait_ended(processes: Iterable[psutil.Process]) -> None:
    wait_until(lambda: all(map(has_ended, processes)), what="the archive is written")


if __name__ == "__main__":
    make_all()
