"""README's programs against `sharegroup quickstart`, as a person runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from sharegroup.demo.embedded_broker import PARTITIONS_PER_TOPIC
from sharegroup.demo.orders import is_broken
from sharegroup.demo.programs import READING, SINK
from sharegroup.quickstart.broker import DEAD_LETTERS, RECORDS
from tests.support.printed_program import end, environment_of, written
from tests.support.waiting import wait_until
from tools.bootstrap import SPARK_WITHOUT_START

pytestmark = [pytest.mark.slow, pytest.mark.spark]

COMMAND = [sys.executable, "-m", "sharegroup", "quickstart"]


@contextmanager
def running(folder, which, environment):
    """The quickstart without new records, and the program that it prints. Yields the broker's address."""
    command = [*COMMAND, "--port", "0", "--rate", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as broker:
        try:
            address = re.search(r"localhost:\d+", next(broker.stdout))[0]
            port = address.partition(":")[2]
            made = subprocess.run(
                [*COMMAND, "--port", port, "--print-program", which],
                capture_output=True,
                text=True,
                env=environment,
                check=True,
            )
            (folder / "program.py").write_text(made.stdout)
            with (folder / "log").open("w") as log:
                started = [sys.executable, "program.py"]
                program = subprocess.Popen(started, cwd=folder, env=environment, stdout=log, stderr=log)
            try:
                yield address
            finally:
                end(program)
        finally:
            broker.terminate()


@pytest.mark.parametrize("version", ["", *(pytest.param(v, marks=pytest.mark.soak) for v in SPARK_WITHOUT_START)])
def test_the_first_program_reads_all_records_of_the_quickstart(tmp_path, version):
    """On the Spark that the tests run on; and, in the soak, on older ones."""
    with running(tmp_path, READING, environment_of(version)):
        wait_until(lambda: len(written(tmp_path)) >= RECORDS, timeout_s=300, what="all records are written")
    rows = written(tmp_path)
    assert len(rows) == len({(row["partition"], row["offset"]) for row in rows}) == RECORDS


def test_the_sinks_program_leaves_the_broken_orders_as_dead_letters(tmp_path):
    broken = sum(map(is_broken, range(RECORDS)))
    with running(tmp_path, SINK, environment_of()) as address:
        reader = Consumer({"bootstrap.servers": address, "group.id": "g", "log_level": 0})
        try:
            parts = [TopicPartition(DEAD_LETTERS, number) for number in range(PARTITIONS_PER_TOPIC)]
            wait_until(
                lambda: sum(reader.get_watermark_offsets(part, timeout=60)[1] for part in parts) >= broken,
                timeout_s=300,
                what="all broken orders are dead letters",
            )
        finally:
            reader.close()
