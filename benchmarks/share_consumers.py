"""A ShareConsumer against confluent's on the same broker, in one run: one consumer in a process of its own, in implicit
mode, with its defaults; and slow work, which many consumers share."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.report import Row
from benchmarks.topics import Topic
from tests.support.kafka_broker import KafkaBroker

NATIVE, OURS, ORDERED, OURS_LARGE = "native", "ours", "ours, in order", "ours, 5,000 a poll"
"""The kinds of consumers. A native group acquires the producer's batches whole, thousands of records in one poll; ours
cuts at max.poll.records, which the last kind raises to ``LARGE_POLL``. The third kind's group has
share.order=partition."""
LARGE_POLL = 5_000
TIMES_NATIVE = 1.5
"""The target: records a second of ours, as a multiple of confluent's."""
POLL_S = 1.0
SILENT_S = 30.0
"""A measurement fails after this many seconds without a record."""
WORK_S, WORKERS, WORK_PARTITIONS = 0.005, 60, 6
"""Slow work: seconds for a record, number of consumers, number of partitions."""
WARM_UP_S = 10.0
"""Slow work is measured after this many seconds: members have joined and have partitions then."""
OF_THE_RATE = 0.9
"""The target: ours, as a share of the rate that ``WORKERS`` workers can have."""


class Read(NamedTuple):
    """The records of one measurement, the seconds from the first poll's records to the last one's, the CPU time of the
    process, and the polls that brought records."""

    records: int
    seconds: float
    cpu_s: float
    polls: int = 0

    @property
    def rate(self) -> float:
        return self.records / self.seconds

    @property
    def us_each(self) -> float:
        return 1e6 * self.cpu_s / self.records


def share_consumer_rows(broker: KafkaBroker, topic: Topic, *, records: int, rounds: int) -> list[Row]:
    """Measure both classes in turns, each time in a new group from the topic's first record on."""
    found: dict[str, list[Read]] = {kind: [] for kind in (NATIVE, OURS, ORDERED, OURS_LARGE)}
    for _ in range(rounds):
        for kind, reads in found.items():
            reads.append(_alone(_read, kind, broker.bootstrap, _new_group(broker, kind), topic.name, records))
    native, ours, ordered, large = (statistics.median(read.rate for read in reads) for reads in found.values())
    each = "; ".join(
        f"{kind}: {statistics.median(read.us_each for read in reads):.1f} µs CPU a record, "
        f"{statistics.median(read.records / read.polls for read in reads):,.0f} records a poll"
        for kind, reads in found.items()
    )
    how = f"implicit mode, {topic.value_bytes} B, {records:,} records, {rounds} rounds in turns; {each}"
    return [
        Row(name="ShareConsumer: records/s, confluent's", value=native),
        Row(name="ShareConsumer: records/s, ours", value=ours),
        Row(name="ShareConsumer: records/s, ours, share.order=partition", value=ordered),
        Row(name="ShareConsumer: records/s, ours, max.poll.records=5000", value=large),
        Row(name="ShareConsumer: ours / confluent's", value=ours / native, at_least=TIMES_NATIVE, how=how),
    ]


def skewed_rows(broker: KafkaBroker, *, records: int) -> list[Row]:
    """Measure two consumers that one thread polls in turns, where one partition of six has all records: the poll of the
    consumer without records holds up the other one's."""
    rates = {}
    for kind in (NATIVE, OURS):
        topic = broker.create_topic(f"skewed-{kind}-{uuid.uuid4().hex[:8]}", WORK_PARTITIONS)
        broker.produce(topic, [b"v" * 200] * records, partition=0)
        rates[kind] = _alone(_in_turns, kind, broker.bootstrap, _new_group(broker, kind), topic, records).rate
    how = f"two consumers in turns, polls of {POLL_S:.0f} s; one partition of {WORK_PARTITIONS} has {records:,} records"
    return [
        *(Row(name=f"ShareConsumer: records/s, skewed, {kind}", value=rate) for kind, rate in rates.items()),
        Row(name="ShareConsumer: skewed, ours / confluent's", value=rates[OURS] / rates[NATIVE], at_least=1.0, how=how),
    ]


def slow_work_rows(broker: KafkaBroker, *, seconds: int) -> list[Row]:
    """Measure 60 consumers that need 5 ms a record, as a share of the rate that they can have."""
    rate = WORKERS / WORK_S
    asleep = _alone(_sleep, seconds).rate / rate
    rows = [Row(name="ShareConsumer: share of the rate of slow work, threads that only sleep", value=asleep)]
    for kind in (NATIVE, OURS):
        topic = broker.create_topic(f"slow-{kind}-{uuid.uuid4().hex[:8]}", WORK_PARTITIONS)
        each = int(1.2 * rate * (seconds + WARM_UP_S)) // WORK_PARTITIONS
        for partition in range(WORK_PARTITIONS):
            broker.produce(topic, [b"v" * 200] * each, partition=partition)
        read = _alone(_work, kind, broker.bootstrap, _new_group(broker, kind), topic, seconds)
        target = OF_THE_RATE if kind == OURS else None
        how = f"{WORKERS} consumers, {WORK_PARTITIONS} partitions, {1000 * WORK_S:.0f} ms a record, {seconds} s"
        name = f"ShareConsumer: share of the rate of slow work, {kind}"
        rows.append(Row(name=name, value=read.rate / rate, at_least=target, how=how))
    return rows


