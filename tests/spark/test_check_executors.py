"""`sharegroup check --master` asks executors whether they have this sharegroup, with what it imports there."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.support.standalone import sharegroup

pytestmark = [pytest.mark.slow, pytest.mark.spark]

IN_A_SESSION = """
from unittest import mock
from sharegroup.check.executors import of_executors

def run(spark):
    with mock.patch.object(type(spark), "stop"):  # other tests use this session
        return [str(each) for each in of_executors("local[2]")]
"""


def of_executors(tmp_path: Any, master: str, **environ: str) -> list[dict[str, str | None]]:
    """The lines about executors; the options are those of no query."""
    path = tmp_path / "options.json"
    path.write_text("{}")
    done = sharegroup("check", "--options", path, "--master", master, "--json", **environ)
    return [each for each in json.loads(done.stdout) if each["side"] == "executors"]


def test_executors_with_this_sharegroup_are_ok(shared_program):
    (found,) = shared_program.get().run(IN_A_SESSION)
    assert found.startswith("executors on ") and "have sharegroup " in found


def test_executors_without_the_package_are_named(tmp_path):
    bare = tmp_path / "python-without-packages"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    (found,) = of_executors(tmp_path, "local[2]", PYSPARK_PYTHON=str(bare), PYTHONPATH="")
    assert found["error"] == "ExecutorsUnfit"
    assert "No module named" in str(found["what"])
