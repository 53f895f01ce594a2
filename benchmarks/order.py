"""Two Spark queries of a group in order by partition, on the two partitions of a topic: the times until they have
divided the partitions, and until one has taken over what the other held.

A host here is a runtime folder. Records flow into both partitions all the time."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.report import Row
from benchmarks.takeover import RUNTIME, TAKEOVER_S, producing
from tests.support.coordinator_process import kill_coordinators
from tests.support.group_state import describe, forget_clients
from tests.support.kafka_broker import KafkaBroker
from tests.support.query_spec import QuerySpec
from tests.support.share_job import ShareJob, logged_plan, plan_records
from tests.support.spark_program import SLOW_START, RunningQuery, SparkProgram
from tests.support.waiting import wait_until

PARTITIONS, SESSION_S = 2, 10.0
DIVIDED_S = 10.0
"""The target: seconds from the second query's start until each query has a partition."""
TIMEOUT_S = 300


class Divided(NamedTuple):
    """Seconds until each query had one partition, from the start of the second query; and until the one had both, from
    the end of the other by stop() and by SIGKILL. ``job`` has the outputs."""

    job: ShareJob
    works: float
    after_stop: float
    after_kill: float


class OwnerKilled(NamedTuple):
    """Seconds from SIGKILL of the owner's host until the query on the other host had the next batch of its partition,
    and until it had a batch of both partitions. ``job`` has the outputs."""

    job: ShareJob
    next_batch: float
    took_over: float


