"""The lines of a query in the driver's log: where it starts, what it did, and which options have no effect."""

import re

import pytest

from share_source.executor.reader_choice import reader_choice
from tests.support.group_state import describe
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+ (INFO|WARNING) [\w.]+ \[group=(\S+) member=\S+\] (.*)")
LIMIT, BACKOFF = "share.delivery.count.limit", "share.release.backoff.ms"


def lines_of(program, queue):
    """The level and message of each line of the job's group."""
    found = [LINE.fullmatch(line) for line in program.log().splitlines()]
    return [(line[1], line[3]) for line in found if line is not None and line[2] == queue.group]


def wait_line(program, queue, text, count=1):
    """Waits for ``count`` messages that contain the text. Returns the last one."""

    def matching():
        return [message for _, message in lines_of(program, queue) if text in message]

    wait_until(lambda: len(matching()) >= count, timeout_s=60, what=f"{text!r} is logged")
    return matching()[-1]


def test_a_query_logs_its_start_offsets_configs_and_counts(kafka, topic, job, start, shared_program):
    orders = topic("orders", partitions=2)
    kafka.produce(orders, numbers(100))
    queue = job(orders, maxOffsetsPerTrigger=60, **{LIMIT: 3})
    # An availableNow query ends after the answer that completes its last batch: the last line has all counts.
    start(queue.query("a", trigger="available_now")).wait_over()
    program = shared_program.get()
    started = wait_line(program, queue, "query started:")
    assert re.match(
        rf"query started: group={queue.group} member=\w{{32}} epoch=1 coordinator=\(process \d+ on this host, log ",
        started,
    )
    assert started.endswith(f") store=kafka reader={reader_choice()}")
    assert f"query reads: {orders} lag=100 partitions=2 ({orders}-0 from 0 (lag " in wait_line(
        program, queue, "query reads:"
    )
    assert wait_line(program, queue, "configs: ") == f"configs: {LIMIT}=3 (this query)"
    wait_line(program, queue, "configs that have their default: share.session.timeout.ms=45000, ")
    ended = wait_line(program, queue, "query ended:")
    outcomes = "accepted=100 released=0 rejected=0 deferred=0 archived=0"
    assert f"batches=2 acquired=100 {outcomes} last batch: completed" in ended


def test_batches_have_about_max_bytes_per_trigger(kafka, topic, job, start, shared_program):
    orders = topic("orders")
    kafka.produce(orders, numbers(3_000), keys=[b"k" * 1_000] * 3_000)
    queue = job(orders, maxBytesPerTrigger=500_000)
    start(queue.query("a", trigger="available_now")).wait_over()
    queue.output().assert_exactly_once(numbers(3_000))
    ended = wait_line(shared_program.get(), queue, "ended:")
    assert "batches=6 acquired=3000 accepted=3000" in ended, "1,000 records, and then some 490 at a time"


@pytest.mark.slow
def test_options_without_effect_and_kept_options_are_named_and_can_be_unset(kafka, topic, job, start, shared_program):
    orders = topic("orders")
    kafka.produce(orders, numbers(10))
    queue = job(orders, **{LIMIT: 3})
    first = start(queue.query("a"))
    first.wait(lambda: queue.written() == 10, "the first query works")
    program = shared_program.get()

    start(queue.query("b", options={LIMIT: "4", "share.coordinator.metadata.refresh.ms": "7777"}))
    wait_line(program, queue, f"{LIMIT} is 4 from now on for all queries of the group, as this one sets it; it was 3")
    wait_line(program, queue, "startingOffsets=earliest has no effect: the group exists")
    wait_line(program, queue, "share.coordinator.metadata.refresh.ms=7777 has no effect: the coordinator (process ")
    overridden = f"{LIMIT}=3 of this query has no effect any more: another query or sink of the group set 4"
    wait_line(program, queue, overridden)
    assert ("WARNING", wait_line(program, queue, overridden)) in lines_of(program, queue)

    del queue.options[LIMIT]
    start(queue.query("c"))
    wait_line(program, queue, f"{LIMIT}=4 is not set by this query: the group has this value")
    start(queue.query("d", options={LIMIT: ""}))
    wait_line(program, queue, f"{LIMIT} is its default, 5 from now on for all queries of the group")
    assert describe(queue).configs() == {}
