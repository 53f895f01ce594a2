"""Fixtures of the tests with Spark: a program that most share, programs of a test's own, and the jobs they run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.group_state import forget_clients
from tests.support.kafka_broker import KafkaBroker
from tests.support.query_spec import QuerySpec
from tests.support.share_job import ShareJob, numbers
from tests.support.spark_program import RunningQuery, SparkProgram

JobFactory = Callable[..., ShareJob]
QueryStart = Callable[..., RunningQuery]
ProgramFactory = Callable[..., SparkProgram]


class SharedProgram:
    """A program that is started anew when a test killed it."""

    def __init__(self) -> None:
        self._program: SparkProgram | None = None

    def get(self) -> SparkProgram:
        if self._program is None or not self._program.alive:
            self.close()
            self._program = SparkProgram()
        return self._program

    def close(self) -> None:
        if self._program is not None:
            self._program.close()


@pytest.fixture(scope="session")
def shared_program(runtime_dir: Path) -> Iterator[SharedProgram]:
    """One Spark session for all tests that need no more."""
    shared = SharedProgram()
    yield shared
    shared.close()


@pytest.fixture
def start(shared_program: SharedProgram) -> Iterator[QueryStart]:
    """Starts queries in the shared session: `start(job.query("a"))`; they end with the test."""
    running: list[RunningQuery] = []

    def start_one(spec: QuerySpec) -> RunningQuery:
        running.append(shared_program.get().start_query(spec))
        return running[-1]

    yield start_one
    for query in running:
        query.spec.release()
        if not query.over():
            query.stop()


@pytest.fixture
def program() -> Iterator[ProgramFactory]:
    """Starts Spark programs of the test's own, which it may kill; they end with the test."""
    with ExitStack() as programs:
        yield lambda **fields: programs.enter_context(SparkProgram(**fields))


@pytest.fixture
def orders(kafka: KafkaBroker, topic: Callable[[str], str]) -> str:
    """A topic with 100 records."""
    name = topic("orders")
    kafka.produce(name, numbers(100))
    return name


@pytest.fixture
def job(kafka: KafkaBroker, unique: Callable[[str], str]) -> Iterator[JobFactory]:
    """Makes the jobs of a test: `job(topic, **{"maxOffsetsPerTrigger": "100"})`."""
    directory = Path(tempfile.mkdtemp(prefix="sgo-"))

    def make(*topics: str, bootstrap: str = "", **options: Any) -> ShareJob:
        group = unique("group")
        given = {key: str(value) for key, value in options.items()}
        return ShareJob(
            directory=directory / group,
            bootstrap=bootstrap or kafka.bootstrap,
            admin_bootstrap=kafka.bootstrap,
            group=group,
            topics=topics,
            options=given,
        )

    yield make
    forget_clients()
    shutil.rmtree(directory, ignore_errors=True)
