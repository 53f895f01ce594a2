"""The question of ``sharegroup check --master`` to a Spark: whether its executors have this host's sharegroup."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.package_version import package_version
from share_source.errors import ExecutorsUnfit

Found = tuple[str, str, str]
"""Host, Python, and the version of sharegroup or why it can't be imported."""
TASKS_A_CORE = 2
"""The job has this number of tasks for each core that Spark names: each executor most likely gets one."""


def of_executors(master: str) -> Iterator[str | ShareGroupError]:
    """A line for each sharegroup and Python that executors of this Spark have, and an error for each that does not go
    with this host's.

    Raises:
        ExecutorsUnfit: Spark, or the job on it, fails.
    """
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
    """The line of Spark's error that names the cause: a package that is missing, or another Python; else its first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason is told"]
    named = (line for line in lines if "No module named" in line or "MISMATCH" in line)
    return next(named, lines[0]).rstrip(".")


def _probe() -> Callable[[Iterable[int]], Iterator[Found]]:
    """The function of a task. Pickled by its code, since an executor may have no module of ours."""

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
