"""maxBytesPerTrigger: how many records a query asks for, and which records the driver reads to know it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import AcquiredRange
from share_source.driver import batch_bytes
from share_source.driver.batch_bytes import FIRST_RECORDS, SAMPLE_RECORDS, BatchBytes, sample_of
from share_source.errors import ReadFailed
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from tests.support.group_driver import GroupDriver
from tests.support.source_driver import DriverClient, reading


class Brokers:
    """Stands where read_batches does: each record has a value of ``size`` bytes, or reading fails with ``error``."""

    def __init__(self, size: int) -> None:
        self.size, self.error = size, None
        self.tasks: list[ReadTask] = []

    def read(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        self.tasks.append(task)
        if self.error is not None:
            raise self.error
        for part in task.partitions:
            values = [bytes(self.size)] * part.records
            yield pa.record_batch({"value": pa.array(values, pa.binary()), "offset": list(range(part.records))})


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers(1_000)
    monkeypatch.setattr(batch_bytes, "read_batches", brokers.read)
    return brokers


def asked(client: DriverClient) -> list[int | None]:
    return [request.max_records for request in client.of(NextPlan)]


def test_a_request_is_limited_by_the_mean_size_of_the_batches_before(brokers: Brokers) -> None:
    client = DriverClient(GroupDriver(records=5_000))
    with reading(client, maxBytesPerTrigger="100400") as source:
        end = source.latestOffset(start := source.initialOffset(), source.getDefaultReadLimit())
        source.partitions(start, end)
        next_end = source.latestOffset(end, source.getDefaultReadLimit())
        brokers.size = 3_000
        source.partitions(end, next_end)
        source.latestOffset(next_end, source.getDefaultReadLimit())
    assert asked(client) == [FIRST_RECORDS, 100, 50], "1,004 and 3,004 bytes each: Arrow has 4 of its own"
    assert [sum(part.records for part in task.partitions) for task in brokers.tasks] == [SAMPLE_RECORDS] * 2


def test_a_replayed_plan_is_the_same_and_measured(brokers: Brokers) -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset(start := source.initialOffset(), ReadMaxRows(60))
        (before,) = source.partitions(start, end)
    assert brokers.tasks == [], "without the option nothing is read"
    with reading(client, maxBytesPerTrigger="2008") as source:
        (task,) = source.partitions(start, end)
        assert task.task.partitions[0].records == before.task.partitions[0].records == 60  # type: ignore[attr-defined]
        source.latestOffset(end, source.getDefaultReadLimit())
    assert asked(client)[-1] == 2


def test_a_huge_record_is_taken_alone_and_the_smaller_limit_holds(brokers: Brokers) -> None:
    limit = BatchBytes(10)
    assert (limit.most(None), limit.most(7), BatchBytes(None).most(7)) == (FIRST_RECORDS, 7, 7)
    limit.measure(ReadTask(partitions=(part(0, 10),), kafka_config={}, isolation_level="read_uncommitted"))
    assert limit.most(None) == limit.most(7) == 1


def test_brokers_that_do_not_answer_leave_the_limit(brokers: Brokers, caplog: pytest.LogCaptureFixture) -> None:
    limit = BatchBytes(10)
    brokers.error = ReadFailed(topic="orders", partition=0, offset=0, reason="b")  # type: ignore[assignment]
    limit.measure(ReadTask(partitions=(part(0, 10),), kafka_config={}, isolation_level="read_uncommitted"))
    assert limit.most(None) == FIRST_RECORDS and "were not measured" in caplog.text


def part(number: int, records: int, parts: int = 1) -> PartitionRanges:
    ranges = tuple(AcquiredRange(at * 10_000, at * 10_000 + records - 1, 1) for at in range(parts))
    return PartitionRanges("orders", number, ranges, "T")


def test_the_sample_is_of_the_largest_partitions_in_proportion() -> None:
    sample = sample_of((*(part(number, 1) for number in range(20)), part(20, 3_000), part(21, 40, parts=25)))
    assert {each.partition: each.records for each in sample} == {20: 47, 21: 15, **dict.fromkeys(range(6), 1)}
    assert sample_of(()) == sample_of((part(0, 0),)) == ()
