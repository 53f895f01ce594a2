"""Log records: what is stored, in which size, and what is refused when it is read."""

from __future__ import annotations

from typing import TypeVar, get_args

import msgspec
import pytest

from coordinator.core import record_codec, records
from coordinator.core.record_codec import UnreadableRecord, decode_record, encode_record
from coordinator.core.record_state import RecordState
from coordinator.core.records import PlanCompleted, Record
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import TOPIC_ID, GroupDriver, durable_state

Stored = TypeVar("Stored", records.RunsChanged, records.PlanStaged)


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
        runs = tuple((n, n, Verdict(1, AcknowledgeType.REJECT, reason="x" * length)) for n in range(10))
        whole = records.PlanStaged(plan_id=1, member_id="m1", partitions=((TOPIC_ID, 0, runs),))
        parts = stored(whole)
        assert fewest <= len(parts) <= 2 * fewest
        assert tuple(run for part in parts for run in part.partitions[0][2]) == runs


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
    for said in (group.log, record_codec.encode_records(group.group.snapshot())):
        again = ShareGroup("billing")
        parts = [part for data in said for part in record_codec.encode_records([record_codec.decode_record(data)])]
        assert any(isinstance(record_codec.decode_record(data), records.RangesAdded) for data in parts)
        for data in parts:
            again.replay(record_codec.decode_record(data))
        assert again.plans[plan.plan_id].ranges == plan.ranges
        assert durable_state(again) == durable_state(group.group)


def test_an_unreadable_record_names_its_group_and_the_reason() -> None:
    with pytest.raises(UnreadableRecord) as unreadable:
        decode_record(encode_record(PlanCompleted(plan_id=1, member_id="m1", records=2))[:-1], "billing")
    assert unreadable.value.fields == {"group_id": "billing", "reason": "Input data was truncated"}


def test_a_record_of_a_newer_version_is_not_read_in_part() -> None:
    """The unknown field may change the meaning of the known ones."""
    newer = msgspec.msgpack.encode({"type": "SessionEnded", "member_id": "m1", "why": "moved"})
    with pytest.raises(UnreadableRecord, match="unknown field `why`"):
        decode_record(newer)


def defaults(record: type[Record]) -> dict[str, object]:
    return {field.name: field.default for field in msgspec.structs.fields(record) if not field.required}


def test_defaults_of_stored_records_never_change() -> None:
    """A value that is the default is not written: the default can't change while records are stored."""
    assert {record.__name__: left_out for record in get_args(Record) if (left_out := defaults(record))} == {
        "PartitionInitialized": {
            "log_start": 0,
            "archived": (),
            "end_offset": None,
            "highest_count": 0,
            "altered_after": 0,
        },
        "MemberJoined": {
            "fenced_processes": (),
            "query": True,
            "topics": (),
            "topic_pattern": None,
            "assign": None,
            "starting_offsets": None,
            "client_id": "",
            "client_host": "",
            "seen_ms": 0,
        },
        "MembersForgotten": {"unreported_losses": None},
        "PlanAcquired": {
            "trial": False,
            "explicit": False,
            "ranges": (),
            "reported_topic_ids": (),
            "unreported_losses": (),
            "superseded_plans": (),
        },
        "PlanStarted": {
            "explicit": False,
            "replaces": None,
            "data_loss": (),
            "left_out": (),
            "unreported_losses": (),
            "reported_topic_ids": (),
            "replaced_plan_id": None,
        },
        "PlanCompleted": {"evidence": False},
        "DataLost": {"plan_id": None, "member_id": None},
        "PlanKept": {
            "data_loss": (),
            "unreported_losses": (),
            "left_out": (),
            "ranges": (),
            "reclaims": 0,
            "superseded_plans": (),
            "explicit": False,
            "explicit_attempts": (),
            "replaces": None,
        },
        "GroupProgressKept": {"decided": 0, "rejected": 0, "forgotten_epoch": 0, "assignment_epoch": 0},
        "MemberProgressKept": {"evidence": False, "decides": False, "query_id": ""},
        "PlanStaged": {
            "partitions": (),
            "reject_window": None,
            "explicit_attempts": None,
            "explicit": None,
            "replaces": None,
            "query_id": None,
        },
    }


def test_records_of_soft_state_are_never_stored() -> None:
    assert [record.__name__ for record in get_args(Record) if not record.durable] == [
        "Swept",
        "SessionRenewed",
        "SessionEnded",
        "PartitionsAssigned",
        "StartsAlteredBy",
        "TaskSignalled",
        "BatchNamed",
        "LocksRenewed",
        "DeadlinesPassed",
        "DeadlinesExtended",
    ]
