"""A worker that reads the same task again and again, as a Spark executor's Python process does, and tells its memory.

``python -m tests.support.long_worker ADDRESS TOPIC SECONDS``: the topic has two partitions of 50,000 records. After
each ten tasks it closes its clients, and prints a line of JSON: the tasks so far, and then a ``Memory``'s fields.
"""

from __future__ import annotations

import json
import sys
import time

from coordinator.protocol.values import AcquiredRange
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_task
from tests.support.process_memory import memory

TASKS = 10
RANGES = (((0, 49_999, 1),), ((0, 9_999, 1), (20_000, 49_999, 2)))
RECORDS = 90_000


def main(address: str, topic: str, seconds: float) -> None:
    parts = tuple(
        PartitionRanges(topic, partition, tuple(AcquiredRange(*each) for each in ranges), "")
        for partition, ranges in enumerate(RANGES)
    )
    task = ReadTask(
        partitions=parts, kafka_config={"bootstrap.servers": address}, poll_timeout_ms=600_000, include_headers=True
    )
    count, end_s = 0, time.monotonic() + seconds
    while time.monotonic() < end_s:
        for _ in range(TASKS):
            assert sum(batch.num_rows for batch in read_task(task)) == RECORDS
        count += TASKS
        consumers.cache().close()
        print(json.dumps((count, *memory())), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
