"""A streaming job as a user would write it: bills orders, as one of several queries of the share group ``billing``.

The rule of its sink: it *replaces* its output of a (query, batch id), so that a batch that is replayed after a crash
leaves each of its orders in the output once.

    python -m share_source.demo.query_program BOOTSTRAP_SERVERS FOLDER
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, udf
from pyspark.sql.types import DoubleType

ORDER = "order INT, amount DOUBLE"


def main(bootstrap_servers: str, folder: str) -> None:
    """Run until the process is ended; output and checkpoint lie in ``folder``."""
    spark = (
        SparkSession.builder.appName("billing")
        .config("spark.python.unix.domain.socket.enabled", "true")  # a Python task starts 40 ms sooner
        .getOrCreate()
    )
    orders = (
        spark.readStream.format("sharegroup")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "orders")
        .option("kafka.group.id", "billing")
        .option("share.state.store", "sqlite")  # the embedded broker keeps no state over its death
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000)
        .option("minPartitions", 4)  # tasks of a batch, of however many partitions
        .option("share.session.timeout.ms", 120_000)  # a query that restarts within it keeps its batch
        .load()
    )
    parsed = orders.withColumn("value", from_json(col("value").cast("string"), ORDER))
    bills = parsed.select("value.order", bill("value.amount").alias("due"), "partition", "offset", "deliveryCount")

    def replace(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").json(f"{folder}/bills/batch={batch_id}")

    query = bills.writeStream.foreachBatch(replace).option("checkpointLocation", f"{folder}/checkpoint").start()
    query.awaitTermination()


@udf(returnType=DoubleType())
def bill(amount: float) -> float:
    """What is due, tax included. It takes its time, as work that calls other systems does."""
    time.sleep(0.002)
    return round(amount * 1.19, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
