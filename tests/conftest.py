"""Fixtures that every test may use, the order of the tests, and the cleaning up after them."""

import gc
import os
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from sharegroup.demo.embedded_broker import EmbeddedBroker
from tests.support.broker_versions import chosen_version, missing_for
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_broker import KafkaBroker
from tests.support.left_out import LeftOut
from tests.support.scopes import scope_of
from tests.support.time_budget import TimeBudget

# Spark's workers run this Python, whichever way pytest was started.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

# An example may take as long as the machine lets it: how long says nothing of what is tested. All else stays as it was
# set before (tools/mutants.py).
hypothesis.settings.register_profile(
    "sharegroup", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("sharegroup")

TopicFactory = Callable[..., str]

LOG_LINES = 60
"""A failed test is shown with this number of lines from the end of a coordinator's log."""


def pytest_report_header() -> str:
    """The Spark that the tests run on, which `make test-spark` changes, and the broker: `make test-broker`."""
    return f"pyspark: {metadata.version('pyspark')}, broker: {chosen_version()}"


def pytest_configure(config: pytest.Config) -> None:
    is_short = bool(config.getoption("--short"))
    config.pluginmanager.register(LeftOut(short=is_short), "left-out")
    if is_short:
        config.pluginmanager.register(TimeBudget(), "time-budget")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Spare each test the 40 ms that a worker waits for pytest-rerunfailures' server: the plugin writes twice before it
    reads, and TCP keeps the second write back until the first is acknowledged."""
    connection = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="leave the tests out that are marked slow")
    parser.addoption("--soak", action="store_true", help="run the tests marked soak, and no others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `soak` run with --soak alone. The longest modules come last, where all workers but one begin. On an
    older broker (`make test-broker`), and there alone, tests are skipped that need what it has not."""
    soaks = bool(config.getoption("--soak"))
    chosen = [item for item in items if bool(item.get_closest_marker("soak")) == soaks]
    for item in chosen:
        if reason := missing_for(item.nodeid, chosen_version()):
            item.add_marker(pytest.mark.skip(reason=reason))
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    scopes = {item: scope_of(item.nodeid, is_short=bool(config.getoption("--short"))) for item in chosen}
    costs: dict[str, float] = {}
    for item, scope in scopes.items():
        costs[scope] = costs.get(scope, 0) + _seconds(item)
    items[:] = sorted(chosen, key=lambda item: costs[scopes[item]])


def pytest_collection_finish() -> None:
    """Collect garbage less often, and look at the test's own objects alone: the explorer and the simulator make
    millions of objects without cycles, and a quarter of their time went into looking for some."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect what a module's tests left: with so few collections, Kafka clients in it would use up the open files."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that failed the last lines that its coordinators on demand have logged."""
    report = yield
    if report.failed:
        for log in Path(os.environ.get("SHAREGROUP_RUNTIME_DIR", os.devnull)).rglob("coordinator-*.log"):
            if log.stat().st_mtime >= call.start:
                lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
                report.sections.append((f"last lines of {log.name}", "\n".join(lines)))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With `-n` each worker has whole modules, and brokers and Spark sessions of its own."""
    from tests.support.two_ended_scheduling import TwoEndedScheduling  # here: its plugin is needed with `-n` alone

    return TwoEndedScheduling(config, log)


def _seconds(item: pytest.Item) -> float:
    """About as long as a test of its kind takes."""
    uses = set(getattr(item, "fixturenames", ()))
    if item.get_closest_marker("slow"):
        return 40
    if item.get_closest_marker("spark"):
        return 10
    if item.get_closest_marker("broker") or "kafka" in uses:
        return 4
    return 0.1


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """The session's own folder for endpoint and state files; the coordinators that it names end with the session."""
    directory = Path(tempfile.mkdtemp(prefix="sg-"))  # short: a socket's path may lie in it
    runtime, state = directory / "run", directory / "state"
    runtime.mkdir()
    state.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHAREGROUP_RUNTIME_DIR", str(runtime))
        patch.setenv("SHAREGROUP_STATE_DIR", str(state))
        yield runtime
    kill_coordinators(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A real broker, started when the first test asks for it. A test that breaks it must mend it."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def first() -> Iterator[KafkaBroker]:
    """A cluster of the module's own, which a second broker may join."""
    with KafkaBroker(heap="512m") as broker:
        yield broker


@pytest.fixture
def second(first: KafkaBroker) -> Iterator[KafkaBroker]:
    """A second broker of that cluster, which a test may take away."""
    with KafkaBroker(heap="512m", joins=first) as broker:
        yield broker


@pytest.fixture(scope="session")
def embedded() -> Iterator[EmbeddedBroker]:
    """The embedded broker of the test."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> TopicFactory:
    """Makes topics on the real broker: `topic(partitions=2, cleanup_policy="compact")` gives the name of a new one."""

    def create(name: str = "topic", partitions: int = 1, **configs: object) -> str:
        kafka: KafkaBroker = request.getfixturevalue("kafka")
        return kafka.create_topic(f"{name}-{uuid.uuid4().hex[:8]}", partitions, **configs)

    return create


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names nobody else uses: `unique("group")`."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
