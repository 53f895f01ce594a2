"""A worker that reads one task after the other does not grow."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from share_source.executor import consumers
from share_source.executor.reader_choice import VARIABLE
from share_source.executor.task_reader import read_task
from tests.support.imports import ROOT
from tests.support.process_memory import Memory, memory

pytestmark = [pytest.mark.slow, pytest.mark.broker]

MIB = 2**20
MOST_KEPT = 256 * MIB
"""The test fails if the C library keeps more free bytes than this. Measured: about 10 MiB in each of 13 arenas."""


def test_tasks_leave_no_memory_in_use_behind(kafka, topic, task):
    """A task reads 5 MB in records of 10 kB, to the marker of a transaction, and its consumer holds the record after
    that; another one is given up. Their clients are closed, and they leave less than 1 kB: one record, or a
    batch's descriptions of its columns, would be more."""
    name, tasks, value = topic(partitions=2), 40, b"x" * 10_000
    for partition in (0, 1):
        kafka.produce(name, [value] * 300, partition=partition, headers=[("a", b"1")])
        kafka.produce_transaction(name, [value], partition=partition)  # its marker has offset 301
        kafka.produce(name, [value] * 300, partition=partition, headers=[("a", b"1" * 10_000)])
    asked = task({(name, partition): [(0, 99, 1), (150, 301, 2)] for partition in (0, 1)}, include_headers=True)

    def read(times: int) -> None:
        for _ in range(times):
            assert sum(batch.num_rows for batch in read_task(asked)) == 502
            next(read_task(asked)).validate()
            consumers.cache().close()

    def leaves_nothing() -> bool:
        before = memory()
        read(tasks)
        in_use, objects = ((now - then) / tasks for now, then in zip(memory()[:2], before[:2], strict=True))
        print(f"a task leaves {in_use:.0f} bytes, {objects:.1f} objects")
        return in_use < 1_000 and objects < 10

    read(20)
    assert any(leaves_nothing() for _ in range(3))  # glibc's and Python's free lists fill up in the first tasks


def grown(values: Sequence[float]) -> float:
    """How much larger the values of the last quarter are than those of the first, as medians."""
    quarter = len(values) // 4
    return statistics.median(values[-quarter:]) - statistics.median(values[:quarter])


@pytest.mark.soak
@pytest.mark.timeout(4_000)
@pytest.mark.parametrize("arenas", ["", "2"], ids=["all_arenas", "two_arenas"])
def test_a_worker_that_reads_for_long_does_not_grow(kafka, topic, reader, arenas, tmp_path: Path):
    """READERS_SOAK_S=3000 reads for fifty minutes. Bytes in use may grow by half a MiB, resident memory by 16 MiB. With
    all arenas those bytes are left out of the latter that glibc keeps for later (tests.support.process_memory): they
    come and go by tens of MiB with the threads that happened to run together, so that their slope says nothing
    (docs/trust/benchmarks.md); they have a bound of their own. With MALLOC_ARENA_MAX=2 nothing is left out."""
    name, out = topic(partitions=2), tmp_path / "samples"
    for partition in (0, 1):
        kafka.produce(name, [b"x" * 300] * 50_000, partition=partition, headers=[("a", b"1")])
    most_s = os.environ.get("READERS_SOAK_S", "90")
    command = [sys.executable, "-m", "tests.support.long_worker", kafka.bootstrap, name, most_s]
    environment = {**os.environ, VARIABLE: reader, **({"MALLOC_ARENA_MAX": arenas} if arenas else {})}
    with out.open("wb") as samples:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=samples, check=True)
    read = [json.loads(line) for line in out.read_text().splitlines()]
    tasks = read[-1][0]
    in_use, objects, kept, resident, descriptors = zip(
        *(Memory(*of_memory) for _, *of_memory in read[len(read) // 3 :]), strict=True
    )  # the first third is the warm-up
    unexplained = resident if arenas else [size - free for size, free in zip(resident, kept, strict=True)]
    print(
        f"{reader}, {arenas or 'all'} arenas: {tasks} tasks of 90,000 records in {most_s} s; after the first third: "
        f"in use {min(in_use) / MIB:.2f} to {max(in_use) / MIB:.2f} MiB, {grown(in_use) / MIB:+.3f} from its first "
        f"quarter to its last, objects {grown(objects):+.0f}; free and kept {min(kept) / MIB:.0f} to "
        f"{max(kept) / MIB:.0f} MiB, {grown(kept) / MIB:+.1f}; RSS {min(resident) / MIB:.0f} to "
        f"{max(resident) / MIB:.0f} MiB, {grown(resident) / MIB:+.1f}; open descriptors {min(descriptors)} to "
        f"{max(descriptors)}"
    )
    assert grown(in_use) < 0.5 * MIB
    assert grown(objects) < 5_000
    assert grown(unexplained) < 16 * MIB
    assert max(kept) < MOST_KEPT
    assert grown(descriptors) <= 2
