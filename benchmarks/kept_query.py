"""One record of 100,000 on which a query's code raises: from its first failure until the record is a dead letter and
all others are written. keep_running starts the query again in its process; a scheduler starts a new process.

The scheduler here restarts at once: a real one waits before each restart, and may start a cluster."""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Row
from tests.support.group_state import describe, forget_clients
from tests.support.kafka_broker import KafkaBroker
from tests.support.query_spec import QuerySpec
from tests.support.share_job import ShareJob, numbers
from tests.support.spark_program import RunningQuery, SparkProgram
from tests.support.waiting import wait_until

RECORDS, PER_BATCH, POISON = 100_000, 10_000, "4321"
LOOK_S, WITHIN_S = 0.02, 900.0
KEPT, SCHEDULED = "keep_running", "a scheduler that restarts the process at once"


def kept_query_rows(broker: KafkaBroker, rounds: int) -> list[Row]:
    """Measure both in turns."""
    took_s: dict[str, list[float]] = {KEPT: [], SCHEDULED: []}
    for _ in range(rounds):
        with _job(broker) as job:
            took_s[KEPT].append(_kept_s(job))
        with _job(broker) as job:
            took_s[SCHEDULED].append(_scheduled_s(job))
    return [
        Row(
            name=f"1 bad record of {RECORDS:,}, from its first failure to its dead letter: {name}",
            value=statistics.median(found),
            unit="s",
            how=f"{rounds} rounds, {min(found):.0f} to {max(found):.0f} s",
        )
        for name, found in took_s.items()
    ]


@contextmanager
def _job(broker: KafkaBroker) -> Iterator[ShareJob]:
    name = uuid.uuid4().hex[:8]
    orders, dlq = broker.create_topic(f"orders-{name}"), broker.create_topic(f"dlq-{name}")
    broker.produce(orders, numbers(RECORDS))
    options = {"maxOffsetsPerTrigger": str(PER_BATCH), "errors.deadletterqueue.topic.name": dlq}
    with tempfile.TemporaryDirectory(prefix="sgb-") as folder:
        job = ShareJob(
            directory=Path(folder), bootstrap=broker.bootstrap, admin_bootstrap=broker.bootstrap,
            group=f"group-{name}", topics=(orders,), options=options,
        )  # fmt: skip
        try:
            yield job
        finally:
            forget_clients()


def _kept_s(job: ShareJob) -> float:
    with SparkProgram() as program:
        running = program.start_query(job.query("a", poison=(POISON,), kept=True))
        wait_until(lambda: len(running.events("started")) > 1, timeout_s=WITHIN_S, interval_s=LOOK_S, what="a failure")
        began_s = time.monotonic()
        wait_until(lambda: _is_done(job, running), timeout_s=WITHIN_S, interval_s=LOOK_S, what="a dead letter")
        return time.monotonic() - began_s


def _scheduled_s(job: ShareJob) -> float:
    spec, began_s = job.query("a", poison=(POISON,)), None
    while True:
        with SparkProgram() as program:
            if _is_through(job, program, spec):
                assert began_s is not None
                return time.monotonic() - began_s
            began_s = began_s or time.monotonic()


def _is_through(job: ShareJob, program: SparkProgram, spec: QuerySpec) -> bool:
    """Run the query until it fails, or the group is done; return whether it is done."""
    running = program.start_query(spec)
    wait_until(lambda: running.over() or _is_done(job, running), timeout_s=WITHIN_S, interval_s=LOOK_S, what="an end")
    if running.over():
        assert f"poison: {POISON}" in running.error(), running.error()
        return False
    return True


def _is_done(job: ShareJob, running: RunningQuery) -> bool:
    state = describe(job)
    if state.lag() != 0:
        return False
    job.output().assert_exactly_once(set(numbers(RECORDS)) - {POISON})
    assert state.archived() == 1, state
    return True
