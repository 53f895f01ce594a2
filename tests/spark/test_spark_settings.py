"""A setting of Spark that many jobs have: checkpoints whose older logs are removed soon. Nothing is lost, and an output
that replaces holds each record once."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(600)]

RECORDS = 1_000
SHORT_LOGS = {"spark.sql.streaming.minBatchesToRetain": "2"}


def test_a_query_goes_on_after_spark_has_removed_the_logs_of_its_older_batches(kafka, topic, job, program):
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
