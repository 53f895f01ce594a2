"""Spark's surprises (docs/trust/facts.md, "Spark"): each test shows one of them in a run."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.mark.slow
def test_a_self_union_reads_each_record_for_both_sides(orders, job, start):
    """One reader: `partitions()` is asked twice a batch, and answers the same."""
    queue = job(orders, maxOffsetsPerTrigger=40)
    query = start(queue.query("union", shape="self_union", trigger="available_now")).wait_over()
    assert not query.error()
    assert queue.output().values() == dict.fromkeys(numbers(100), 2)
    assert queue.output().delivery_counts() == {1}
    assert len(describe(queue).description.members) == 1


@pytest.mark.slow
def test_a_self_join_makes_two_members_each_with_its_own_records(orders, job, start):
    """So records do not meet themselves: a share group gives each to one side."""
    queue = job(orders, maxOffsetsPerTrigger=30)
    query = start(queue.query("join", shape="self_join"))
    query.wait(lambda: describe(queue).lag() == 0, "all is completed")
    assert len(describe(queue).description.members) == 2
    assert len(queue.output()) == 0


@pytest.mark.slow
def test_two_queries_on_one_dataframe_are_two_members(kafka, orders, job, start):
    queue = job(orders)
    a = start(queue.query("a", frame=queue.group, hold=("50",))).wait_held("50")
    b = start(queue.query("b", frame=queue.group)).wait_started()
    kafka.produce(orders, numbers(50, first=100))
    b.wait(lambda: queue.written() == 50, "it has written what is free")
    a.spec.release()
    a.wait_written()
    queue.output().assert_exactly_once(numbers(150))
    assert len(describe(queue).description.members) == 2


def test_a_query_stopped_inside_foreach_batch_replays_that_batch(orders, job, start):
    queue = job(orders, maxOffsetsPerTrigger=100)
    stopped = start(queue.query("a", sink="stop")).wait_over()
    assert [event["batch"] for event in stopped.events("written")] == [0]
    again = start(queue.query("a", trigger="available_now")).wait_over()
    assert [event["batch"] for event in again.events("written")] == [0]
    output = queue.output()
    output.assert_exactly_once(numbers(100))
    assert output.delivery_counts() == {2}  # batch 0, with the new process's initial offset as its start


def test_available_now_runs_read_each_record_once(kafka, topic, job, start):
    """An AvailableNow run with nothing to read, one that reads, one that reads what came since, one with nothing."""
    orders = topic("orders")
    queue = job(orders)
    for count in (0, 100, 130, 130):
        kafka.produce(orders, numbers(count - queue.written(), first=queue.written()))
        assert not start(queue.query("a", trigger="available_now")).wait_over().error()
        queue.output().assert_exactly_once(numbers(count))
        assert describe(queue).lag() == 0
    assert queue.output().delivery_counts() <= {1}


def test_a_query_idle_from_its_first_batch_on_wakes_up(kafka, topic, job, start):
    orders = topic("orders")
    queue = job(orders)
    query = start(queue.query("a")).wait_started()
    query.wait(lambda: describe(queue).active_members() == 1, "it has joined")
    kafka.produce(orders, numbers(10))
    query.wait(lambda: queue.written() == 10, "what came is written")


def test_a_reader_killed_in_mid_batch_doubles_nothing(orders, job, start, shared_program):
    """The batch still commits, then the query fails; started again it goes on, and nothing comes twice."""
    queue = job(orders, maxOffsetsPerTrigger=50)
    query = start(queue.query("a", hold=("20",))).wait_held("20")
    for reader in shared_program.get().processes("streaming_source"):
        reader.kill()
    query.spec.release()
    assert query.wait_over().error()
    assert queue.written() == 50
    again = start(queue.query("a"))
    again.wait(lambda: queue.written() == 100, "the rest is written")
    queue.output().assert_exactly_once(numbers(100))
    assert queue.output().delivery_counts() == {1}


@pytest.mark.slow
def test_a_long_trigger_interval_keeps_its_plan(kafka, orders, job, start):
    """The batch is done and the next tick is far: the records stay acquired, and nobody else gets them."""
    queue = job(orders, **{"share.session.timeout.ms": 10_000})
    a = start(queue.query("a", trigger="15 seconds")).wait_written()
    b = start(queue.query("b")).wait_started()
    kafka.produce(orders, numbers(10, first=100))
    b.wait(lambda: queue.written() == 110, "all is written")
    a.wait(lambda: describe(queue).lag() == 0, "the next tick completes the batch")
    queue.output().assert_exactly_once(numbers(110))


@pytest.mark.slow
def test_async_progress_trackings_older_batch_is_refused_and_loses_no_record(orders, job, start):
    """It leaves batches out of Spark's log, where the plans are (docs/run/spark.md: leave it off)."""
    queue = job(orders, maxOffsetsPerTrigger=30)
    rarely = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "600000"}
    held = start(queue.query("a", sink="noop", sink_options=rarely, hold=("95",))).wait_held("95")
    held.stop()
    error = start(queue.query("a", trigger="available_now")).wait_over().error()
    assert "StalePlan" in error and "checkpoint" in error
    assert describe(queue).lag() == 10


LEFT_OUT = """
import sharegroup

def run(spark, source, operator, directory):
    rows = spark.readStream.format("sharegroup").options(**source).load()
    writer = {
        "limit": lambda: rows.limit(3),
        "where": lambda: rows.where("offset < 3"),
        "in foreachBatch": lambda: rows,
    }[operator]().writeStream.trigger(availableNow=True).option("checkpointLocation", f"{directory}/checkpoint")
    if operator == "in foreachBatch":
        writer = writer.foreachBatch(lambda batch, _: batch.limit(3).write.mode("append").parquet(f"{directory}/out"))
    else:
        writer = writer.format("parquet").option("path", f"{directory}/out")
    query = writer.start()
    query.awaitTermination()
    sharegroup.complete_run(query, source)
    return spark.read.parquet(f"{directory}/out").count()
"""


@pytest.mark.parametrize(
    "operator", ["limit", *(pytest.param(each, marks=pytest.mark.slow) for each in ("where", "in foreachBatch"))]
)
def test_records_whose_rows_an_operator_leaves_out_are_accepted(orders, job, shared_program, tmp_path, operator):
    """docs/learn/event-time.md: they are in no output, and done for the group."""
    queue = job(orders)
    source = queue.query("a").options
    written = shared_program.get().run(LEFT_OUT, source=source, operator=operator, directory=str(tmp_path))
    assert written == 3
    assert describe(queue).description.records.accepted == 100
