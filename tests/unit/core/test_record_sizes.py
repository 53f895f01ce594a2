"""No stored record and no reply is of any size, whatever a group holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.core import order, record_codec
from coordinator.core.commands import InitializePartitions, MoveLogStarts, PartitionStart, TopicWithId
from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.commands.acquire_for_query import MAX_RANGES
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.description import MOST_MEMBERS
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import MOST_BYTES, decode_record, encode_record, encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.errors import SubscriptionTooLarge
from coordinator.protocol.messages import DescribeGroup, JoinGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.protocol.wire import encode
from tests.support.group_driver import GroupDriver, durable_state, fetched, ranges

LONG = "x" * 249
MIB = 1024 * 1024


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


@pytest.mark.slow
def test_a_plan_over_very_many_partitions_is_stored_in_small_records() -> None:
    count = 3_000
    group = Unchecked(records=10)
    group.run(
        InitializePartitions(
            topics=(TopicWithId(topic=LONG, topic_id=group.topic_id),),
            starts=tuple(PartitionStart(topic_id=group.topic_id, partition=p, start_offset=0) for p in range(count)),
        )
    )
    group.ends = dict.fromkeys(range(count), 10)
    group.log_starts = dict.fromkeys(range(count), 0)
    group.join()
    number = group.acquire(limit=None).plan.plan_id
    group.start(number)
    group.pass_time(100_000)
    gone = range(0, count, 2)
    group.log_starts |= dict.fromkeys(gone, 5)
    moved = tuple(PartitionStart(topic_id=group.topic_id, partition=p, start_offset=5) for p in gone)
    group.run(MoveLogStarts(starts=moved))
    group.restart(number, fail_on_data_loss=True)
    plan = group.group.members["m1"].newest
    assert plan is not None and sum(out.count for out in plan.data_loss) == 5 * count // 2
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


def test_a_fetch_looks_at_one_returned_run_more_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition may have a million of them."""
    looked_at = []

    def returned(group: ShareGroup, partition: SharePartition, end: int, now_ms: int) -> Iterator[Segment]:
        for segment in order.returned(group, partition, end, now_ms):
            looked_at.append(segment.first)
            yield segment

    monkeypatch.setattr(acquire_records, "returned", returned)
    group = Unchecked(records=40)
    group.join("c1", query=False)
    scattered(group, 0, 20)
    assert fetched(group, 2) == [(0, 0, 2), (2, 2, 2)]
    assert looked_at == [0, 2, 4]


def test_a_record_of_the_most_bytes_is_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tuple((n, n, Run(RecordState.AVAILABLE, 1, releases=n)) for n in range(4))
    record = RunsChanged(topic_id="T", partition=0, runs=runs)
    size = len(encode_record(record))
    for most, stored in ((size, 1), (size - 1, 2)):
        monkeypatch.setattr(record_codec, "MOST_BYTES", most)
        assert len(encode_records([record])) == stored


def test_a_large_description_shows_some_members_and_counts_all() -> None:
    group = Unchecked(records=1_000_000, partitions=2)
    for n in range(MOST_MEMBERS + 5):
        group.join(f"m{n}")
        group.group.members[f"m{n}"].session_deadline_ms = None
    group.join("last")
    scattered(group, 0, 10_000)
    said = group.run(DescribeGroup(group_id="billing"))
    assert [p.runs_total for p in said.partitions] == [20_000, 0]
    assert (len(said.members), said.members_total) == (MOST_MEMBERS, MOST_MEMBERS + 6)
    assert said.members[0].member_id == "last", "those with a session come first"
    assert len(encode(said)) < 4 * MIB


def test_a_too_large_subscription_is_refused_by_name() -> None:
    group = Unchecked()
    topics = tuple(f"{n}-{LONG}" for n in range(3_000))
    with pytest.raises(SubscriptionTooLarge, match="subscribe to a pattern"):
        group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", topics=topics))
    assert group.group.members == {}
