"""A UDF that raises on 1 record of 100,000, and a scheduler that restarts the query: it gets through, that record alone
is archived, and every other one is in the output once."""

import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.group_state import describe
from tests.support.share_job import ShareJob, numbers
from tests.support.spark_program import RunningQuery
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 100_000
POISON = "54321"
RESTARTS = 40


def run_until_through(queue: ShareJob, begin, names: tuple[str, ...], trigger: str, kill_coordinator: bool) -> int:
    """Run the queries, and start each again when it has ended, until the group is done; how many failed."""
    running: dict[str, RunningQuery] = {}
    failures = 0

    def through() -> bool:
        return queue.written() >= RECORDS - 1 and describe(queue).lag() == 0

    for _ in range(RESTARTS):
        for name in names:
            if name not in running or running[name].over():
                running[name] = begin(queue.query(name, poison=(POISON,), trigger=trigger))
        wait_until(lambda: through() or any(query.over() for query in running.values()), timeout_s=240)
        over = [query for query in running.values() if query.over()]
        for query in over:
            if query.error():
                assert f"poison: {POISON}" in query.error(), query.error()
                failures += 1
                if kill_coordinator:
                    kill_coordinators()
        if through():
            return failures
    raise AssertionError(f"not through after {failures} failures: {describe(queue)}")


def assert_only_poison_is_archived(queue: ShareJob) -> None:
    queue.output().assert_exactly_once(set(numbers(RECORDS)) - {POISON})
    assert describe(queue).archived() == 1


# With the test below, each pair of these choices: all eight take eight minutes, most of it waiting for backoff.
@pytest.mark.parametrize(
    ("names", "trigger", "kill_coordinator"),
    [
        pytest.param(("a", "b"), "default", False, id="streaming-two"),
        pytest.param(("a",), "default", True, id="streaming-one-coordinator-dies"),
        pytest.param(("a", "b"), "available_now", True, id="available-now-two-coordinator-dies"),
    ],
)
def test_a_query_gets_through_in_one_session(kafka, topic, job, start, names, trigger, kill_coordinator):
    """A new query in the same Spark session each time."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders)
    failures = run_until_through(queue, start, names, trigger, kill_coordinator)
    assert_only_poison_is_archived(queue)
    assert failures >= 5


def test_a_query_gets_through_with_a_new_process_each_time(kafka, topic, job, program):
    """As a job scheduler would, with AvailableNow. Fewer tries make fewer starts, smaller batches fewer slices."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=10_000, **{"share.delivery.count.limit": 4})
    programs = [program()]

    def begin(spec):
        programs[-1].kill()
        programs.append(program())
        return programs[-1].start_query(spec)

    run_until_through(queue, begin, ("a",), "available_now", kill_coordinator=False)
    assert_only_poison_is_archived(queue)
