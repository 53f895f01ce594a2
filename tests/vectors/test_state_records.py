"""The codec of the state log against records that a Kafka 4.3.1 broker wrote, and against its coordinator's replays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.record_state import RecordState
from coordinator.records import UnreadableRecord
from coordinator.state_log.combiner import apply_update
from coordinator.state_log.record_keys import (
    ShareSnapshotKey,
    ShareUpdateKey,
    decode_key,
    encode_key,
    group_of,
)
from coordinator.state_log.record_values import (
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
    decode_snapshot,
    decode_update,
    encode_snapshot,
    encode_update,
)

HERE = Path(__file__)
RECORDS: list[dict[str, Any]] = json.loads(HERE.with_name("state_records.json").read_text("utf-8"))
SCENARIOS: list[dict[str, Any]] = json.loads(HERE.with_name("coordinator.json").read_text("utf-8"))
# Kafka's words for the fields that we give a unit.
RENAMED = {"createTimestamp": "create_timestamp_ms", "writeTimestamp": "write_timestamp_ms"}
SENTINELS = ("leader_epoch", "start_offset", "delivery_complete_count")
KEY_TYPES: dict[int, type[ShareSnapshotKey] | type[ShareUpdateKey]] = {0: ShareSnapshotKey, 1: ShareUpdateKey}
VALUE_TYPES = {0: ShareSnapshotValue, 1: ShareUpdateValue}


def snake(name: str) -> str:
    return RENAMED.get(name) or "".join(f"_{c.lower()}" if c.isupper() else c for c in name)


def batch_of(entry: dict[str, int] | list[int]) -> StateBatch:
    """From either recording: named fields, or [first, last, state, count]."""
    if isinstance(entry, list):
        first, last, state, count = entry
        return StateBatch(first, last, RecordState(state), count)
    named = {snake(name): number for name, number in entry.items()}
    return StateBatch(**{**named, "delivery_state": RecordState(named["delivery_state"])})  # type: ignore[arg-type]


def value_of(record_type: int, data: dict[str, Any], *, start_ms: int = 0) -> Any:
    """The value that Kafka's field names and numbers stand for. A recorded time may be relative to the start."""
    fields = {snake(name): field for name, field in data.items() if name != "key"}
    for name, field in fields.items():
        if isinstance(field, dict):
            fields[name] = start_ms + field["relative_ms"]
        elif name in SENTINELS and field == -1:
            fields[name] = None
    fields["state_batches"] = tuple(batch_of(entry) for entry in fields["state_batches"])
    return VALUE_TYPES[record_type](**fields)


def label(record: dict[str, Any]) -> str:
    key = record["decoded"]["key"]
    return f"{KEY_TYPES[key['type']].__name__}-{key['data']['groupId']}-{key['data']['partition']}"


def decode_value(record_type: int, data: bytes) -> Any:
    return decode_snapshot(data, "g") if record_type == 0 else decode_update(data, "g")


def encode_value(value: Any) -> bytes:
    return encode_snapshot(value) if isinstance(value, ShareSnapshotValue) else encode_update(value)


@pytest.mark.parametrize("record", RECORDS, ids=label)
def test_a_key_is_read_and_written_to_the_byte(record: dict[str, Any]) -> None:
    data, said = bytes.fromhex(record["key_hex"]), record["decoded"]["key"]
    key = KEY_TYPES[said["type"]](*said["data"].values())
    assert list(said["data"]) == ["groupId", "topicId", "partition"]
    assert (decode_key(data), type(decode_key(data))) == (key, type(key))
    assert encode_key(key) == data
    assert group_of(data) == key.group_id


@pytest.mark.parametrize("record", RECORDS, ids=label)
def test_a_value_is_read_and_written_to_the_byte(record: dict[str, Any]) -> None:
    data, record_type = bytes.fromhex(record["value_hex"]), record["decoded"]["key"]["type"]
    value = value_of(record_type, record["decoded"]["value"]["data"])
    assert decode_value(record_type, data) == value
    assert encode_value(value) == data


@pytest.mark.parametrize("record", RECORDS, ids=label)
def test_a_record_that_was_cut_off_or_goes_on_is_unreadable(record: dict[str, Any]) -> None:
    key, value = bytes.fromhex(record["key_hex"]), bytes.fromhex(record["value_hex"])
    for bad in [*(key[:size] for size in range(len(key))), key + b"\0"]:
        with pytest.raises(UnreadableRecord):
            decode_key(bad)
    for bad in [*(value[:size] for size in range(len(value))), value + b"\0"]:
        with pytest.raises(UnreadableRecord, match="share group g can't be read"):
            decode_value(record["decoded"]["key"]["type"], bad)


@pytest.mark.parametrize("record", RECORDS, ids=label)
def test_a_newer_version_is_unreadable(record: dict[str, Any]) -> None:
    value = bytes.fromhex(record["value_hex"])
    with pytest.raises(UnreadableRecord, match="version 1, and this version reads 0"):
        decode_value(record["decoded"]["key"]["type"], b"\0\1" + value[2:])


def replays() -> list[Any]:
    return [
        pytest.param(scenario, id=scenario["name"])
        for scenario in SCENARIOS
        if any(step["op"] == "replay" and step["record"]["value"] is not None for step in scenario["steps"])
    ]


@pytest.mark.parametrize("scenario", replays())
def test_what_kafkas_coordinator_has_replayed_is_what_we_have(scenario: dict[str, Any]) -> None:
    """Each record goes through its bytes; after each, the states of all partitions are Kafka's."""
    states: dict[tuple[Any, ...], ShareSnapshotValue] = {}
    for step in scenario["steps"]:
        if step["op"] != "replay":
            continue
        record = step["record"]
        key = tuple(record["key"].values())
        if record["value"] is None:
            states.pop(key, None)
        elif record["type"] == "snapshot":
            states[key] = decode_snapshot(encode_snapshot(value_of(0, record["value"])))
        else:
            states[key] = apply_update(states[key], decode_update(encode_update(value_of(1, record["value"]))))
        assert states == {tuple(s["key"].values()): value_of(0, s) for s in step["expected"]["state"]}


def writes_of_snapshots() -> list[Any]:
    """(name, the state before, what was written on it, the snapshot that Kafka made of both)."""
    found = []
    for scenario in SCENARIOS:
        state: list[dict[str, Any]] = []
        for step in scenario["steps"]:
            before, state = state, step.get("expected", {}).get("state", state)
            for record in step["expected"]["records"] if step["op"] == "write" else ():
                if record["type"] == "snapshot":
                    (written,) = step["request"]["partitions"]
                    name = f"{scenario['name']}-{record['value']['snapshotEpoch']}"
                    found.append(pytest.param(before[0], written, record["value"], id=name))
    return found


@pytest.mark.parametrize(("before", "written", "snapshot"), writes_of_snapshots())
def test_a_snapshot_is_what_an_update_would_have_come_to(
    before: dict[str, Any], written: dict[str, Any], snapshot: dict[str, Any]
) -> None:
    """The epoch and the times of the snapshot are its own; a write leaves the leader epoch as it is."""
    asked = {name: written[name] for name in ("startOffset", "deliveryCompleteCount", "stateBatches")}
    update = value_of(1, {**asked, "snapshotEpoch": 0, "leaderEpoch": -1})
    expected = value_of(0, snapshot)
    assert apply_update(value_of(0, before), update) == expected._replace(
        snapshot_epoch=expected.snapshot_epoch - 1,
        create_timestamp_ms=value_of(0, before).create_timestamp_ms,
        write_timestamp_ms=value_of(0, before).write_timestamp_ms,
    )
