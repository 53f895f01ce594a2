"""The programs of docs/do/test-your-query.md, as the test files that a user writes, in a project of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.imports import python_path
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.leftovers import OwnFolders
from tests.support.readme import printed
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PAGE = "docs/do/test-your-query.md"
PROGRAMS = {"conftest.py": "Set up", "test_query.py": "A query", "test_sink.py": "A sink with outcomes"}


def test_the_pages_programs_with_spark_pass_and_leave_nothing(tmp_path):
    folders, project = OwnFolders(tmp_path), tmp_path / "project"
    project.mkdir()
    for name, heading in PROGRAMS.items():
        (project / name).write_text(printed(PAGE, heading))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--durations=0",
            "--basetemp",
            str(tmp_path / "base"),
            *PROGRAMS,
        ],
        cwd=project,
        env={**os.environ, **SPARK_ENVIRONMENT, **folders.environment, "PYTHONPATH": python_path()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: not folders.processes(), what="Spark's JVM, the last process, has ended")
    assert [
        path for path in folders.files() if not path.startswith(str(folders.temporary)) or "sharegroup-" in path
    ] == []
