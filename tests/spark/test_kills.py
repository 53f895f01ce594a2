"""SIGKILL of a driver with all its workers, of the coordinator, of both: nothing is lost, and outputs that replace what
they wrote for a (query, batch id) hold every record exactly once."""

import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.group_state import describe
from tests.support.share_job import Output, logged_plan, numbers, plan_records

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.broker]

RECORDS = 20_000
LONG = {"share.session.timeout.ms": 300_000}
SHORT = {"share.session.timeout.ms": 10_000}


def test_a_killed_driver_replays_its_batch_or_others_get_the_records(kafka, topic, job, program, start):
    """Queries of two groups die with it: one is started again within its session, the records of the other one go to
    another query after the session."""
    orders, more_orders = topic("orders"), topic("orders")
    for name in (orders, more_orders):
        kafka.produce(name, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=5_000, **LONG)
    left = job(more_orders, maxOffsetsPerTrigger=5_000, **SHORT)
    driver = program(master="local[4]")
    killed = driver.start_query(queue.query("a", hold=("7000",))).wait_held("7000").spec
    driver.start_query(left.query("gone", hold=("100",))).wait_held("100")
    plan = logged_plan(killed, 1)
    other = start(left.query("other"))
    other.wait(lambda: left.written() == RECORDS - 5_000, "it has written what it can get")
    driver.kill()

    again = start(queue.query("a"))
    other.wait(lambda: left.written() == RECORDS, "it has written the rest")
    again.wait(lambda: queue.written() == RECORDS, "all is written")
    assert_whole_and_replayed(queue.output(), plan)
    output = left.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.by_query() == {"other": RECORDS}
    late = output.rows[output.rows["offset"] < 5_000]
    assert set(late["deliveryCount"]) == {2}
    other.wait(lambda: describe(left).lag() == 0, "the last batch is completed")


def test_a_driver_killed_twice_once_with_the_coordinator_replays_both_batches(kafka, topic, job, program):
    """Killed in mid-batch twice, the second time with the coordinator; restarted within the session each time."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=5_000, **LONG)

    first, second, third = program(), program(), program()  # they begin side by side
    killed = first.start_query(queue.query("a", hold=("7000",))).wait_held("7000").spec
    plan = logged_plan(killed, 1)
    first.kill()

    killed_again = second.start_query(queue.query("a", hold=("13000",))).wait_held("13000").spec
    plan_again = logged_plan(killed_again, 2)
    assert logged_plan(killed_again, 1) == plan
    second.kill()
    assert kill_coordinators()

    third.start_query(queue.query("a")).wait(lambda: queue.written() == RECORDS, "all is written")
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert_replayed(output, {1: plan, 2: plan_again})
    assert output.of("a", 0).delivery_counts() == output.of("a", 3).delivery_counts() == {1}


def assert_whole_and_replayed(output: Output, plan) -> None:
    """All records are there once; batch 1 of query a is as Spark's log has it, and the only one delivered twice."""
    output.assert_exactly_once(numbers(RECORDS))
    assert_replayed(output, {1: plan})
    for batch in (0, 2, 3):
        assert output.of("a", batch).delivery_counts() == {1}


def assert_replayed(output: Output, plans) -> None:
    """The batches of query a are those that Spark's log has, and were delivered twice."""
    for batch, logged in plans.items():
        replayed = output.of("a", batch)
        assert replayed.records() == plan_records(logged)
        assert replayed.delivery_counts() == {2}


def test_the_coordinator_alone_is_killed_and_the_queries_go_on(kafka, topic, job, start):
    """In mid-batch of two queries; nobody restarts anything."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=4_000)
    a = start(queue.query("a", hold=("100",))).wait_held("100")
    b = start(queue.query("b", hold=("4100",))).wait_held("4100")
    assert kill_coordinators()
    a.spec.release()
    b.spec.release()
    for query in (a, b):
        query.wait(lambda: queue.written() == RECORDS, "all is written")
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.delivery_counts() == {1}
    assert not a.over() and not b.over()
