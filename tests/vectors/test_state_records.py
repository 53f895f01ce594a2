"""The codec of the state log against records that a Kafka 4.3.1 broker wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.record_codec import UnreadableRecord
from coordinator.state_log.kafka_values import decode_snapshot, decode_update
from coordinator.state_log.record_keys import ShareSnapshotKey, ShareUpdateKey, decode_key, encode_key, group_of
from coordinator.state_log.record_values import ShareSnapshotValue, encode_snapshot, encode_update
from tests.support.state_records import snapshot_of, update_of

RECORDS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("state_records.json").read_text("utf-8"))
KEY_TYPES: dict[int, type[ShareSnapshotKey] | type[ShareUpdateKey]] = {0: ShareSnapshotKey, 1: ShareUpdateKey}
VALUES_OF = {0: snapshot_of, 1: update_of}


def label(record: dict[str, Any]) -> str:
    key = record["decoded"]["key"]
    return f"{KEY_TYPES[key['type']].__name__}-{key['data']['groupId']}-{key['data']['partition']}"


def decode_value(record_type: int, data: bytes) -> Any:
    return decode_snapshot(data, "g") if record_type == 0 else decode_update(data, "g")


def encode_value(value: Any) -> bytes:
    return encode_snapshot(value) if isinstance(value, ShareSnapshotValue) else encode_update(value)


def test_a_key_is_read_and_written_to_the_byte() -> None:
    for record in RECORDS:
        data, said = bytes.fromhex(record["key_hex"]), record["decoded"]["key"]
        key = KEY_TYPES[said["type"]](*said["data"].values())
        assert list(said["data"]) == ["groupId", "topicId", "partition"]
        assert (decode_key(data), type(decode_key(data))) == (key, type(key))
        assert encode_key(key) == data
        assert group_of(data) == key.group_id


def test_a_value_is_read_and_written_to_the_byte() -> None:
    for record in RECORDS:
        data, record_type = bytes.fromhex(record["value_hex"]), record["decoded"]["key"]["type"]
        value: Any = VALUES_OF[record_type](record["decoded"]["value"]["data"])
        assert decode_value(record_type, data) == value
        assert encode_value(value) == data


def test_a_truncated_or_too_long_record_is_unreadable() -> None:
    for record in RECORDS:
        key, value = bytes.fromhex(record["key_hex"]), bytes.fromhex(record["value_hex"])
        for bad in [*(key[:size] for size in range(len(key))), key + b"\0"]:
            with pytest.raises(UnreadableRecord):
                decode_key(bad)
        for bad in [*(value[:size] for size in range(len(value))), value + b"\0"]:
            with pytest.raises(UnreadableRecord, match="share group g can't be read"):
                decode_value(record["decoded"]["key"]["type"], bad)


def test_a_newer_version_is_unreadable() -> None:
    for record in RECORDS:
        value = bytes.fromhex(record["value_hex"])
        with pytest.raises(UnreadableRecord, match="version 1, and this version reads 0"):
            decode_value(record["decoded"]["key"]["type"], b"\0\1" + value[2:])
