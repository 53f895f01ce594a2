"""The time without an owner: from SIGKILL of a whole host, or of a standalone coordinator, which owns the group, to the
next records.

A host here is a runtime folder: its coordinator, and the members that use it."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from confluent_kafka import Producer

from benchmarks.report import Row
from tests.support.consumer_process import ConsumerProgram
from tests.support.coordinator_process import coordinator_pids, kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.share_job import ShareJob, logged_plan, plan_records
from tests.support.spark_program import SparkProgram
from tests.support.standalone import two_coordinators
from tests.support.waiting import wait_until

CONSUMER, QUERY, STANDALONE = "a ShareConsumer", "a Spark query", "a ShareConsumer of standalone coordinators"
"""The kinds of members, on the host that is left; the last one names two standalone coordinators."""
RUNTIME = "SHAREGROUP_RUNTIME_DIR"
GONE, LOADED = "owner gone: ", "group loaded: "
"""The beginnings of two lines of a coordinator's log."""
TAKEOVER_S = 15.0
"""The target: the longest takeover."""
RECORD_EACH_S = 0.1
BATCH, WARM_UP = 100, 5
"""A consumer takes up to the first number of records at a time. A query has written the second number of batches before
its owner is killed: Spark's first ones take seconds."""


class Takeover(NamedTuple):
    """Seconds since SIGKILL: until the owner was found gone, until the group was loaded, and until a record was
    acquired that was produced after SIGKILL."""

    gone: float
    loaded: float
    acquired: float


def takeover_rows(broker: KafkaBroker, rounds: int) -> list[Row]:
    """Measure all kinds in turns."""
    found: dict[str, list[Takeover]] = {CONSUMER: [], QUERY: [], STANDALONE: []}
    with tempfile.TemporaryDirectory(prefix="sgt-") as folder:
        for number in range(rounds):
            for kind, takeovers in found.items():
                made = Path(folder, f"{number}-{kind.rpartition(' ')[2]}")
                if kind == STANDALONE:
                    takeovers.append(standalone_takeover_s(broker, made))
                else:
                    takeovers.append(takeover_s(broker, kind, made))
    return [
        Row(
            name=f"hosts: from the owner's SIGKILL to the next records elsewhere, {kind}",
            value=statistics.median(each.acquired for each in takeovers),
            unit="s",
            at_most=TAKEOVER_S,
            how=f"{rounds} rounds, at most {max(each.acquired for each in takeovers):.1f} s; medians of its parts: "
            f"owner found gone {_median(t.gone for t in takeovers):.1f} s, group loaded "
            f"{_median(t.loaded - t.gone for t in takeovers):.1f} s, records acquired "
            f"{_median(t.acquired - t.loaded for t in takeovers):.1f} s",
        )
        for kind, takeovers in found.items()
    ]


def takeover_s(broker: KafkaBroker, kind: str, folder: Path) -> Takeover:
    """Measure one takeover. ``folder`` is made."""
    name = uuid.uuid4().hex[:8]
    group, topic = f"takeover-{name}", broker.create_topic(f"takeover-{name}")
    one, two = folder / "one", folder / "two"
    for each in (one, two):
        each.mkdir(parents=True)
    with contextlib.ExitStack() as ends:
        ends.enter_context(patch.dict(os.environ, {RUNTIME: str(folder)}))  # where coordinators are looked for
        produced = ends.enter_context(producing(broker, topic))
        for host in (one, two):
            ends.callback(kill_coordinators, host)
        owner = ConsumerProgram(folder, "owner", _arguments(broker, group, topic), **{RUNTIME: str(one)})
        ends.callback(owner.kill)
        wait_until(lambda: owner.lines("accepted"), what="the owner's host works")
        acquired = _member(broker, kind, group, topic, folder, ends)
        wait_until(lambda: 0 <= produced() - BATCH < acquired(), what="the other host works, and has no backlog")
        (pid,) = coordinator_pids(one)
        killed_at, end = time.time(), produced()
        for each in (owner.process.pid, pid):
            os.kill(each, signal.SIGKILL)
        wait_until(lambda: acquired() >= end, interval_s=0.01, what="records are acquired again")
        acquired_s = time.time() - killed_at
        (log,) = two.glob("coordinator-*.log")
        return Takeover(_logged_s(log, GONE, killed_at), _logged_s(log, LOADED, killed_at), acquired_s)


