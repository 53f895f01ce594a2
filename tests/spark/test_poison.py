"""A UDF that raises on one record, and a scheduler that restarts the query: the query gets through, that record alone
is archived, and every other record is in the output once. With `make soak` it is 1 record of 100,000."""

import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.group_state import describe
from tests.support.share_job import ShareJob, numbers
from tests.support.spark_program import RunningQuery
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

FEW, MANY = 16, 100_000
RECORDS_OF_PROCESSES, BATCH_OF_PROCESSES = 20_000, 4_000
POISON_OF = {FEW: "9", MANY: "14321", RECORDS_OF_PROCESSES: "14321"}
LIMIT_OF = {FEW: 3, MANY: 5}
"""share.delivery.count.limit. Few tries: each is a restart, which takes most of the test's time."""
THROUGH_S = 480


def run_until_through(
    kafka, queue: ShareJob, begin, names: tuple[str, ...], trigger: str, *, kill_coordinator: bool, records: int
) -> tuple[int, int]:
    """Run the queries, and start each again when it has ended, until the group is done.

    Once the poison alone is left, a new record comes after each failure: the poison goes on trial when another record
    is completed. Returns how many records were produced in all, and how many runs failed."""
    poison = POISON_OF[records]
    running: dict[str, RunningQuery] = {}
    produced, failures, failures_before = records, 0, 0

    def through() -> bool:
        nonlocal produced, failures, failures_before
        for name, query in list(running.items()):
            if query.over():
                del running[name]
                if error := query.error():
                    assert f"poison: {poison}" in error, error
                    failures += 1
                    if kill_coordinator:
                        kill_coordinators()
        if queue.written() == produced - 1:
            lag = describe(queue).lag()
            if lag == 0:
                return True
            if lag == 1 and failures > failures_before:
                kafka.produce(queue.topics[0], numbers(1, first=produced))
                produced, failures_before = produced + 1, failures
        for name in names:
            if name not in running:
                running[name] = begin(queue.query(name, poison=(poison,), trigger=trigger))
        return False

    wait_until(through, timeout_s=THROUGH_S, what=f"{names} get through")
    return produced, failures


def assert_only_the_poison_is_archived(queue: ShareJob, produced: int, poison: str) -> None:
    queue.output().assert_exactly_once(set(numbers(produced)) - {poison})
    assert describe(queue).archived() == 1


# With the test below, each pair of these choices: all eight take eight minutes, most of it waiting for backoff.
@pytest.mark.slow  # its short form is the poison of test_kept_query.py
@pytest.mark.parametrize("records", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("names", "trigger", "kill_coordinator"),
    [
        pytest.param(("a", "b"), "default", False, id="streaming-two", marks=pytest.mark.soak),
        pytest.param(("a",), "default", True, id="streaming-one-coordinator-dies"),
        pytest.param(
            ("a", "b"), "available_now", True, id="available-now-two-coordinator-dies", marks=pytest.mark.soak
        ),
    ],
)
def test_a_query_passes_a_poison_record_within_one_spark_session(
    kafka, topic, job, start, names, trigger, kill_coordinator, records
):
    """A new query in the same Spark session each time. The slices begin at all records, so that few of them are cut as
    often as many."""
    orders = topic("orders")
    kafka.produce(orders, numbers(records))
    queue = job(orders, **{"share.isolation.base": records, "share.delivery.count.limit": LIMIT_OF[records]})
    produced, failures = run_until_through(
        kafka, queue, start, names, trigger, kill_coordinator=kill_coordinator, records=records
    )
    assert_only_the_poison_is_archived(queue, produced, POISON_OF[records])
    assert failures >= LIMIT_OF[records]


@pytest.mark.soak
def test_a_query_passes_a_poison_record_with_a_new_process_each_time(kafka, topic, job, program):
    """As a job scheduler would, with AvailableNow. Smaller batches make fewer slices."""
    orders, records = topic("orders"), RECORDS_OF_PROCESSES
    kafka.produce(orders, numbers(records))
    sizes = {"maxOffsetsPerTrigger": BATCH_OF_PROCESSES, "share.isolation.base": BATCH_OF_PROCESSES}
    queue = job(orders, **sizes, **{"share.delivery.count.limit": 4})
    programs = [program()]

    def begin(spec):
        programs[-1].kill()
        programs.append(program())
        return programs[-1].start_query(spec)

    produced, _ = run_until_through(
        kafka, queue, begin, ("a",), "available_now", kill_coordinator=False, records=records
    )
    assert_only_the_poison_is_archived(queue, produced, POISON_OF[records])
