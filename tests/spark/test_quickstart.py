"""README's first program against `sharegroup quickstart`, as a person runs both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress

import psutil
import pyarrow.parquet as pq
import pytest

from sharegroup.quickstart_broker import RECORDS
from tests.support.imports import ROOT, python_path
from tests.support.java_options import SPARK_ENVIRONMENT
from tests.support.waiting import wait_until
from tools.bootstrap import SPARK_WITHOUT_START

pytestmark = [pytest.mark.slow, pytest.mark.spark]

COMMAND = [sys.executable, "-m", "sharegroup", "quickstart"]


def written(folder):
    """Rows of the batches that are complete: Spark writes _SUCCESS last."""
    done = [path.parent for path in folder.glob("output/billing-1/batch=*/_SUCCESS")]
    return [row for batch in done for file in batch.glob("*.parquet") for row in pq.read_table(file).to_pylist()]


def end(process):
    for each in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
        with suppress(psutil.NoSuchProcess):
            each.terminate()
    process.wait(60)


@pytest.mark.parametrize("version", ["", *(pytest.param(v, marks=pytest.mark.soak) for v in SPARK_WITHOUT_START)])
def test_the_first_program_reads_all_records_of_the_quickstart(tmp_path, version):
    """On the Spark that the tests run on; and, in the soak, on older ones."""
    older = [str(ROOT / ".build" / f"pyspark-{version}")] if version else []
    path = os.pathsep.join([*older, python_path()])
    environment = {**os.environ, **SPARK_ENVIRONMENT, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    broker = subprocess.Popen([*COMMAND, "--port", "0"], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        port = re.search(r"localhost:(\d+)", next(broker.stdout))[1]
        made = subprocess.run(
            [*COMMAND, "--port", port, "--print-program"], capture_output=True, text=True, env=environment, check=True
        )
        (tmp_path / "billing.py").write_text(made.stdout)
        with (tmp_path / "log").open("w") as log:
            program = subprocess.Popen(
                [sys.executable, "billing.py"], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )
        try:
            wait_until(lambda: len(written(tmp_path)) >= RECORDS, timeout_s=300, what="all records are written")
        finally:
            end(program)
    finally:
        broker.terminate()
        broker.wait(60)
        broker.stdout.close()
    rows = written(tmp_path)
    assert len(rows) == len({(row["partition"], row["offset"]) for row in rows}) == RECORDS
