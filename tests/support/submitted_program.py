"""A user's program for spark-submit, which ends by itself: it takes what a share group has, writes it through the sink,
and replaces its output. The argument is a JSON file; nothing of the tests is imported, as on a cluster.

``register`` makes the program register the format itself, as one has to whose packages come with ``--py-files``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, udf


def main(given: dict[str, Any]) -> None:
    """Run until the records are written that are there now; writes ``written`` beside the output at the end."""
    spark = SparkSession.builder.appName("submitted").getOrCreate()
    if given["register"]:
        from pyspark_sharegroup import DefaultSource

        spark.dataSource.register(DefaultSource)
    place = udf(_place, "string")

    def write(batch: DataFrame, batch_id: int) -> None:
        import sharegroup

        decided = batch.withColumn("acknowledgement", lit("accept"))
        sharegroup.acknowledge(decided, batch_id, given["sink_options"])
        rows = batch.select(
            "topic", "partition", "offset", "deliveryCount", col("value").cast("string"), place("topic").alias("place")
        )
        rows.write.mode("overwrite").parquet(f"{given['out']}/batch={batch_id}")

    orders = spark.readStream.format("sharegroup").options(**given["options"]).load()
    writer = orders.writeStream.foreachBatch(write).option("checkpointLocation", given["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()
    Path(given["done"]).touch()
    spark.stop()


def _place(_: str) -> str:
    """Where an executor's Python has the package from."""
    import sharegroup

    return str(sharegroup.__file__)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