class Queries:
    """Two queries, ``a`` and ``b``, of a new group in order. Each start of one has a Spark program of its own."""

    def __init__(self, broker: KafkaBroker, folder: Path, ends: contextlib.ExitStack) -> None:
        name = f"order-{uuid.uuid4().hex[:8]}"
        self.job = ShareJob(
            directory=folder,
            bootstrap=broker.bootstrap,
            admin_bootstrap=broker.bootstrap,
            group=name,
            topics=(broker.create_topic(name, PARTITIONS),),
            options={"share.order": "partition", "share.session.timeout.ms": str(int(SESSION_S * 1000))},
        )
        self._running: dict[str, tuple[SparkProgram, RunningQuery]] = {}
        self._programs, self._producing = ends, ends.enter_context(contextlib.ExitStack())
        self.produced = self._producing.enter_context(producing(broker, self.job.topics[0], PARTITIONS))

    def program(self, host: Path) -> SparkProgram:
        """A new program on this host, which starts side by side with others."""
        host.mkdir(parents=True, exist_ok=True)
        return self._programs.enter_context(SparkProgram(**{RUNTIME: str(host)}))

    def start(self, program: SparkProgram, name: str) -> None:
        """Start the query. While :meth:`wait` waits, a query that has ended is started again in its program, as a
        scheduler does: on a busy machine Spark may not wait for its Python workers."""
        self._running[name] = program, program.start_query(self.spec(name))

    def stop(self, name: str) -> None:
        _, query = self._running.pop(name)
        query.stop()

    def kill(self, name: str) -> None:
        program, _ = self._running.pop(name)
        program.kill()

    def wait(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until the condition holds. Returns the time."""

        def holds() -> bool:
            for name, (program, query) in list(self._running.items()):
                if query.over():
                    assert SLOW_START in query.error(), query.error()
                    self.start(program, name)
            return condition()

        wait_until(holds, timeout_s=TIMEOUT_S, interval_s=0.02, what=what)
        return time.time()

    def spec(self, name: str) -> QuerySpec:
        return self.job.query(
            name,
            sink="acknowledge+replace",
            sink_options=self.job.sink_options(outputOnReplay="replaces"),
            columns={"acknowledgement": "'accept'"},
            in_order=True,
        )

    def newest(self, name: str) -> tuple[int, dict[int, int]]:
        """The number of the query's newest batch, -1 if there is none, and the batch's last offset by partition."""
        spec, last = self.spec(name), dict[int, int]()
        number = max((int(path.name) for path in (spec.checkpoint_path / "offsets").glob("[0-9]*")), default=-1)
        for _, partition, offset in plan_records(logged_plan(spec, number)) if number >= 0 else ():
            last[partition] = max(offset, last.get(partition, -1))
        return number, last

    def wait_divided(self) -> float:
        """Wait until new batches of the queries have one partition each, and not the same one. Returns the time."""
        before = {name: self.newest(name)[0] for name in ("a", "b")}

        def are_divided() -> bool:
            (a, of_a), (b, of_b) = self.newest("a"), self.newest("b")
            are_new = a > before["a"] and b > before["b"]
            return are_new and len(of_a) == len(of_b) == 1 and of_a.keys() != of_b.keys()

        return self.wait(are_divided, "each query has a partition")

    def wait_for(self, name: str, partitions: set[int]) -> float:
        """Wait until a batch of the query has later records of all these partitions. Returns the time."""
        least = self.produced() // PARTITIONS

        def has_them() -> bool:
            _, last = self.newest(name)
            return all(last.get(partition, -1) >= least for partition in partitions)

        return self.wait(has_them, f"{name} has records of {partitions}")

    def wait_done(self, name: str) -> None:
        """Wait until the query has written rows of records that are done, and that no other query gets: a batch is in
        Spark's log, where :meth:`newest` finds it, before it is written."""
        (topic,) = self.job.topics

        def has_done() -> bool:
            group = describe(self.job)  # first: what is done now has been written
            rows = self.job.output().last_deliveries().of(name).rows
            return bool((rows["offset"] < rows["partition"].map(partial(group.start_offset, topic))).any())

        self.wait(has_done, f"{name} has written rows of records that are done")

    def finish(self) -> None:
        """Produce no more, and wait until all records are done."""
        self._producing.close()
        self.wait(lambda: describe(self.job).lag() == 0, "all records are done")


def order_rows(broker: KafkaBroker, rounds: int) -> list[Row]:
    """Measure each of it so many times."""
    with tempfile.TemporaryDirectory(prefix="sgt-") as folder:
        divided = [divided_s(broker, Path(folder, f"divided-{number}")) for number in range(rounds)]
        killed = [owner_killed_s(broker, Path(folder, f"killed-{number}")) for number in range(rounds)]
    session = f"share.session.timeout.ms={SESSION_S * 1000:.0f}"
    return [
        _row("until each of two queries has a partition", [each.works for each in divided], "", DIVIDED_S),
        _row("from stop() to the other query", [each.after_stop for each in divided], session),
        _row("from SIGKILL to the other query", [each.after_kill for each in divided], session),
        _row("from the owner's SIGKILL to the next batch", [each.next_batch for each in killed], "", TAKEOVER_S),
        _row("… and to the killed query's partition", [each.took_over for each in killed], session),
    ]


def _row(name: str, seconds: list[float], how: str, at_most: float | None = None) -> Row:
    how = ", ".join(filter(None, [f"{len(seconds)} rounds, at most {max(seconds):.1f} s", how]))
    return Row(name=f"order: {name}", value=statistics.median(seconds), unit="s", at_most=at_most, how=how)


def divided_s(broker: KafkaBroker, folder: Path) -> Divided:
    """Measure a division and two takeovers. ``folder`` is made."""
    with _play(broker, folder) as queries:
        stays, leaves, returns = (queries.program(folder / "one") for _ in range(3))
        queries.start(stays, "a")
        queries.wait_for("a", {0, 1})
        queries.wait_done("a")  # Spark's first batch takes seconds
        leaves.wait_ready()
        began = time.time()
        queries.start(leaves, "b")
        works = queries.wait_divided() - began
        queries.wait_done("b")
        queries.stop("b")
        began = time.time()
        after_stop = queries.wait_for("a", {0, 1}) - began
        queries.start(returns, "b")
        queries.wait_divided()
        queries.kill("b")
        began = time.time()
        after_kill = queries.wait_for("a", {0, 1}) - began
        queries.finish()
        return Divided(queries.job, works, after_stop, after_kill)


def owner_killed_s(broker: KafkaBroker, folder: Path) -> OwnerKilled:
    """Measure one takeover. The first query's host has the group's owner. ``folder`` is made."""
    one, two = folder / "one", folder / "two"
    with _play(broker, folder) as queries:
        killed, stays = queries.program(one), queries.program(two)
        queries.start(killed, "a")
        queries.wait_for("a", {0, 1})
        queries.wait_done("a")
        queries.start(stays, "b")
        queries.wait_divided()
        own = set(queries.newest("b")[1])
        queries.wait_done("b")
        began = time.time()
        queries.kill("a")
        kill_coordinators(one)
        next_batch = queries.wait_for("b", own) - began
        took_over = queries.wait_for("b", {0, 1}) - began
        queries.finish()
        return OwnerKilled(queries.job, next_batch, took_over)


@contextlib.contextmanager
def _play(broker: KafkaBroker, folder: Path) -> Iterator[Queries]:
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as ends:
        ends.enter_context(patch.dict(os.environ, {RUNTIME: str(folder)}))  # where coordinators are looked for
        ends.callback(kill_coordinators, folder)
        ends.callback(forget_clients)
        yield Queries(broker, folder, ends)
