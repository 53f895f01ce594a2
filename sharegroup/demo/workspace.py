"""The demo's folder: the demo and its processes write all their files into it, and the demo deletes it.

Rule: the demo reads and writes none of the user's files. The coordinator's endpoint, Spark's settings, its
temporary files and its sockets are all in this folder; the logs are in a second one, which a failed demo keeps."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

# Short, since the sockets of Spark's workers are in the folder, and a socket's path may have some 100 characters.
_PREFIX = "sg-"
_UNSET_VARIABLES = ("SPARK_HOME", "SPARK_REMOTE", "SPARK_MASTER", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS")

_SPARK_DEFAULTS = """\
spark.master                          local[2]
spark.driver.memory                   640m
spark.driver.host                     127.0.0.1
spark.driver.extraJavaOptions         -Djava.io.tmpdir={folder}/tmp -XX:-UsePerfData -XX:+UseSerialGC -XX:TieredStopAtLevel=1
spark.local.dir                       {folder}/tmp
spark.sql.warehouse.dir               {folder}/tmp/warehouse
spark.python.unix.domain.socket.dir   {folder}
spark.ui.enabled                      false
spark.ui.showConsoleProgress          false
"""  # noqa: E501 - a line of Spark's settings can't be broken

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


class Workspace:
    """A temporary folder. ``environment``: for a query's process; ``own_environment``: for the demo's own process."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.logs = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}logs-"))
        runtime, self.payments = self.make("run"), self.make("payments")
        settings, tmp = self.make("conf"), self.make("tmp")
        (settings / "spark-defaults.conf").write_text(_SPARK_DEFAULTS.format(folder=self.folder))
        (settings / "log4j2.properties").write_text(_LOG4J)
        self.own_environment = {"SHAREGROUP_RUNTIME_DIR": str(runtime)}
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in _UNSET_VARIABLES},
            **self.own_environment,
            "SPARK_CONF_DIR": str(settings),
            "SPARK_LOCAL_DIRS": str(tmp),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "TMPDIR": str(tmp),
        }

    def remove(self, *, keep_logs: bool) -> None:
        """Delete the folders; with ``keep_logs`` keep all logs, the coordinator's included."""
        for folder in (self.folder,) if keep_logs else (self.folder, self.logs):
            shutil.rmtree(folder, ignore_errors=True)

    def make(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path
