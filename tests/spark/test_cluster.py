"""Executors in processes of their own: they read by themselves, and their tasks run elsewhere when one dies."""

import psutil
import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.share_job import numbers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]

RECORDS = 20_000


def test_two_executors_read_concurrently_and_one_executor_is_killed(kafka, topic, job, program):
    """Executors know nothing of the driver's host: no endpoint file, no state, and while they read no coordinator."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, minPartitions=2)
    nowhere = str(queue.directory / "not-there")
    hidden = {"SHAREGROUP_RUNTIME_DIR": nowhere, "SHAREGROUP_STATE_DIR": nowhere, "HOME": nowhere}
    cluster = program(master="local-cluster[2,1,1024]", executors=hidden)
    query = cluster.start_query(queue.query("a", hold=("100", "19900"))).wait_held("100", "19900")
    (_, one), (_, other) = (query.spec.held()[value] for value in ("100", "19900"))
    assert one != other  # both at work at the same time, each in its executor
    assert len(cluster.processes("CoarseGrainedExecutorBackend")) == 2
    assert kill_coordinators()
    psutil.Process(one).kill()
    query.spec.release()
    query.wait(lambda: queue.written() == RECORDS, "all is written")
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.delivery_counts() == {1}  # a task that runs again is not a delivery
    kafka.produce(orders, numbers(100, first=RECORDS))
    query.wait(lambda: queue.written() == RECORDS + 100, "it goes on")
