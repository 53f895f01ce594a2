"""The read path alone: ``read_task`` on a real broker with the compiled reader and with Python's, in one process and in
two, against ``consume()`` into Arrow.

    python -m benchmarks.read_path [--records 250000] [--value-bytes 200] [--compression zstd] [--rounds 5]
                                   [--set fetch.message.max.bytes=8388608 ...] [--against check.crcs=false]

The ways take turns, and medians are shown, since the broker runs on the same cores. Each round reads a topic of four
partitions in batches of 100,000, as a query would: each batch goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from coordinator.protocol.values import AcquiredRange
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import NATIVE, PYTHON, VARIABLE
from share_source.executor.task_reader import read_task
from tests.support.kafka_broker import KafkaBroker

PARTITIONS = 4
BATCH = 25_000
Config = dict[str, str]


class Figures(NamedTuple):
    """Records a second; CPU of the reading threads alone, and with librdkafka's, ns a record."""

    rate: float
    thread_ns: float
    process_ns: float


def read_in_batches(topic: str, partitions: list[int], records: int, config: Config) -> int:
    """Read these partitions with ``read_task``, one batch after the other."""
    count = 0
    for first in range(0, records, BATCH):
        ranges = (AcquiredRange(first, min(first + BATCH, records) - 1, 1),)
        task = ReadTask(partitions=tuple(PartitionRanges(topic, p, ranges) for p in partitions), kafka_config=config)
        count += sum(batch.num_rows for batch in read_task(task))
    return count


def read_natively(topic: str, partitions: list[int], records: int, config: Config) -> int:
    """``read_in_batches`` with the compiled reader."""
    os.environ[VARIABLE] = NATIVE
    return read_in_batches(topic, partitions, records, config)


def read_with_python(topic: str, partitions: list[int], records: int, config: Config) -> int:
    """``read_in_batches`` with Python's reader."""
    os.environ[VARIABLE] = PYTHON
    return read_in_batches(topic, partitions, records, config)


def consume_into_arrow(topic: str, partitions: list[int], records: int, config: Config) -> int:
    """The way that docs/trust/facts.md measured (R1, R2): large prefetch settings, ``consume(10000)``, key, value,
    offset and timestamp."""
    consumer = Consumer(
        {
            "group.id": "read-path",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "queued.min.messages": 100_000,
            "fetch.message.max.bytes": 8 << 20,
            **config,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    count = 0
    while count < records * len(partitions):
        messages = consumer.consume(10_000, 1.0)
        columns: list[list[Any]] = [
            [m.key() for m in messages],
            [m.value() for m in messages],
            [m.offset() for m in messages],
            [m.timestamp()[1] for m in messages],
        ]
        count += pa.RecordBatch.from_arrays([pa.array(c) for c in columns], list("kvot")).num_rows
    consumer.close()
    return count


def _worker(way: Callable[..., int], arguments: tuple[Any, ...], start: Barrier, answers: Any) -> None:
    start.wait()
    began_s, began_thread_s, began_cpu_s = time.perf_counter(), time.thread_time(), time.process_time()
    count = way(*arguments)
    cpu_s = (time.thread_time() - began_thread_s, time.process_time() - began_cpu_s)
    answers.put((count, time.perf_counter() - began_s, *cpu_s))
    consumers.cache().close()
    gc.collect()


def measure(way: Callable[..., int], processes: int, topic: str, records: int, config: Config) -> Figures:
    """Return the rate of all processes together, from a fresh start."""
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(processes + 1), context.Queue()
    shares = [list(range(PARTITIONS))[n::processes] for n in range(processes)]
    running = [
        context.Process(target=_worker, args=(way, (topic, share, records, config), start, answers)) for share in shares
    ]
    for each in running:
        each.start()
    start.wait()
    done = [answers.get(timeout=300) for _ in running]
    for each in running:
        each.join()
    count = sum(each[0] for each in done)
    assert count == records * PARTITIONS, count
    thread_ns, process_ns = (sum(each[n] for each in done) / count * 1e9 for n in (2, 3))
    return Figures(rate=count / max(each[1] for each in done), thread_ns=thread_ns, process_ns=process_ns)


def ratios(results: dict[tuple[str, int], list[Figures]]) -> None:
    """Print the medians over rounds of the compiled reader's figures through those of Python's."""
    for processes in (1, 2):
        native, python = results["native", processes], results["python", processes]
        rate, thread, cpu = (
            statistics.median(a[n] / b[n] for a, b in zip(native, python, strict=True)) for n in range(3)
        )
        print(
            f"native / python, {processes} process(es): records/s {rate:.2f}, CPU {cpu:.2f},"
            f" of the reading thread {thread:.2f}"
        )


def against(results: dict[tuple[str, int], list[Figures]], name: str, setting: str) -> None:
    """Print the medians over rounds of a reader's figures through those that it has with another setting."""
    pairs = list(zip(results[name, 1], results[f"{name} {setting}", 1], strict=True))
    for n, figure in ((0, "records/s"), (2, "CPU")):
        of_rounds = [a[n] / b[n] for a, b in pairs]
        low, high = min(of_rounds), max(of_rounds)
        print(f"{name} / with {setting}: {figure} {statistics.median(of_rounds):.3f} ({low:.2f} to {high:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read_path", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=250_000, help="in each of the four partitions")
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="client settings of both readers")
    parser.add_argument("--against", metavar="KEY=VALUE", help="both readers read a second time, with this setting")
    given = parser.parse_args()
    ways = {"native": read_natively, "python": read_with_python, "consume": consume_into_arrow}
    if given.against:
        ways = {name: ways[name] for name in ("native", "python")}
    with KafkaBroker(java_options=()) as broker:
        topic = broker.create_topic(partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            words = [(b"%012d" % n * (given.value_bytes // 12 + 1))[: given.value_bytes] for n in range(given.records)]
            broker.produce(topic, words, partition=partition, compression_type=given.compression)
        config = {"bootstrap.servers": broker.bootstrap, "log_level": "0"}
        tuned = {**config, **dict(each.split("=", 1) for each in given.set)}
        results: dict[tuple[str, int], list[Figures]] = {}
        for _ in range(given.rounds):
            for name, way in ways.items():
                for processes in (1, 2):
                    settings = config if way is consume_into_arrow else tuned
                    figures = measure(way, processes, topic, given.records, settings)
                    results.setdefault((name, processes), []).append(figures)
                if given.against:
                    settings = {**tuned, **dict([given.against.split("=", 1)])}
                    figures = measure(way, 1, topic, given.records, settings)
                    results.setdefault((f"{name} {given.against}", 1), []).append(figures)
    ratios(results)
    for name in ("native", "python") if given.against else ():
        against(results, name, given.against)
    for (name, processes), figures in results.items():
        rates, thread_ns, process_ns = zip(*figures, strict=True)
        print(
            f"{name:10} {processes} process(es): {statistics.median(rates) / 1e6:.2f} M records/s"
            f" ({min(rates) / 1e6:.2f} to {max(rates) / 1e6:.2f}); CPU {statistics.median(process_ns):.0f} ns a record,"
            f" {statistics.median(thread_ns):.0f} of them in the reading thread"
        )


if __name__ == "__main__":
    main()
