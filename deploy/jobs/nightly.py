"""A job for a scheduler: takes the records that a share group has now, writes them, and ends (docs/learn/jobs.md).

The exit status is 0 if all batches were written, else 1, with the error above. Then the scheduler starts it again: the
job goes on with the batch that it left, and writes over what is there of it. So each record is in the output once.

    spark-submit nightly.py --folder FOLDER [--options FILE] [--option KEY=VALUE]..."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sharegroup import complete_run

OPTIONS = {
    "startingOffsets": "earliest",  # a group that is new begins with the oldest record
    "maxOffsetsPerTrigger": "100000",  # records in a batch: what is written again after a failure
    # Longer than the scheduler waits before it starts a failed job again: until then no other query gets its batch.
    "share.session.timeout.ms": "900000",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until the records are written that are there now. Raises what made a batch fail."""
    parser = argparse.ArgumentParser(description="Write the records that a share group has now.")
    parser.add_argument("--folder", required=True, help="for the output and the checkpoint, which belong together")
    parser.add_argument("--options", type=Path, help="a JSON file with options of the source; secrets belong here")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="one more option")
    given = parser.parse_args(arguments)
    options = dict(OPTIONS)
    if given.options:
        options |= json.loads(given.options.read_text(encoding="utf-8"))
    for option in given.option:
        key, _, value = option.partition("=")
        options[key] = value
    run(options, given.folder)


def run(options: dict[str, str], folder: str) -> None:
    """Read with these options; write to ``folder``/output, a folder for each batch."""
    spark = (
        SparkSession.builder.appName("nightly")
        .config("spark.python.unix.domain.socket.enabled", "true")  # a Python task starts about 40 ms sooner
        .getOrCreate()
    )
    orders = spark.readStream.format("sharegroup").options(**options).load()
    query = (
        orders.writeStream.foreachBatch(lambda batch, batch_id: write(batch, f"{folder}/output/batch={batch_id}"))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    complete_run(query, options)  # for Spark 4.0 and 4.1, which leave the last batch to the next run


def write(batch: DataFrame, folder: str) -> None:
    """Replace what an earlier attempt at this batch has written."""
    rows = batch.selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset", "deliveryCount")
    rows.write.mode("overwrite").parquet(folder)


if __name__ == "__main__":
    main()  # no sys.exit(0): some schedulers take it for a failure
