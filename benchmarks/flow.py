"""A group's rate (docs/run/flow.md): members on two hosts, of which some are killed. The acquisitions are read from the
log of the state topic."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from benchmarks.hosts import new_host
from benchmarks.report import Row
from benchmarks.topics import fill
from coordinator.core.log_records import PlanAcquired
from coordinator.core.recent_acquisitions import SECOND_MS
from coordinator.core.record_codec import decode_record
from coordinator.service.stores.kafka.log_parts import log_parts
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC, StateTopic
from tests.support.consumer_process import ConsumerProgram
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.share_job import ShareJob
from tests.support.spark_program import SparkProgram
from tests.support.state_topics import state_topic
from tests.support.waiting import wait_until

RATE, AT_LEAST, BATCH, MEMBERS = 200, 190, 100, 3
"""Records a second: the group's rate, and the target for the mean while it has an owner. A member takes up to BATCH."""
KILL_EVERY_S, LOOK_EVERY_S = 15.0, 1.0
STATE_PARTITIONS = 50
CONFIGS = {"share.max.records.per.second": str(RATE)}
Times = list[tuple[int, int]]
"""Each acquisition's time in ms and number of records, in the order of time."""
Start = Callable[[int, Path], Callable[[], None]]
"""Starts the member of this number on a host, and returns the function that kills it."""
Acquired = dict[int, tuple[int, int]]
"""By plan, when it was acquired, in ms, and the number of its records: a plan of BATCH records is one log record."""


def flow_rows(broker: KafkaBroker, *, seconds: int, queries: bool) -> list[Row]:
    """Measure three queries, or three ShareConsumers, for so long. Each KILL_EVERY_S one of them is killed, or the
    coordinators of a host, in turn."""
    name = f"flow-{uuid.uuid4().hex[:8]}"
    topic = fill(broker, name, RATE * (seconds + 60), 200).name
    with contextlib.ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="sgf-")))
        hosts = ends.enter_context(new_host()), ends.enter_context(new_host())
        start = (_queries if queries else _consumers)(broker, name, topic, folder, ends)
        acquired, killed_ms = _play(broker, name, start, hosts, seconds)
    times = sorted(acquired.values())
    lost_ms = sum(_next_ms(times, at_ms) - at_ms for at_ms in killed_ms)
    owned_s = (times[-1][0] - times[0][0] - lost_ms) / 1_000
    records = sum(count for _, count in times[1:])
    how = (
        f"{MEMBERS} {'queries' if queries else 'ShareConsumers'} on two hosts, {seconds} s, {len(times)} acquisitions, "
    )
    how += f"owners killed {len(killed_ms)} times, {lost_ms / 1_000:.1f} s without an owner"
    return [
        Row(name="a rate of 200: most records within any second", value=_most_in_a_second(times), at_most=RATE),
        Row(name="a rate of 200: mean records/s", value=records / owned_s, at_least=AT_LEAST, how=how),
        Row(name="a rate of 200: median delay of an acquisition", value=_delay_ms(times, killed_ms), unit="ms"),
    ]


def _play(
    broker: KafkaBroker, group: str, start: Start, hosts: tuple[Path, Path], seconds: int
) -> tuple[Acquired, list[int]]:
    """All acquisitions, and when an owner was killed."""
    state, acquired, killed_ms = state_topic(broker, STATE_TOPIC, STATE_PARTITIONS), Acquired(), list[int]()
    kills = [start(number, hosts[number % 2]) for number in range(MEMBERS)]
    wait_until(lambda: STATE_TOPIC in broker.admin.list_topics().topics, what="a coordinator runs", timeout_s=180)
    wait_until(lambda: _look(state, group, acquired), what="the members work", timeout_s=180)
    began_s, victims = time.monotonic(), itertools.count()
    next_s = began_s + KILL_EVERY_S
    while time.monotonic() < began_s + seconds:
        time.sleep(LOOK_EVERY_S)
        _look(state, group, acquired)
        if time.monotonic() < next_s:
            continue
        victim, next_s = next(victims), next_s + KILL_EVERY_S
        if victim % 2:
            killed_ms.append(int(time.time() * 1_000))
            kill_coordinators(hosts[victim // 2 % 2])
        else:
            number = victim // 2 % MEMBERS
            kills[number]()
            kills[number] = start(number, hosts[number % 2])
    for kill in kills:
        kill()
    _look(state, group, acquired)
    return acquired, killed_ms


def _look(state: StateTopic, group: str, acquired: Acquired) -> bool:
    """Read the newest part of the log, before it is pruned. Returns whether anything was acquired yet."""
    for _, data in next(log_parts(state, group), []):
        record = decode_record(data)
        if isinstance(record, PlanAcquired) and record.ranges:
            count = sum(last - first + 1 for _, _, ranges in record.ranges for first, last in ranges)
            acquired[record.plan_id] = record.acquired_ms, count
    return bool(acquired)


def _consumers(broker: KafkaBroker, group: str, topic: str, folder: Path, ends: contextlib.ExitStack) -> Start:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "max.poll.records": BATCH, **CONFIGS}
    arguments = {"config": {**config, "share.auto.offset.reset": "earliest"}, "topic": topic, "together": 1 << 40}

    def start(number: int, host: Path) -> Callable[[], None]:
        program = ConsumerProgram(folder, f"consumer-{number}", arguments, SHAREGROUP_RUNTIME_DIR=str(host))
        ends.callback(program.kill)
        return program.kill

    return start


def _queries(broker: KafkaBroker, group: str, topic: str, folder: Path, ends: contextlib.ExitStack) -> Start:
    job = ShareJob(directory=folder, bootstrap=broker.bootstrap, group=group, topics=(topic,))

    def start(number: int, host: Path) -> Callable[[], None]:
        program = ends.enter_context(SparkProgram(SHAREGROUP_RUNTIME_DIR=str(host)))
        program.start_query(job.query(f"query{number}", options={"maxOffsetsPerTrigger": str(BATCH), **CONFIGS}))
        return program.kill

    return start


def _next_ms(times: Times, at_ms: int) -> int:
    """The time of the first acquisition after ``at_ms``; the last one's if there is none."""
    return next((time_ms for time_ms, _ in times if time_ms > at_ms), max(at_ms, times[-1][0]))


def _most_in_a_second(times: Times) -> int:
    return max(_within_a_second(times[: index + 1], at_ms) for index, (at_ms, _) in enumerate(times))


def _within_a_second(times: Times, at_ms: int) -> int:
    """Records acquired in the second that ends at ``at_ms``."""
    newest = itertools.takewhile(lambda each: each[0] > at_ms - SECOND_MS, reversed(times))
    return sum(records for _, records in newest)


def _delay_ms(times: Times, killed_ms: list[int]) -> float:
    """The median time from when the rate lets a record be acquired to the next acquisition; 0 if the rate did not hold
    it up. Acquisitions after a kill of the owner do not count."""
    after_kills, delays = {_next_ms(times, at_ms) for at_ms in killed_ms}, list[int]()
    for index in range(1, len(times)):
        at_ms, before = times[index][0], times[:index]
        opens = (each + SECOND_MS for each, _ in before[-RATE:] if before[-1][0] < each + SECOND_MS)
        open_ms = before[-1][0]
        if _within_a_second(before, open_ms) >= RATE:
            open_ms = next(each for each in opens if _within_a_second(before, each) < RATE)
        if at_ms not in after_kills:
            delays.append(at_ms - open_ms)
    return statistics.median(delays)
