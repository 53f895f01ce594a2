"""Topics that change under a group: records deleted under it or inside a plan, a topic made anew."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]

LOOK_OFTEN = {"share.coordinator.metadata.refresh.ms": 500}
failing_or_going_on = pytest.mark.parametrize(
    "fail_on_data_loss", [pytest.param(True, id="failing"), pytest.param(False, id="going-on", marks=pytest.mark.soak)]
)


def after_loss(queue, start, query, lost, *, fails):
    """The query that goes on after the loss: the given one or, where it fails for once and by name, the next one."""
    if not fails:
        return query
    error = query.wait_over().error()
    assert "DataLoss" in error and f"{queue.topics[0]}-0 offsets {lost}" in error
    return start(queue.query("a"))


@pytest.mark.slow
@failing_or_going_on
def test_records_deleted_under_a_waiting_group_are_passed_over(kafka, topic, job, start, fail_on_data_loss):
    orders = topic("orders")
    kafka.produce(orders, numbers(100))
    queue = job(orders, maxOffsetsPerTrigger=100, failOnDataLoss=str(fail_on_data_loss).lower())
    held = start(queue.query("a", hold=("50",))).wait_held("50")
    kafka.produce(orders, numbers(200, first=100))
    kafka.delete_records(orders, before_offset=200)
    held.spec.release()
    held = after_loss(queue, start, held, "100 to 199", fails=fail_on_data_loss)
    held.wait(lambda: queue.written() == 200, "what is left is written")
    queue.output().assert_exactly_once(numbers(100) + numbers(100, first=200))
    held.wait(lambda: describe(queue).lag() == 0, "all is completed")


@pytest.mark.slow
@failing_or_going_on
def test_records_deleted_inside_a_plan_are_left_out_and_reported(kafka, topic, job, start, fail_on_data_loss):
    orders = topic("orders")
    kafka.produce(orders, numbers(300))
    queue = job(orders, maxOffsetsPerTrigger=200, failOnDataLoss=str(fail_on_data_loss).lower())
    start(queue.query("a", hold=("150",))).wait_held("150").stop()
    kafka.delete_records(orders, before_offset=120)
    restarted = after_loss(queue, start, start(queue.query("a")), "0 to 119", fails=fail_on_data_loss)
    restarted.wait(lambda: queue.written() == 180, "what is left is written")
    queue.output().assert_exactly_once(numbers(180, first=120))
    restarted.wait(lambda: describe(queue).lag() == 0, "all is completed")
    assert describe(queue).archived() == 120


@pytest.mark.slow
@failing_or_going_on
def test_a_replay_takes_no_record_of_a_recreated_topic(kafka, topic, job, start, fail_on_data_loss):
    """The old topic's records are gone, those that no plan had, too: failed for once, or left out; none of the new
    topic's is taken for them."""
    orders = topic("orders")
    kafka.produce(orders, numbers(100))
    queue = job(orders, maxOffsetsPerTrigger=60, failOnDataLoss=str(fail_on_data_loss).lower(), **LOOK_OFTEN)
    start(queue.query("a", hold=("50",))).wait_held("50").stop()
    kafka.delete_topic(orders)
    kafka.create_topic(orders)
    kafka.produce(orders, numbers(100, first=1_000))
    restarted = after_loss(queue, start, start(queue.query("a")), "0 to 99", fails=fail_on_data_loss)
    restarted.wait(lambda: queue.written() == 100, "the new topic's records are written")
    queue.output().assert_exactly_once(numbers(100, first=1_000))
