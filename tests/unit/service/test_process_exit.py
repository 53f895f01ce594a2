"""A process ends with the status of what it did, whatever its libraries would do at an ordinary end."""

import subprocess
import sys

import pytest

from tests.support.imports import ROOT

ABORTS_AT_AN_ORDINARY_END = "import atexit, os, sys; atexit.register(os.abort); "


def ended(program, *arguments):
    command = [sys.executable, "-c", ABORTS_AT_AN_ORDINARY_END + program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_end_process_flushes_output_and_logs_and_runs_nothing_else(tmp_path):
    found = ended(
        "from coordinator.service.process.process_exit import end_process; import logging, logging.handlers;"
        "file = logging.FileHandler(sys.argv[1]); late = logging.handlers.MemoryHandler(100, target=file);"
        "logging.getLogger().addHandler(late); logging.error('logged'); print('printed', end='');"
        "end_process(3)",
        str(tmp_path / "log"),
    )
    assert (found.returncode, found.stdout, found.stderr) == (3, "printed", "")
    assert (tmp_path / "log").read_text() == "logged\n"


def test_a_closed_output_pipe_changes_no_exit_status():
    program = (
        "from coordinator.service.process.process_exit import end_process;"
        "reading, writing = os.pipe(); os.close(reading); sys.stdout = os.fdopen(writing, 'w');"
        "print('to nobody'); end_process(0)"
    )
    assert ended(program).returncode == 0


@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["coordinatr"], 2)])
def test_the_command_line_ends_through_end_process(arguments, status):
    assert ended("from sharegroup.__main__ import main; main()", *arguments).returncode == status


def test_a_coordinator_on_demand_ends_through_end_process():
    command = [sys.executable, "-c", ABORTS_AT_AN_ORDINARY_END + RUN_AS_MAIN]
    found = subprocess.run(command, cwd=ROOT, input="no settings", capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert "launch settings" in found.stdout


RUN_AS_MAIN = "import runpy; runpy.run_module('coordinator.service', run_name='__main__')"
