"""Settings of Spark that many jobs have: checkpoints whose older logs are removed soon, speculative execution, adaptive
query execution. Nothing is lost, and an output that replaces holds each record once."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers
from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak]

RECORDS = 1_000
SHORT_LOGS = {"spark.sql.streaming.minBatchesToRetain": "2"}


def test_a_killed_query_continues_after_spark_removed_its_older_logs(kafka, topic, job, program):
    """Killed in mid-batch, when the plans of all batches but the last ones are in no log any more."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=100, **{"share.session.timeout.ms": 300_000})
    first, second = program(settings=SHORT_LOGS), program(settings=SHORT_LOGS)
    killed = first.start_query(queue.query("a", hold=("850",))).wait_held("850").spec
    logged = sorted(int(path.name) for path in (killed.checkpoint_path / "offsets").iterdir() if path.name.isdigit())
    assert 0 not in logged and logged[-1] == 8
    first.kill()
    query = second.start_query(queue.query("a"))
    query.wait(lambda: queue.written() == RECORDS, "all is written")
    queue.output().assert_exactly_once(numbers(RECORDS))
    query.wait(lambda: describe(queue).lag() == 0, "the last batch is completed")


SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.sql.adaptive.enabled": "true",
}
"""A copy of a task starts soon after one task of two has ended."""


def test_a_speculative_task_ends_the_batch_and_doubles_no_record(kafka, topic, job, program):
    """The first attempt at the task never ends by itself. Its copy reads the same ranges on the other host."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, minPartitions=2)
    with SparkCluster() as cluster:
        driver = program(master=cluster.wait_ready().master, settings=SPECULATES)
        query = driver.start_query(queue.query("a", hold_first=("900",)))
        query.wait(lambda: queue.written() == RECORDS, "all is written")
        assert query.spec.attempts("900") == {0, 1}
        kafka.produce(orders, numbers(100, first=RECORDS))
        query.wait(lambda: queue.written() == RECORDS + 100, "it goes on")
        query.wait(lambda: describe(queue).lag() == 0, "the last batch is completed")
        output = queue.output()
        output.assert_exactly_once(numbers(RECORDS + 100))
        assert output.delivery_counts() == {1}  # a copy of a task is not a delivery
        driver.kill()
