"""The table formats of docs/do/cookbook.md, each with the Spark that has a release of it."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.imports import ROOT
from tests.support.spark_runs import start_run
from tools.bootstrap import DELTA_JARS, ICEBERG_JARS, OLDEST_SPARK_WITH_START, SPARK_WITHOUT_START

RUN_TIMEOUT_S = 1_200


class TableFormat(NamedTuple):
    """A format with the Spark that has a release of it; without jars, with the environment's Spark. ``table`` and
    ``settings`` name the run's folder."""

    jars: str
    spark: str
    table: str
    create: str
    settings: dict[str, str]

    def jar_files(self) -> str:
        """The jars, as Spark's setting names them."""
        found = list((ROOT / ".build" / self.jars).glob("*.jar")) if self.jars else []
        assert bool(found) == bool(self.jars), f"no jars in .build/{self.jars}: tools/bootstrap.py --soak fetches them"
        return ",".join(map(str, found))


DELTA = TableFormat(
    DELTA_JARS[0],
    OLDEST_SPARK_WITH_START,
    "delta.`{folder}/table`",
    "USING delta",
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    },
)
ICEBERG = TableFormat(
    ICEBERG_JARS[0],
    SPARK_WITHOUT_START[-1],
    "local.db.orders",
    "USING iceberg",
    {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "hadoop",
        "spark.sql.catalog.local.warehouse": "{folder}/tables",
    },
)
APPENDED = ICEBERG._replace(create="USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true')")
MERGE_ON_READ = ICEBERG._replace(create="USING iceberg TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')")


def start_with(table_format: TableFormat, folder: Path, log: Path, *command: str) -> subprocess.Popen:
    """Start a module, which begins a session of Spark with this table format."""
    settings = {key: value.format(folder=folder) for key, value in table_format.settings.items()}
    settings["spark.jars"] = table_format.jar_files()
    spark = ROOT / ".build" / f"pyspark-{table_format.spark}" if table_format.spark else None
    return start_run(folder, log, "-m", *command, settings=settings, spark=spark)
