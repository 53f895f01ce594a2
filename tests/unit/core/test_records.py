"""Log records: what is stored, in which size, and what is refused when it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest

from coordinator.core import log_records as records
from coordinator.core import record_codec
from coordinator.core.left_out import LeftOutRange
from coordinator.core.log_records import GroupCreated, MemberJoined, PlanAcquired, PlanCompleted, PlanKept, Record
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.members import PlanRanges
from coordinator.core.record_codec import RunsFilter, UnreadableRecord, decode_head, decode_record, encode_record
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.protocol.values import AcknowledgeType, SharePartitionKey
from tests.support.group_driver import TOPIC_ID, GroupDriver, durable_state

Stored = TypeVar(
    "Stored",
    records.RunsChanged,
    records.PlanStaged,
    records.OffsetsAltered,
    records.MembersForgotten,
    records.RangesAdded,
)


def stored(record: Stored) -> list[Stored]:
    found = [record_codec.decode_record(data) for data in record_codec.encode_records([record])]
    assert all(type(part) is type(record) for part in found)
    return found  # type: ignore[return-value]


def test_a_large_record_becomes_several_with_the_same_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert record_codec.MOST_BYTES == 512 * 1024, "well below the megabyte that Kafka takes by default"
    monkeypatch.setattr(record_codec, "MOST_BYTES", 120)
    runs = tuple((offset, offset, Run(RecordState.ACQUIRED, 1 + offset % 2)) for offset in range(40))
    for count in (0, 1, 3, 7, 40):
        whole = records.RunsChanged(topic_id=TOPIC_ID, partition=2, runs=runs[:count])
        parts = stored(whole)
        assert (len(parts) == 1) == (count <= 3)
        assert {(part.topic_id, part.partition) for part in parts} == {(TOPIC_ID, 2)}
        assert tuple(run for part in parts for run in part.runs) == runs[:count]


def test_reasons_make_stored_records_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_codec, "MOST_BYTES", 1_000)
    for length, fewest in ((1, 1), (100, 2), (900, 10)):
        verdicts = tuple((n, n, Verdict(1, AcknowledgeType.REJECT, reason="x" * length)) for n in range(10))
        staged = stored(records.PlanStaged(plan_id=1, member_id="m1", partitions=((TOPIC_ID, 0, verdicts),)))
        runs = tuple((n, n, Run(RecordState.ARCHIVING, 1, reason="x" * length)) for n in range(10))
        changed = stored(records.RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs))
        assert all(fewest <= len(parts) <= 2 * fewest for parts in (staged, changed))
        assert tuple(verdict for part in staged for verdict in part.partitions[0][2]) == verdicts
        assert tuple(run for part in changed for run in part.runs) == runs


def test_each_part_of_a_staging_has_the_same_window_and_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_codec, "MOST_BYTES", 145)
    runs = tuple((n, n, Verdict(1, AcknowledgeType.ACCEPT)) for n in range(3))
    partitions = ((TOPIC_ID, 0, runs), (TOPIC_ID, 1, runs[:1]))
    whole = records.PlanStaged(
        plan_id=7, member_id="m1", partitions=partitions, reject_window=(4, 3), explicit_attempts=(2,), query_id="q"
    )
    said = [(part.plan_id, part.reject_window, part.explicit_attempts, part.query_id) for part in stored(whole)]
    assert said == [(7, (4, 3), (2,), "q")] * 2
    assert [part.partitions for part in stored(whole)] == [
        ((TOPIC_ID, 0, runs[:2]),),
        ((TOPIC_ID, 0, runs[2:]), (TOPIC_ID, 1, runs[:1])),
    ]
    nothing = records.PlanStaged(plan_id=7, member_id="m1", explicit_attempts=(2,))
    assert stored(nothing) == [nothing]


def test_the_parts_of_a_large_record_have_each_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_codec, "MOST_BYTES", 200)
    starts = tuple((index, None if index % 3 else index) for index in range(90))
    altered = stored(records.OffsetsAltered(topic_id=TOPIC_ID, starts=starts, altered_after=7))
    assert {(part.topic_id, part.altered_after) for part in altered} == {(TOPIC_ID, 7)}
    assert tuple(start for part in altered for start in part.starts) == starts

    ids = tuple(f"member-{n}" for n in range(40))
    losses = (LeftOutRange(topic="t", topic_id=TOPIC_ID, partition=0, first=0, last=9, count=10, reason="data_loss"),)
    forgotten = stored(records.MembersForgotten(member_ids=ids, forgotten_epoch=3, unreported_losses=losses))
    assert [part.unreported_losses for part in forgotten] == [losses, *[None] * (len(forgotten) - 1)]
    assert {part.forgotten_epoch for part in forgotten} == {3}
    assert tuple(member_id for part in forgotten for member_id in part.member_ids) == ids

    ranges = tuple((n, n) for n in range(90))
    added = stored(records.RangesAdded(plan_id=1, member_id="m1", ranges=((TOPIC_ID, 0, ranges),)))
    assert {(part.plan_id, part.member_id) for part in added} == {(1, "m1")}
    assert tuple(taken for part in added for taken in part.ranges[0][2]) == ranges
    assert min(len(altered), len(forgotten), len(added)) > 1


def test_a_large_record_without_a_list_is_stored_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_codec, "MOST_BYTES", 100)
    joined = MemberJoined(member_id="m" * 200, member_epoch=1, process_id="p")
    assert record_codec.encode_records([joined]) == [encode_record(joined)]


def test_a_plan_of_very_many_ranges_is_loaded_whole_from_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_codec, "MOST_BYTES", 300)
    group = GroupDriver(records=1_000, partitions=3)
    group.join()
    group.append(
        [
            records.RunsChanged(
                topic_id=TOPIC_ID,
                partition=p,
                runs=tuple(
                    (n, n, Run(RecordState.ACKNOWLEDGED if n % 2 else RecordState.AVAILABLE, 1)) for n in range(50)
                ),
            )
            for p in range(3)
        ]
    )
    number = group.acquire(limit=None).plan.plan_id
    plan = group.group.plans[group.group.plan_id(number)]
    group.append([])
    for said in (group.log, record_codec.encode_records(snapshot_of(group.group))):
        again = ShareGroup("billing")
        parts = [part for data in said for part in record_codec.encode_records([record_codec.decode_record(data)])]
        assert any(isinstance(record_codec.decode_record(data), records.RangesAdded) for data in parts)
        for data in parts:
            replay(again, record_codec.decode_record(data))
        assert again.plans[plan.plan_id].ranges == plan.ranges
        assert durable_state(again) == durable_state(group.group)


def acquired(ranges: PlanRanges) -> Record:
    return PlanAcquired(plan_id=2, member_id="m1", member_epoch=1, acquired_ms=0, ranges=ranges)


def kept(ranges: PlanRanges) -> Record:
    """As a snapshot has a query's newest plan, of which no record carries the id any more."""
    of_start = {"trial": False, "started": True, "counts_as_evidence": True, "newest": True, "carried": False}
    return PlanKept(plan_id=2, member_id="m1", member_epoch=1, acquired_ms=0, ranges=ranges, **of_start)


