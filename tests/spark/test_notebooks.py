"""Each notebook from top to bottom, in a kernel of its own: it says what stands in it, and its numbers are right."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.support.imports import ROOT
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.notebooks import NOTEBOOKS, texts
from tests.support.spark_program import SLOW_START

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800)]

NUMBERS = {
    "01_first_steps": {"records": 20_000, "twice": 0, "lag": 0},
    "02_watching_a_group": {"lag": 0, "released and delivered again": True, "given up": True, "in flight": 0},
    "03_poison_and_dead_letters": {"billed": 17, "different orders": 17, "rejected": 3, "redriven": 1, "lag": 0},
    "04_scoring_with_a_slow_service": {
        "scored": 295,
        "different texts": 295,
        "turned away or not answered at first": 33,
        "dead letters": 5,
        "lag": 0,
    },
}


LONG = {"02_watching_a_group", "03_poison_and_dead_letters", "04_scoring_with_a_slow_service"}
"""`make soak` runs these: the last two start a query six times, and wait for a slow service."""


def notebooks():
    for path in NOTEBOOKS:
        marks = [pytest.mark.soak] if path.stem in LONG else []
        yield pytest.param(path, id=path.stem, marks=marks)


def run(name, folder):
    command = [sys.executable, ROOT / "tools" / "run_notebooks.py", "--to", folder, name]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **SPARK_ENVIRONMENT})
    if done.returncode and SLOW_START in done.stderr:
        return run(name, folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", list(notebooks()))
def test_a_notebook_prints_its_committed_outputs_again(path, tmp_path):
    found = texts(run(path.name, tmp_path))
    assert found == texts(json.loads(path.read_text(encoding="utf-8")))
    assert ast.literal_eval(found[-1].splitlines()[-1]) == NUMBERS[path.stem]
