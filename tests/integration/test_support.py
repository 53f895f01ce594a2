"""Processes that the tests start end with the tests, also after a bad end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support import process_guard
from tests.support.coordinator_process import kill_coordinators
from tests.support.imports import ROOT
from tests.support.ports import PORTS, free_ports, ports_of_worker
from tests.support.stopped_process import stands_still, stop_process
from tests.support.waiting import wait_until

WAITS_FOR_EVER = "import signal; signal.pause()"


@pytest.fixture
def server():
    """A process in a group of its own, as a test's server is."""
    process = subprocess.Popen([sys.executable, "-c", WAITS_FOR_EVER, "coordinator"], start_new_session=True)
    try:
        # Popen returns when the exec has closed its files: the kernel sets the command line after that.
        wait_until(
            lambda: psutil.Process(process.pid).cmdline()[-1:] == ["coordinator"], what="its command line is set"
        )
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_owners_server_is_ended_and_its_folder_deleted(server, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    # The owner of the guard starts it, tells it about the server, says so, and is killed.
    owner_program = (
        "import subprocess, sys, signal\n"
        "guard = subprocess.Popen([sys.executable, *sys.argv[1:3]], stdin=subprocess.PIPE, text=True)\n"
        "guard.stdin.write(sys.argv[3] + '\\n'); guard.stdin.flush(); print('told', flush=True); signal.pause()\n"
    )
    command = [sys.executable, "-c", owner_program, str(Path(process_guard.__file__)), str(folder), str(server.pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "told\n"
        assert server.poll() is None
        owner.kill()
    wait_until(lambda: server.poll() is not None, what="the guard ended the server")
    wait_until(lambda: not folder.exists(), what="the guard removed the folder")


def test_of_a_process_that_was_stopped_nothing_runs(server):
    stop_process(server.pid)
    assert stands_still(server.pid)
    server.send_signal(signal.SIGCONT)
    wait_until(lambda: not stands_still(server.pid), what="it goes on")


def test_coordinators_that_an_endpoint_file_names_are_ended(server, tmp_path):
    (tmp_path / "endpoint-local.json").write_text(json.dumps({"pid": server.pid}))
    kill_coordinators(tmp_path)
    wait_until(lambda: server.poll() is not None, what="the server has ended")


def test_a_coordinator_that_began_after_its_file_is_somebody_else_s(server, tmp_path):
    endpoint = tmp_path / "endpoint-local.json"
    endpoint.write_text(json.dumps({"pid": server.pid}))
    os.utime(endpoint, (time.time() - 60, time.time() - 60))
    kill_coordinators(tmp_path)
    assert server.poll() is None


def test_a_process_that_is_no_coordinator_is_left_alone(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", WAITS_FOR_EVER])
    try:
        (tmp_path / "endpoint-a.json").write_text(json.dumps({"pid": other.pid}))
        (tmp_path / "endpoint-b.json").write_text("half a fi")
        kill_coordinators(tmp_path)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_wait_that_times_out_names_its_condition():
    with pytest.raises(AssertionError, match="a miracle"):
        wait_until(lambda: False, timeout_s=0.1, what="a miracle")


ENDS_ITS_WORKER = """
import os

def test_first():
    pass

def test_ends_its_worker():
    os._exit(1)

def test_last():
    pass
"""


@pytest.mark.slow
def test_a_test_that_ends_its_worker_fails_once_and_the_rest_runs(tmp_path):
    """As pytest-timeout ends a worker whose test hangs."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    (tmp_path / "test_ends.py").write_text(ENDS_ITS_WORKER)
    (tmp_path / "test_stays.py").write_text("def test_stays():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr


def test_two_workers_of_pytest_choose_different_ports(monkeypatch):
    of_workers = [ports_of_worker(f"gw{number}", 3) for number in range(3)]
    assert len(set().union(*of_workers)) == sum(map(len, of_workers)) > 0.99 * len(PORTS)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw2")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    assert set(free_ports(5)) <= set(of_workers[2])


def test_a_port_is_not_chosen_again_before_its_server_has_started(monkeypatch):
    monkeypatch.setattr("tests.support.ports.ports_of_worker", lambda *_: range(20_000, 20_200))
    chosen = [port for _ in range(40) for port in free_ports(3)]
    assert len(set(chosen)) == len(chosen)
