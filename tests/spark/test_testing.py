"""The programs of docs/do/test-your-query.md, as the test files that a user writes, in a project of their own."""

from __future__ import annotations

import pytest

from tests.support.imports import python_path
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.leftovers import OwnFolders
from tests.support.readme import run_test_files
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark]

PAGE = "docs/do/test-your-query.md"
PROGRAMS = {"conftest.py": "Set up", "test_query.py": "A query", "test_sink.py": "A sink with outcomes"}


def test_the_pages_programs_with_spark_pass_and_leave_nothing(tmp_path):
    folders, project = OwnFolders(tmp_path), tmp_path / "project"
    project.mkdir()
    env = {**SPARK_ENVIRONMENT, **folders.environment, "PYTHONPATH": python_path()}
    run_test_files(PAGE, PROGRAMS, project, env, "--durations=0", "--basetemp", str(tmp_path / "base"))
    wait_until(lambda: not folders.processes(), what="Spark's JVM, the last process, has ended")
    assert [
        path for path in folders.files() if not path.startswith(str(folders.temporary)) or "sharegroup-" in path
    ] == []
