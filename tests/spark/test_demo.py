"""`make demo`, whole, as a person runs it: what it shows, how it ends, and that it leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sharegroup.demo.processes import ENDING, undisturbed
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.signals import hearing
from tests.support.waiting import wait_until

DEMO = [sys.executable, "-m", "sharegroup", "demo"]
STARTING, AT_WORK = "Two Spark programs start", "Both are in the group"
END_WITHIN_S = 120
"""The demo fails after this many seconds: it takes far less."""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The demo's temporary directory: short, since sockets lie in it."""
    directory = Path(tempfile.mkdtemp(prefix="sgd-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def environment(temporary: Path, **more: str) -> dict[str, str]:
    """The demo brings its own places for endpoint and state: the run's are not set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHAREGROUP_")}
    return {**kept, **SPARK_ENVIRONMENT, "TMPDIR": str(temporary), **more}


def processes_of(temporary: Path) -> list[psutil.Process]:
    """The processes that run with the demo's temporary directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(temporary)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def java_processes(temporary: Path) -> int:
    """Return how many of these are Java's."""
    count = 0
    for process in processes_of(temporary):
        with suppress(psutil.Error):
            count += process.name() == "java"
    return count


@pytest.mark.spark
@pytest.mark.soak
def test_the_story_ends_with_ten_passed_checks(temporary):
    """Its parts come in their order: two queries in one group, a kill in mid-batch, the replay, the checks."""
    done = subprocess.run(DEMO, env=environment(temporary), capture_output=True, text=True)
    told = done.stdout
    assert done.returncode == 0, told + done.stderr
    parts = [told.find(part) for part in (AT_WORK, "SIGKILL to query A", "Query A has replayed batch", "✓")]
    assert -1 not in parts and parts == sorted(parts), told
    assert "is broken JSON, so its query rejects it" in told
    assert "with the reason: from_json can't read " in told
    assert 'the payment service had answered "try again"' in told
    assert [line.split()[1] for line in told.splitlines() if line.strip().startswith("together ")] == ["11,964"]
    assert "12,000 orders, 36 of them dead letters, lag 0, 36 archived" in told
    assert told.count("✓") == 10
    assert "✗" not in told
    assert "10 of 10 checks passed" in told
    assert not done.stderr
    assert not list(temporary.iterdir())
    wait_until(lambda: not processes_of(temporary), timeout_s=END_WITHIN_S, what="the demo's processes have ended")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("ending", "when"),
    [
        pytest.param(signal.SIGINT, AT_WORK, id="INT-at-work", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, STARTING, id="TERM-starting"),
        pytest.param(signal.SIGINT, STARTING, id="INT-starting", marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, AT_WORK, id="TERM-at-work", marks=pytest.mark.soak),
    ],
)
def test_an_interrupted_demo_ends_all_its_processes(temporary, ending, when):
    with hearing(ending):
        demo = subprocess.Popen(
            DEMO, env=environment(temporary), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    try:
        assert demo.stdout is not None
        assert any(when in line for line in demo.stdout)
        wait_until(lambda: java_processes(temporary) >= 2, what="Spark has started in both queries")
        demo.send_signal(ending)
        _, errors = demo.communicate(timeout=END_WITHIN_S)
    finally:
        demo.kill()
    assert demo.returncode == 130
    assert errors == "sharegroup: interrupted; all processes of the demo have ended\n"
    assert not list(temporary.iterdir())
    wait_until(lambda: not processes_of(temporary), timeout_s=END_WITHIN_S, what="the demo's processes have ended")


@pytest.mark.parametrize("ending", ENDING)
def test_an_ignored_signal_stays_ignored_during_the_clean_up(ending):
    before = signal.signal(ending, signal.SIG_IGN)
    try:
        with undisturbed():
            signal.raise_signal(ending)
        assert signal.getsignal(ending) is signal.SIG_IGN
    finally:
        signal.signal(ending, before)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "when", [pytest.param(STARTING, id="starting"), pytest.param(AT_WORK, id="at-work", marks=pytest.mark.soak)]
)
def test_the_queries_of_a_killed_demo_end_too(temporary, when):
    demo = subprocess.Popen(DEMO, env=environment(temporary), stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    assert any(when in line for line in demo.stdout)
    wait_until(lambda: java_processes(temporary) >= 2, what="Spark has started in both queries")
    demo.kill()
    demo.communicate()
    wait_until(
        lambda: all(map(is_coordinator, processes_of(temporary))), timeout_s=END_WITHIN_S, what="the queries have ended"
    )
    for left in processes_of(temporary):
        with suppress(psutil.NoSuchProcess):
            left.kill()  # a coordinator without members, which would leave in five minutes


def is_coordinator(process: psutil.Process) -> bool:
    try:
        return "coordinator.service" in process.cmdline()
    except psutil.Error:
        return True


def test_a_query_that_fails_is_named_with_the_path_of_its_log(temporary):
    java = temporary / "java"
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && echo \'version "17.0.1"\' && exit 0\n'
        "echo 'Exception in thread \"main\" the disk is full'\nexit 3\n"
    )
    java.chmod(0o755)
    home = temporary / "home" / "bin"
    home.mkdir(parents=True)
    shutil.move(java, home)
    settings = environment(temporary, JAVA_HOME=str(home.parent))
    done = subprocess.run(DEMO, env=settings, capture_output=True, text=True, timeout=END_WITHIN_S)
    assert done.returncode == 1
    assert "ended by itself" in done.stderr
    assert ': Exception in thread "main" the disk is full (logs: ' in done.stderr
    logs = Path(done.stderr.rpartition("(logs: ")[2].rstrip(")\n"))
    assert {log.name for log in logs.iterdir()} >= {"query-A.log", "query-B.log"}
    wait_until(lambda: not processes_of(temporary), timeout_s=END_WITHIN_S, what="the demo's processes have ended")


@pytest.mark.parametrize(
    ("version", "says"),
    [
        (None, "sharegroup: Java is missing: install Java 17 or newer"),
        ("11.0.2", "sharegroup: Java 11 is too old: install Java 17 or newer"),
    ],
)
def test_a_missing_or_wrong_java_prints_one_line_with_the_remedy(temporary, version, says):
    binaries = temporary / "bin"
    binaries.mkdir()
    if version:
        (binaries / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        (binaries / "java").chmod(0o755)
    settings = environment(temporary, JAVA_HOME=str(temporary))
    done = subprocess.run(DEMO, env=settings, capture_output=True, text=True, timeout=END_WITHIN_S)
    assert done.returncode == 1
    assert done.stderr.startswith(says)
    assert done.stderr.count("\n") == 1
    assert not done.stdout
