"""keep_running: within one process a query gets through a bad record and an outage, and ends where it has to."""

import time

import pytest

from tests.support.dead_letters import read_dead_letters
from tests.support.group_state import describe
from tests.support.share_job import ShareJob, numbers
from tests.support.spark_program import RunningQuery
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS = 16
FEW_TRIES = {"share.isolation.base": RECORDS, "share.delivery.count.limit": 3}
THROUGH_S, AWAY_S = 240, 300
IN_A_THREAD = """
import threading
from sharegroup import keep_running

def run(spark, source, sink, checkpoint):
    rows = spark.readStream.format("sharegroup").options(**source).load().selectExpr("*", "'accept' acknowledgement")
    writer = rows.writeStream.format("sharegroup").options(**sink).option("checkpointLocation", checkpoint)
    writer, failed = writer.trigger(availableNow=True), []

    def keep(start):
        try:
            keep_running(start)
        except Exception as error:
            failed.append(str(error))

    for start in (writer.start, lambda: writer.start()):
        thread = threading.Thread(target=keep, args=(start,))
        thread.start()
        thread.join()
    return failed
"""


def assert_the_poison_alone_is_a_dead_letter(kafka, queue: ShareJob, running: RunningQuery) -> None:
    """Produce a record whenever the poison alone is left: it goes on trial when another record is completed."""
    (poison,) = running.spec.poison
    produced = RECORDS

    def found() -> bool:
        nonlocal produced
        assert not running.over(), running.error()
        if queue.written() == produced - 1 and describe(queue).lag() == 1:
            kafka.produce(queue.topics[0], numbers(1, first=produced))
            produced += 1
        return describe(queue).lag() == 0

    wait_until(found, timeout_s=THROUGH_S, what="the poison is a dead letter, and all others are accepted")
    dlq = queue.options["errors.deadletterqueue.topic.name"]
    assert [each.value for each in read_dead_letters(kafka.bootstrap, dlq)] == [poison.encode()]
    queue.output().assert_exactly_once(set(numbers(produced)) - {poison})


def test_a_poison_record_becomes_a_dead_letter_within_one_process(kafka, topic, job, start):
    orders, dlq = topic("orders"), topic("dlq")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, **FEW_TRIES, **{"errors.deadletterqueue.topic.name": dlq})
    running = start(queue.query("a", poison=("9",), kept=True))
    assert_the_poison_alone_is_a_dead_letter(kafka, queue, running)
    assert len(running.events("started")) > 3
    running.stop()
    assert running.error() == "", "a query that was stopped is not started again"


@pytest.mark.parametrize(
    "away_s",
    [
        pytest.param(0, marks=pytest.mark.slow),
        pytest.param(AWAY_S, marks=[pytest.mark.soak, pytest.mark.timeout(AWAY_S + 600)]),
    ],
)
def test_while_a_service_is_away_no_record_is_given_up(kafka, topic, job, start, tmp_path, away_s):
    """Longer than the records have tries: some are quarantined."""
    end_s = time.monotonic() + away_s
    orders, dlq, flag = topic("orders"), topic("dlq"), tmp_path / "away"
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, **FEW_TRIES, **{"errors.deadletterqueue.topic.name": dlq})
    flag.touch()
    running = start(queue.query("a", away=str(flag), kept=True))
    running.wait(lambda: len(running.events("started")) > 4, "it has failed four times")
    wait_until(lambda: running.over() or time.monotonic() > end_s, timeout_s=2 * AWAY_S, what="the outage ends")
    assert not running.over(), running.error()
    flag.unlink()
    wait_until(lambda: describe(queue).lag() == 0, timeout_s=THROUGH_S, what="all records are done")
    assert not running.over(), running.error()
    queue.output().assert_exactly_once(numbers(RECORDS))
    assert describe(queue).archived() == 0
    assert read_dead_letters(kafka.bootstrap, dlq) == []


def test_what_a_person_must_mend_is_not_started_again(orders, job, start):
    """The checkpoint of another group; and an option that no source has."""
    queue, other = job(orders), job(orders)
    first = queue.query("a", kept=True)
    start(first).wait_written().stop()
    refused = start(other.query("a", kept=True, checkpoint=str(first.checkpoint_path))).wait_over()
    assert "ForeignCheckpoint" in refused.error()
    refused = start(queue.query("b", kept=True, options={"maxOffsetsPerTriger": "5"})).wait_over()
    assert "UnknownOption" in refused.error() and refused.events("started") == []


def test_a_query_is_kept_running_in_a_thread_of_its_own(kafka, orders, job, shared_program, tmp_path):
    """Spark looks for the data source of a sink in the session of the thread, which a new one has not."""
    queue = job(orders)
    sink = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": queue.group}
    source = {**sink, "subscribe": orders, "startingOffsets": "earliest"}
    checkpoint = str(tmp_path / "checkpoint")
    assert shared_program.get().run(IN_A_THREAD, source=source, sink=sink, checkpoint=checkpoint) == []
    assert describe(queue).lag() == 0


@pytest.mark.soak
def test_a_process_killed_between_failure_and_restart_loses_nothing(kafka, topic, job, program):
    orders, dlq = topic("orders"), topic("dlq")
    kafka.produce(orders, numbers(RECORDS))
    more = {"errors.deadletterqueue.topic.name": dlq, "share.delivery.count.limit": 8}
    queue = job(orders, **{**FEW_TRIES, **more})
    spec = queue.query("a", poison=("0",), kept=True)  # in the first slice of each try: no start completes a batch
    killed = program()
    killed.start_query(spec)
    killed.wait_said("it starts again in 3.2 s")
    killed.kill()
    running = program().start_query(spec)
    assert_the_poison_alone_is_a_dead_letter(kafka, queue, running)
