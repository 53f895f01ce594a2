"""A sink knows by the column receipt whose rows it has, whatever form Spark's logs have."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]

COMPUTED = {
    "topic": "concat(topic, '')",
    "partition": "partition + 0",
    "offset": "offset + 0",
    "deliveryCount": "deliveryCount + 0",
    "receipt": "receipt + 0",
    "acknowledgement": "if(int(text) % 10 = 0 and deliveryCount = 1, 'release', 'accept')",
}
"""Columns that are not the source's any more, as after mapInPandas."""


def test_right_sinks_are_served_with_sparks_second_offset_log(orders, job, program):
    """That of a stream, and df.write in foreachBatch."""
    spark = program(settings={"spark.sql.streaming.offsetLog.formatVersion": "2"})
    started = []
    for name, sink in (("a", "sharegroup"), ("b", "write+replace")):
        queue = job(orders)
        query = spark.start_query(queue.query(name, columns=COMPUTED, sink=sink, sink_options=queue.sink_options()))
        started.append((queue, query))
    for queue, query in started:
        query.wait(lambda of=queue: describe(of).lag() == 0, "all are accepted, the released ones at their second time")
        assert not query.over()
        seen = queue.seen().groupby("text")["deliveryCount"].max()
        assert set(seen[seen == 2].index) == set(numbers(100)[::10])


def test_a_late_write_in_foreach_batch_decides_no_record_of_a_topic_made_anew(kafka, topic, job, start):
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


UNION = """
from pyspark.sql.functions import lit


def run(spark, options, groups, checkpoint):
    first, second = (
        spark.readStream.format("sharegroup").options(**options).option("kafka.group.id", group).load()
        for group in groups
    )
    sink = {"kafka.bootstrap.servers": options["kafka.bootstrap.servers"], "kafka.group.id": groups[0]}
    query = (
        first.union(second).withColumn("acknowledgement", lit("accept"))
        .writeStream.format("sharegroup").options(**sink).option("checkpointLocation", checkpoint)
        .trigger(availableNow=True).start()
    )
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
"""


def test_a_sink_of_one_group_refuses_the_union_of_two_groups(orders, job, shared_program, tmp_path):
    first, second = job(orders), job(orders)
    options = {key: text for key, text in first.query("a").options.items() if key != "kafka.group.id"}
    groups = [first.group, second.group]
    said = shared_program.get().run(UNION, options=options, groups=groups, checkpoint=str(tmp_path))
    assert "RowsOfAnotherGroup" in said and f"not of share group {first.group}" in said
    assert "a sink for each group" in said
    assert (describe(first).lag(), describe(second).lag()) == (100, 100)