def _new_group(broker: KafkaBroker, kind: str) -> str:
    """A group that begins at the earliest record."""
    group = f"benchmark-{uuid.uuid4().hex[:8]}"
    if kind == NATIVE:
        entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        for done in broker.admin.incremental_alter_configs([resource]).values():
            done.result(30)
    return group


def _alone(measured: Callable[..., Read], *arguments: Any) -> Read:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(measured, *arguments).result()


# --- in a process of its own


def _consumer(kind: str, bootstrap: str, group: str, topic: str) -> Any:
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    if kind == NATIVE:
        from confluent_kafka import ShareConsumer

        consumer = ShareConsumer(config)
    else:
        from sharegroup import ShareConsumer as OwnShareConsumer

        more = {OURS_LARGE: {"max.poll.records": LARGE_POLL}, ORDERED: {"share.order": "partition"}}.get(kind, {})
        own = {"share.auto.offset.reset": "earliest", **more}
        consumer = OwnShareConsumer({**config, **own})
    consumer.subscribe([topic])
    return consumer


def _read(kind: str, bootstrap: str, group: str, topic: str, records: int) -> Read:
    """Reads ``records`` records and their values. The time begins after the first poll, whose records do not count."""
    consumer, size = _consumer(kind, bootstrap, group, topic), 0
    while not consumer.poll(POLL_S):
        pass
    began_s, cpu_s, count, polls, last_s = time.perf_counter(), time.process_time(), 0, 0, time.perf_counter()
    while count < records:
        messages = consumer.poll(POLL_S)
        for message in messages:
            size += len(message.value())
        count, polls = count + len(messages), polls + bool(messages)
        last_s = time.perf_counter() if messages else last_s
        assert time.perf_counter() - last_s < SILENT_S, f"{kind}: no record for {SILENT_S} s after {count}"
    read = Read(count, last_s - began_s, time.process_time() - cpu_s, polls)
    consumer.close()
    assert size
    return read


def _in_turns(kind: str, bootstrap: str, group: str, topic: str, records: int) -> Read:
    """Reads all records with two consumers, which have joined by then. The records of the first polls do not count."""
    consumers = [_consumer(kind, bootstrap, group, topic) for _ in range(2)]
    left = records
    while left == records:
        left -= sum(len(consumer.poll(POLL_S)) for consumer in consumers)
    began_s, cpu_s, counted, last_s = time.perf_counter(), time.process_time(), left, time.perf_counter()
    while left > 0:
        for consumer in consumers:
            count = len(consumer.poll(POLL_S))
            left, last_s = left - count, time.perf_counter() if count else last_s
        assert time.perf_counter() - last_s < SILENT_S, f"{kind}: no record for {SILENT_S} s, {left} are left"
    read = Read(counted, last_s - began_s, time.process_time() - cpu_s)
    for consumer in consumers:
        consumer.close()
    return read


def _sleep(seconds: int) -> Read:
    """The same threads without records: a busy machine wakes them late, and more of the rate can't be had."""
    counts, ended = [0] * WORKERS, threading.Event()

    def sleep(number: int) -> None:
        while not ended.is_set():
            time.sleep(WORK_S)
            counts[number] += 1

    for number in range(WORKERS):
        threading.Thread(target=sleep, args=(number,), daemon=True).start()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    ended.wait(seconds)
    read = Read(sum(counts), time.perf_counter() - began_s, time.process_time() - cpu_s)
    ended.set()
    return read


def _work(kind: str, bootstrap: str, group: str, topic: str, seconds: int) -> Read:
    """Many consumers, a thread for each."""
    counts, ended = [0] * WORKERS, threading.Event()

    def work(number: int) -> None:
        consumer = _consumer(kind, bootstrap, group, topic)
        while not ended.is_set():
            for _ in consumer.poll(POLL_S):
                time.sleep(WORK_S)
                counts[number] += 1
                if ended.is_set():
                    break
        consumer.close()

    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    ended.wait(WARM_UP_S)
    before, began_s, cpu_s = sum(counts), time.perf_counter(), time.process_time()
    ended.wait(seconds)
    read = Read(sum(counts) - before, time.perf_counter() - began_s, time.process_time() - cpu_s)
    ended.set()
    for worker in workers:
        worker.join(60)
    return read