def standalone_takeover_s(broker: KafkaBroker, folder: Path) -> Takeover:
    """Measure one takeover between two standalone coordinators, of which the group's is killed. ``folder`` is made."""
    name = uuid.uuid4().hex[:8]
    group, topic = f"takeover-{name}", broker.create_topic(f"takeover-{name}")
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as ends:
        running, _ = ends.enter_context(two_coordinators(folder, broker.bootstrap))
        produced = ends.enter_context(producing(broker, topic))
        found = {
            "share.coordinator.endpoint": ",".join(each.endpoint for each in running),
            "share.coordinator.token.file": str(running[0].token_file),
        }
        member = ConsumerProgram(folder, "member", _arguments(broker, group, topic, **found))
        ends.callback(member.kill)
        acquired = _acquired_of(member)
        wait_until(lambda: 0 <= produced() - BATCH < acquired(), what="the member works, and has no backlog")
        owner, heir = sorted(running, key=lambda each: not each.said(f"{LOADED}group={group} "))
        killed_at, end = time.time(), produced()
        owner.process.kill()
        wait_until(lambda: acquired() >= end, interval_s=0.01, what="records are acquired again")
        acquired_s = time.time() - killed_at
        lines = [(datetime.fromisoformat(each["time"]).timestamp(), each["message"]) for each in heir.lines()]
        gone_s, loaded_s = (_first_s(lines, word, killed_at) for word in (GONE, LOADED))
        return Takeover(gone_s, loaded_s, acquired_s)


def _arguments(broker: KafkaBroker, group: str, topic: str, **more: str) -> dict[str, object]:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest", **more}
    return {"config": config | {"max.poll.records": BATCH}, "topic": topic, "together": 1 << 40}


def _acquired_of(member: ConsumerProgram) -> Callable[[], int]:
    """The function that says up to which offset the consumer has acquired."""
    return lambda: max((int(line.split()[1]) for line in member.lines("got")), default=-1)


def _member(
    broker: KafkaBroker, kind: str, group: str, topic: str, folder: Path, ends: contextlib.ExitStack
) -> Callable[[], int]:
    """Start the member on the other host. Returns the function that says up to which offset it has acquired."""
    runtime = {RUNTIME: str(folder / "two")}
    if kind == CONSUMER:
        member = ConsumerProgram(folder, "member", _arguments(broker, group, topic), **runtime)
        ends.callback(member.kill)
        return _acquired_of(member)
    program = ends.enter_context(SparkProgram(**runtime))
    job = ShareJob(directory=folder, bootstrap=broker.bootstrap, group=group, topics=(topic,))
    spec = job.query("member")
    program.start_query(spec).wait_written(WARM_UP)

    def newest() -> int:
        batches = sorted(int(path.name) for path in (spec.checkpoint_path / "offsets").glob("[0-9]*"))
        plan = plan_records(logged_plan(spec, batches[-1])) if batches else set()
        return max((offset for _, _, offset in plan), default=-1)

    return newest


@contextlib.contextmanager
def producing(broker: KafkaBroker, topic: str, partitions: int = 1) -> Iterator[Callable[[], int]]:
    """Produce a record each RECORD_EACH_S, to the partitions in turn. Yields the function that counts them."""
    ended, count = threading.Event(), 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def produce() -> None:
        nonlocal count
        while not ended.wait(RECORD_EACH_S):
            producer.produce(topic, str(count), partition=count % partitions)
            producer.flush()
            count += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield lambda: count
    finally:
        ended.set()
        thread.join()


def _logged_s(log: Path, word: str, since: float) -> float:
    """Seconds from ``since`` to the first later line of a coordinator's log that has the word."""
    found: list[tuple[float, str]] = []
    for line in log.read_text().splitlines():
        if f" {word}" in line:
            day, time_, *_ = line.split()
            at = datetime.strptime(f"{day} {time_}", "%Y-%m-%d %H:%M:%S,%f").timestamp()
            found.append((at, word))
    return _first_s(found, word, since)


def _first_s(lines: list[tuple[float, str]], word: str, since: float) -> float:
    """Seconds from ``since`` to the first later line that begins with the word."""
    return min(at for at, text in lines if text.startswith(word) and at > since) - since


def _median(numbers: Iterator[float]) -> float:
    return statistics.median(list(numbers))
