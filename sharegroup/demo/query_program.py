"""A streaming job as a user would write it: bills orders, as one of several queries of the share group ``billing``.

It decides about each order: it *rejects* an order that is no JSON, which goes to the dead letter topic with the reason;
it *releases* an order that the payment service refuses, which is delivered again later, to this query or another one;
it *accepts* all others, and bills them.

Two rules keep every order in the output once, also if a batch is replayed after a crash: the batch *replaces* its
output of a (query, batch id), and it decides about an order as before, since it calls the service with the same key.

    python -m sharegroup.demo.query_program NAME BOOTSTRAP_SERVERS FOLDER PAYMENTS"""

from __future__ import annotations

import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat, from_json, lit, udf, when
from pyspark.sql.types import BooleanType, DoubleType

from sharegroup import acknowledge, decide
from sharegroup.demo.payments import Payments

ORDER = "order INT, amount DOUBLE, broken STRING"
CORRUPT_RECORD = {"columnNameOfCorruptRecord": "broken"}
GROUP = {
    "kafka.group.id": "billing",
    "errors.deadletterqueue.topic.name": "dlq.billing",
    "share.release.backoff.ms": "500",  # before the second delivery; twice that before the third
    "share.session.timeout.ms": "300000",  # a query that restarts within it keeps its batch
}
OUTPUT = {"outputOnReplay": "replaces"}  # a folder for each batch, overwritten when it is replayed


def main(name: str, bootstrap_servers: str, folder: str, payments: str) -> None:
    """Run until the process is ended. ``folder``: for the output and the checkpoint."""
    spark = (
        SparkSession.builder.appName("billing")
        .config("spark.python.unix.domain.socket.enabled", "true")  # a Python task starts 40 ms sooner
        .getOrCreate()
    )
    group = {"kafka.bootstrap.servers": bootstrap_servers, **GROUP}
    orders = (
        spark.readStream.format("sharegroup")
        .options(**group)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000)
        .option("minPartitions", 4)  # tasks of a batch, however many partitions it has
        .option("includeHeaders", True)  # else dead letters read their source records again
        .load()
    )

    def bill_orders(batch: DataFrame, batch_id: int) -> None:
        with decide(outcomes(batch, payments, key=f"{name}-{batch_id}")) as decided:
            acknowledge(decided, batch_id, group | OUTPUT)  # first; it takes effect when the batch is done
            due = bill("json.amount").alias("due")
            bills = decided.where("acknowledgement = 'accept'")
            bills = bills.select("json.order", due, "partition", "offset", "deliveryCount")
            bills.write.mode("overwrite").json(f"{folder}/bills/batch={batch_id}")

    query = orders.writeStream.foreachBatch(bill_orders).option("checkpointLocation", f"{folder}/checkpoint").start()
    query.awaitTermination()


def outcomes(batch: DataFrame, payments: str, key: str) -> DataFrame:
    """The orders with the columns acknowledgement and reason; ``value`` is unchanged, for the dead letters."""
    orders = batch.withColumn("json", from_json(col("value").cast("string"), ORDER, CORRUPT_RECORD))
    is_broken = col("json.broken").isNotNull()
    is_paid = is_paid_for(when(~is_broken, col("json.order")), lit(payments), lit(key))
    return orders.withColumn(
        "acknowledgement", when(is_broken, "reject").when(is_paid, "accept").otherwise("release")
    ).withColumn("reason", when(is_broken, concat(lit("from_json can't read "), col("json.broken"))))


@udf(returnType=BooleanType())
def is_paid_for(order: int | None, payments: str, key: str) -> bool:
    """Whether the payment service takes the order; if not, it is too busy now."""
    return order is not None and Payments(payments).pay(order, key)


@udf(returnType=DoubleType())
def bill(amount: float) -> float:
    """The amount due, tax included. It takes a moment, as a call of another system does."""
    time.sleep(0.002)
    return round(amount * 1.19, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
