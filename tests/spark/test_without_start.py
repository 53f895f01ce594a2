"""Spark 4.0 and 4.1, whose ``latestOffset()`` has no arguments: the same programs as elsewhere, with the same results.

The short run is on the oldest one; `make soak` has all of them on both.
"""

from __future__ import annotations

import os

import pytest

from tests.support.coordinator_process import kill_coordinators
from tests.support.dead_letters import read_dead_letters
from tests.support.group_state import describe
from tests.support.imports import ROOT
from tests.support.share_job import logged_plan, numbers, plan_records
from tests.support.spark_program import SLOW_START
from tools.bootstrap import SPARK_WITHOUT_START

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]
RECORDS = 2_000
LONG = {"share.session.timeout.ms": 300_000}
LATE_KILL = "ClosedSelectorException"
"""Spark 4.0 ends a stopped task's Python process with a delay, and on a slow machine another query's task has it by
then (docs/trust/facts.md, S29)."""
WRAPPER = {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}
soak_on_both = pytest.mark.parametrize(
    "version", [pytest.param(v, marks=pytest.mark.soak) for v in SPARK_WITHOUT_START]
)


@pytest.fixture
def spark(program):
    """Starts a program on that Spark."""

    def start(version, **fields):
        path = os.pathsep.join((str(ROOT / ".build" / f"pyspark-{version}"), str(ROOT)))
        return program(PYTHONPATH=path, **fields)

    return start


def begun(program, spec, wait):
    """The query, when the wait for it is over; begun again where the machine was too slow for Spark, which fails its
    task."""
    query = program.start_query(spec)
    try:
        wait(query)
    except AssertionError as late:
        if SLOW_START not in str(late) and LATE_KILL not in str(late):
            raise
        return begun(program, spec, wait)
    return query


def held(program, spec, value):
    """The query, held there in its work."""
    return begun(program, spec, lambda query: query.wait_held(value))


def written(program, spec, queue, records):
    """Waits until ``records`` records are in the outputs. Returns the query."""
    return begun(program, spec, lambda query: query.wait(lambda: queue.written() == records, f"{records} are written"))


def run(program, spec):
    """One run of AvailableNow, to its good end."""
    error = program.start_query(spec).wait_over().error()
    if SLOW_START in error:
        run(program, spec)
    else:
        assert not error


def is_done(queue):
    """Whether the group has nothing left to deliver, and each dead letter is written."""
    return describe(queue).lag() == 0 and describe(queue).archiving() == 0


def refused(query):
    """Wait for the query's end, unless it could not begin."""
    assert SLOW_START not in query.wait_over().error(), SLOW_START


def replays_a_stopped_batch(kafka, orders, queue, program):
    """A query is stopped in its second batch, and the coordinator killed."""
    kafka.produce(orders, numbers(RECORDS))
    stopped = held(program, queue.query("a", hold=("700",)), "700")
    plan = logged_plan(stopped.spec, 1)
    stopped.stop()
    assert kill_coordinators()
    written(program, queue.query("a"), queue, RECORDS)
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.of("a", 1).records() == plan_records(plan)
    assert min(output.of("a", 1).delivery_counts()) >= 2


def test_the_oldest_spark_replays_a_stopped_batch(kafka, topic, job, spark):
    orders = topic("orders")
    oldest = spark(SPARK_WITHOUT_START[0])
    replays_a_stopped_batch(kafka, orders, job(orders, maxOffsetsPerTrigger=500), oldest)
    assert oldest.version() == SPARK_WITHOUT_START[0]


@soak_on_both
def test_a_killed_and_a_running_query_write_each_record_once(kafka, topic, job, spark, version):
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=500, **LONG)
    one, two = spark(version), spark(version)
    killed = held(one, queue.query("a", hold=("700",)), "700").spec
    plan = logged_plan(killed, 1)
    other = written(two, queue.query("b"), queue, RECORDS - 500)
    one.kill()
    written(two, queue.query("a"), queue, RECORDS)
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.of("a", 1).records() == plan_records(plan)
    other.wait(lambda: describe(queue).lag() == 0, "the last batches are completed")
    assert two.version() == version


@soak_on_both
def test_a_sink_decides_each_record_also_after_a_kill(kafka, topic, job, spark, version):
    orders, dlq = topic("orders"), topic("dlq")
    kafka.produce(orders, [f"{'bad' if n % 10 == 0 else 'good'}-{n}" for n in range(RECORDS)])
    queue = job(orders, maxOffsetsPerTrigger=500, **LONG)
    decides = {
        "acknowledgement": """case when text like 'bad%' then 'reject'
                                   when text like '%7' and deliveryCount < 3 then 'release' else 'accept' end"""
    }
    options = queue.sink_options(**{"errors.deadletterqueue.topic.name": dlq})
    fields = {"columns": decides, "sink": "sharegroup", "sink_options": options}
    first = spark(version)
    held(first, queue.query("a", hold=("good-707",), **fields), "good-707")
    first.kill()
    begun(spark(version), queue.query("a", **fields), lambda query: query.wait(lambda: is_done(queue), "all is done"))
    rejected = {letter.origin for letter in read_dead_letters(kafka.bootstrap, dlq)}
    assert {offset for _, _, offset in rejected} == set(range(0, RECORDS, 10))
    seen = queue.seen()
    assert seen[seen["text"].str.endswith("7")].groupby("offset")["deliveryCount"].max().min() >= 3


@soak_on_both
def test_available_now_runs_with_kills_between_write_all_once(kafka, topic, job, spark, version):
    """A run is one batch; the run after a kill finishes the batch of the run that was killed."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=800, **LONG)
    again, now = spark(version), {"trigger": "available_now"}
    for value in ("300", "1100"):
        killed = spark(version)
        held(killed, queue.query("a", hold=(value,), **now), value)
        killed.kill()
        run(again, queue.query("a", **now))
    assert all(min(queue.output().of("a", batch).delivery_counts()) >= 2 for batch in (0, 1)), "both are replayed"
    assert kill_coordinators()
    for _ in range(2):  # the rest, and a run that completes it
        run(again, queue.query("a", **now))
    queue.output().assert_exactly_once(numbers(RECORDS))
    assert describe(queue).lag() == 0


@soak_on_both
def test_the_wrapper_for_available_now_is_refused_by_name(kafka, topic, job, spark, version):
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=800, **LONG)
    query = begun(spark(version, settings=WRAPPER), queue.query("a", trigger="available_now"), refused)
    assert "LogNotTold" in query.error()
    assert queue.written() == 0
    assert describe(queue).acquired() == 0, "others get what it had acquired"
