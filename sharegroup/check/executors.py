"""Asks a Spark, for ``sharegroup check --master``, whether its executors have this host's sharegroup."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.package_version import package_version
from share_source.errors import ExecutorsUnfit

Found = tuple[str, str, str]
"""The host, its version of Python, and its version of sharegroup or why that can't be imported."""
TASKS_A_CORE = 2
"""The job has this many tasks for each core that Spark names, so each executor most likely gets one."""


def of_executors(master: str) -> Iterator[str | ShareGroupError]:
    """Yields a line for each version of sharegroup and Python on executors of this Spark, or an error if the version is
    not this host's. Raises ExecutorsUnfit if Spark, or the job, fails."""
    from pyspark.sql import SparkSession

    mine, hosts = package_version(), defaultdict[tuple[str, str], set[str]](set)
    try:
        spark = SparkSession.builder.master(master).appName("sharegroup check").getOrCreate()
        try:
            tasks = TASKS_A_CORE * spark.sparkContext.defaultParallelism
            asked = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(_probe())
            for host, python, version in asked.collect():
                hosts[version, python].add(host)
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 - pyspark's and py4j's, with the JVM's traceback
        raise ExecutorsUnfit(hosts=master, reason=_cause(str(error)), version=mine) from None
    for (version, python), found in sorted(hosts.items()):
        if version == mine:
            yield f"executors on {', '.join(sorted(found))} have sharegroup {version}, Python {python}"
        else:
            reason = f"{version} (Python {python})"
            yield ExecutorsUnfit(hosts=", ".join(sorted(found)), reason=reason, version=mine)


def _cause(text: str) -> str:
    """Returns the line of Spark's error with the cause: a missing package or another Python; else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason is told"]
    named = (line for line in lines if "No module named" in line or "MISMATCH" in line)
    return next(named, lines[0]).rstrip(".")


def _probe() -> Callable[[Iterable[int]], Iterator[Found]]:
    """Returns a task's function, a closure: it is pickled by its code, since an executor may lack our modules."""

    def probe(_: Iterable[int]) -> Iterator[Found]:
        import importlib
        import platform
        import socket
        from importlib import metadata

        try:
            importlib.import_module("share_source.executor.task_reader")
            importlib.import_module("share_sink.writer")
            version = metadata.version("sharegroup")
        except ImportError as error:
            version = str(error)
        yield socket.gethostname(), platform.python_version(), version

    return probe
