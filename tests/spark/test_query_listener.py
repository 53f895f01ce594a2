"""ShareGroupListener in a user's program: each batch of the query is a line of the program's log."""

import re

import pytest

from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PROGRAM = """
import io, logging, queue
from sharegroup import ShareGroupListener
from share_source.views import query_listener

query_listener.TIMEOUT_MS = 60_000  # the machine may be busy
WORK = lambda rows: rows


def run(spark, options, checkpoint):
    ended, said = queue.Queue(), io.StringIO()

    class UntilTerminated(ShareGroupListener):
        def onQueryTerminated(self, event):
            ended.put(str(event.runId))

    log = logging.getLogger(ShareGroupListener.__module__)
    log.setLevel(logging.INFO)
    log.addHandler(handler := logging.StreamHandler(said))
    listener = UntilTerminated({"bootstrap.servers": options["kafka.bootstrap.servers"]})
    spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format("sharegroup").options(**options).load().transform(WORK)
            .writeStream.format("noop").queryName("etl").option("checkpointLocation", checkpoint)
            .trigger(availableNow=True).start()
        )
        query.awaitTermination()
        while ended.get() != str(query.runId):  # Spark may still owe the event of an earlier test's query
            pass
    finally:
        spark.streams.removeListener(listener)
        log.removeHandler(handler)
    return said.getvalue()
"""


def test_each_batch_is_a_line_of_the_programs_log(kafka, topic, unique, tmp_path, shared_program):
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, numbers(10))
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": group, "subscribe": orders}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}
    said = shared_program.get().run(PROGRAM, options=options, checkpoint=str(tmp_path))
    lines = re.findall(r"^query progress: group=(\S+) member=\w+ query=etl batch=(\d+) (.*)$", said, re.MULTILINE)
    batches = [rest for name, _, rest in lines if name == group]
    counts = [
        int(re.search(r"acquired=(\d+) redelivered=0 lag=\d+ in flight=\d+ archived=0 ", each)[1]) for each in batches
    ]
    assert (counts[:2], sum(counts)) == ([6, 4], 10), said


LATE = PROGRAM.replace(
    "WORK = lambda rows: rows",
    """WORK = lambda rows: (
    rows.selectExpr("timestamp_seconds(cast(cast(value as string) as bigint)) at")
    .withWatermark("at", "1 second").groupBy("at").count()
)""",
)


@pytest.mark.slow
def test_rows_that_a_watermark_drops_are_a_warning(kafka, topic, unique, tmp_path, shared_program):
    """Batch 0 sets the watermark, which Spark applies to late rows from the batch after the next on."""
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, ["1000000"] * 6 + ["5", "6"], partition=0)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": group, "subscribe": orders}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    said = shared_program.get().run(LATE, options=options, checkpoint=str(tmp_path))
    (line,) = re.findall(r"^share group .*$", said, re.MULTILINE)
    assert line.startswith(f"share group {group}, batch 2 of query etl: the watermark dropped 2 row(s). "), said
