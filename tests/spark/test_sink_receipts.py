"""A sink knows by the column receipt whose rows it has, whatever form Spark's logs have."""

import pyspark
import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]

PROGRAM = """
from functools import reduce
from pyspark.sql import DataFrame

COMPUTED = [
    "concat(topic, '') topic", "partition + 0 partition", "offset + 0 offset", "deliveryCount + 0 deliveryCount",
    "receipt + 0 receipt", "if(offset % 10 = 0, 'release', 'accept') acknowledgement",
]


def run(spark, options, groups, sink, checkpoint, format_version="1"):
    spark = spark.newSession()
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", format_version)
    frames = [
        spark.readStream.format("sharegroup").options(**options).option("kafka.group.id", group).load()
        for group in groups
    ]
    of_first = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"], "kafka.group.id": groups[0]}

    def each(batch, batch_id):
        batch.write.format("sharegroup").options(**of_first).mode("append").save()

    stream = reduce(DataFrame.union, frames).selectExpr(*COMPUTED).writeStream
    writer = stream.foreachBatch(each) if sink == "foreachBatch" else stream.format("sharegroup").options(**of_first)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return ""
"""
"""Its columns are not the source's any more, as after mapInPandas. It returns the query's error."""


def run(program, queues, checkpoint, **more):
    options = {key: text for key, text in queues[0].query("a").options.items() if key != "kafka.group.id"}
    groups = [queue.group for queue in queues]
    return program.get().run(PROGRAM, options=options, groups=groups, checkpoint=str(checkpoint), **more)


@pytest.mark.slow
@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="Spark has a second offset log since 4.2")
@pytest.mark.parametrize("sink", ["stream", "foreachBatch"])
def test_a_right_sink_is_served_with_sparks_second_offset_log(orders, job, shared_program, tmp_path, sink):
    """foreachBatch gets the second offset log as well, with df.write."""
    queue = job(orders)
    assert run(shared_program, [queue], tmp_path, sink=sink, format_version="2") == ""
    assert (tmp_path / "offsets" / "0").read_text().startswith("v2\n")
    assert describe(queue).lag() == 10, "the released records"


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["stream", pytest.param("foreachBatch", marks=pytest.mark.soak)])
def test_a_sink_of_one_group_refuses_the_union_of_two_groups(orders, job, shared_program, tmp_path, sink):
    first, second = job(orders), job(orders)
    said = run(shared_program, [first, second], tmp_path, sink=sink)
    assert "RowsOfAnotherGroup" in said and f"not of share group {first.group}" in said
    assert "a sink for each group" in said
    assert (describe(first).lag(), describe(second).lag()) == (100, 100)


@pytest.mark.slow
def test_a_late_write_decides_no_record_of_a_topic_made_anew(kafka, topic, job, start):
    """The sink is opened when the topic has its new id, and another query holds the new one's records at the same
    offsets and counts: what that query passes over comes again, whatever the late rows say."""
    orders = topic("orders")
    kafka.produce(orders, numbers(10))
    explicit = {"share.acknowledgement.mode": "explicit", "share.coordinator.metadata.refresh.ms": "500"}
    queue = job(orders, failOnDataLoss="false", **explicit)
    every = {"columns": {"acknowledgement": "'accept'"}, "sink_options": queue.sink_options()}
    late = start(queue.query("late", sink="replace+write", hold=("5",), **every)).wait_held("5")
    kafka.delete_topic(orders)
    kafka.create_topic(orders)
    kafka.produce(orders, numbers(10, first=10))
    passes_over = {**every, "where": "deliveryCount > 1 or int(text) < 15"}
    other = start(queue.query("other", sink="replace+write", hold=("15",), **passes_over)).wait_held("15")
    late.spec.release()
    late.wait(lambda: late.events("progress"), "its late rows are written")
    other.spec.release()
    other.wait(lambda: describe(queue).lag() == 0, "all are decided")
    seen = queue.seen()
    assert set(seen[seen["deliveryCount"] == 2]["text"]) == set(numbers(5, first=15))
