"""Fixtures of the tests of the Kafka store, of read tasks, and of those that start coordinators of their own."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import on_demand
from coordinator.protocol.values import AcquiredRange
from coordinator.service.stores.kafka import kafka_store, ownership
from coordinator.service.stores.kafka.state_topic import StateTopic
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import NATIVE
from tests.support.compiled_reader import ensure_compiled
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.read_tasks import reading_with
from tests.support.state_topics import Hosts, state_topic


@pytest.fixture
def log_topic(kafka: KafkaBroker) -> StateTopic:
    """The state topic of this test."""
    topic: StateTopic = state_topic(kafka)
    topic.ensure()
    return topic


@pytest.fixture
def open_at(log_topic: StateTopic) -> Iterator[Hosts]:
    """`open_at("host")`: the store as a coordinator of that host has it; all are closed at the end."""
    with contextlib.closing(Hosts(log_topic)) as hosts:
        yield hosts


@pytest.fixture
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner may be silent for this many seconds; 6 where a test gives no number."""
    patience_s = getattr(request, "param", ownership.PATIENCE_S)
    monkeypatch.setattr(ownership, "PATIENCE_S", patience_s)
    monkeypatch.setattr(kafka_store, "MEMORY_ANSWER_S", min(kafka_store.MEMORY_ANSWER_S, patience_s / 2))


@pytest.fixture
def reader() -> Iterator[str]:
    """The compiled reader, as where nothing is chosen. The tests in readers/ run with each reader."""
    ensure_compiled()
    with reading_with(NATIVE):
        yield NATIVE


@pytest.fixture
def task(kafka: KafkaBroker, reader: str) -> Iterator[Callable[..., ReadTask]]:
    """Makes tasks: `task({("orders", 0): [(first, last, delivery count)]})`. The test starts without consumers, and
    leaves none."""

    def make(ranges: dict[tuple[str, int], list[tuple[int, int, int]]], **options: Any) -> ReadTask:
        kafka_config = {"bootstrap.servers": options.pop("bootstrap", kafka.bootstrap), **options.pop("config", {})}
        topic_id, digest = options.pop("topic_id", ""), options.pop("digest", 0)
        parts = tuple(
            PartitionRanges(topic, partition, tuple(AcquiredRange(*each) for each in of_partition), topic_id, digest)
            for (topic, partition), of_partition in ranges.items()
        )
        return ReadTask(partitions=parts, kafka_config=kafka_config, poll_timeout_ms=60_000, **options)

    consumers.cache().close()
    yield make
    consumers.cache().close()
    assert gc.isenabled()


@pytest.fixture
def runtime(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch, unique: Callable[[str], str]) -> Iterator[Path]:
    """A runtime folder of this test's own; its coordinators end with it."""
    directory = runtime_dir / unique("run")
    directory.mkdir(mode=0o700)
    monkeypatch.setenv(on_demand.RUNTIME_VARIABLE, str(directory))
    yield directory
    kill_coordinators(directory)


@pytest.fixture
def own_runtime(runtime: Path) -> Iterator[Path]:
    """The test's own runtime folder, and a start without kept consumers."""
    consumers.cache().close()
    yield runtime
    consumers.cache().close()


@pytest.fixture
def orders(kafka: KafkaBroker, topic: Callable[[str], str]) -> str:
    """A topic with 20 records in its one partition."""
    name = topic("orders")
    kafka.produce(name, [str(number) for number in range(20)], partition=0)
    return name
