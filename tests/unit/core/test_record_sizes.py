"""No stored record and no reply is of any size, whatever a group holds."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core import record_codec
from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.commands.acquire_for_query import MAX_RANGES
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import MOST_BYTES, decode_record, encode_record, encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import GroupDriver, durable_state, fetched, ranges

LONG = "x" * 249


class Unchecked(GroupDriver):
    """Looks at its recovery when it is asked to, and stores what a runtime would."""

    topic_id = "T" * 22

    def check_recovery(self) -> None:
        pass

    def append(self, records: Any) -> None:
        records = tuple(records)
        self.log += encode_records(records)
        for record in records:
            replay(self.group, record)

    def check_sizes(self) -> None:
        snapshot = encode_records(snapshot_of(self.group))
        assert max(map(len, [*self.log, *snapshot])) <= MOST_BYTES
        for stored in (self.log, snapshot):
            again = ShareGroup("billing")
            for data in stored:
                replay(again, decode_record(data))
            assert durable_state(again) == durable_state(self.group)


def scattered(group: GroupDriver, partition: int, count: int) -> None:
    """Every second record was released, the others accepted."""
    accepted, given = Run(RecordState.ACKNOWLEDGED, 1), Run(RecordState.AVAILABLE, 1, releases=1)
    runs = tuple((n, n, accepted if n % 2 else given) for n in range(2 * count))
    group.append([RunsChanged(topic_id=group.topic_id, partition=partition, runs=runs)])


def test_a_plan_of_ten_thousand_ranges_is_stored_in_small_records() -> None:
    group = Unchecked(records=2 * MAX_RANGES, **{"errors.deadletterqueue.topic.name": "dead"})
    group.join()
    scattered(group, 0, MAX_RANGES)
    plan = group.acquire(limit=MAX_RANGES)
    assert len(ranges(plan)) == MAX_RANGES
    group.start(plan.plan.plan_id)
    reject = [
        OutcomeRun(n, n, 2, AcknowledgeType.REJECT, reason=f"row {n} " + LONG) for n in range(0, 2 * MAX_RANGES, 2)
    ]
    group.stage(*reject, topic_id=group.topic_id)
    assert max(map(len, encode_records(snapshot_of(group.group)))) <= MOST_BYTES
    group.complete(plan.plan.plan_id)
    assert group.partition().archiving_count == MAX_RANGES
    group.check_sizes()


def test_a_share_consumer_acquires_as_many_ranges_as_a_query() -> None:
    group = Unchecked(records=3 * MAX_RANGES)
    group.join("c1", query=False)
    scattered(group, 0, MAX_RANGES + 10)
    assert len(fetched(group, 1_000_000)) == MAX_RANGES
    group.check_sizes()


@pytest.mark.parametrize("runs", [3, 4])
def test_one_limit_holds_for_the_ranges_of_all_partitions(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    monkeypatch.setattr(acquire_records, "MAX_RANGES", 3)
    group = Unchecked(records=10, partitions=2)
    group.join("c1", query=False)
    scattered(group, 0, runs)
    assert fetched(group, 1_000) == [(0, 0, 2), (2, 2, 2), (4, 4, 2)]


def test_a_record_of_the_most_bytes_is_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tuple((n, n, Run(RecordState.AVAILABLE, 1, releases=n)) for n in range(4))
    record = RunsChanged(topic_id="T", partition=0, runs=runs)
    size = len(encode_record(record))
    for most, stored in ((size, 1), (size - 1, 2)):
        monkeypatch.setattr(record_codec, "MOST_BYTES", most)
        assert len(encode_records([record])) == stored