@pytest.mark.parametrize(("record", "is_query"), [(acquired, False), (acquired, True), (kept, True)])
def test_a_plans_ranges_are_whole_wherever_its_record_was_cut(
    record: Callable[[PlanRanges], Record], is_query: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = tuple((TOPIC_ID, p, tuple((n, n) for n in range(count))) for p, count in enumerate((5, 1, 12, 2, 7)))
    numbers = set()
    for most in range(60, 180, 5):
        monkeypatch.setattr(record_codec, "MOST_BYTES", most)
        group = ShareGroup("billing")
        replay(group, GroupCreated(incarnation="i", topic_ids=True))
        replay(group, MemberJoined(member_id="m1", member_epoch=1, process_id="p", query=is_query))
        parts = record_codec.encode_records([record(ranges)])
        for part in parts:
            replay(group, decode_record(part))
        plan = group.members["m1"].newest if is_query else group.plans[2]
        assert plan is not None and plan.ranges == ranges
        numbers.add(len(parts))
    assert len(numbers) >= 5, numbers


@pytest.mark.parametrize("decode", [decode_record, decode_head])
def test_an_unreadable_record_names_its_group_and_the_reason(decode: Callable[..., object]) -> None:
    cut_off = encode_record(PlanCompleted(plan_id=1, member_id="m1", records=2))[:-1]
    for named, group_id in (((), "?"), (("billing",), "billing")):
        with pytest.raises(UnreadableRecord) as unreadable:
            decode(cut_off, *named)
        assert unreadable.value.fields == {"group_id": group_id, "reason": "Input data was truncated"}


@pytest.mark.parametrize("topic_id", ["T", "topic_id"])
def test_only_the_runs_of_other_partitions_are_skipped(topic_id: str) -> None:
    skips = RunsFilter(SharePartitionKey(topic_id, 1)).skips
    runs = ((0, 9, Run(RecordState.ACQUIRED, 1)),)
    for of, index in (("other", 1), (topic_id, 2), (topic_id, 12)):
        assert skips(encode_record(records.RunsChanged(topic_id=of, partition=index, runs=runs)))
    assert not skips(encode_record(records.RunsChanged(topic_id=topic_id, partition=1, runs=runs)))
    assert not skips(encode_record(PlanCompleted(plan_id=1, member_id=topic_id, records=2)))


def test_a_record_of_a_newer_version_is_not_read_in_part() -> None:
    """The unknown field may change the meaning of the known ones."""
    newer = msgspec.msgpack.encode({"type": "SessionEnded", "member_id": "m1", "why": "moved"})
    with pytest.raises(UnreadableRecord, match="unknown field `why`"):
        decode_record(newer)


def test_records_of_soft_state_are_never_stored() -> None:
    assert [record.__name__ for record in Record.__subclasses__() if not record.durable] == [
        "Swept",
        "SessionRenewed",
        "SessionEnded",
        "MemberWaits",
        "PartitionsAssigned",
        "StartsAlteredBy",
        "TaskSignalled",
        "BatchNamed",
        "LocksRenewed",
        "DeadlinesPassed",
        "DeadlinesExtended",
    ]
