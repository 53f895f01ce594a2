"""The state log's bytes: any key and value comes back as it was, and other bytes are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.record_codec import UnreadableRecord
from coordinator.core.record_state import RecordState
from coordinator.protocol.wire import derived_topic_id
from coordinator.state_log.kafka_values import decode_snapshot, decode_update
from coordinator.state_log.primitives import tagged_fields, unsigned_varint
from coordinator.state_log.record_keys import (
    GROUP_RECORD,
    GroupRecordKey,
    GroupSnapshotPartKey,
    Key,
    ShareSnapshotKey,
    ShareUpdateKey,
    decode_key,
    encode_key,
    group_of,
)
from coordinator.state_log.record_values import (
    MAX_DELIVERY_COUNT,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
    encode_snapshot,
    encode_update,
)
from tests.support.state_records import INT32_MAX, INT64_MAX, TOPIC_ID, state_batches_of


def optional(largest: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, largest)


def disjoint(batches: list[StateBatch]) -> tuple[StateBatch, ...]:
    """The batches in order, without those that overlap one before."""
    kept: list[StateBatch] = []
    for batch in sorted(batches):
        if not kept or kept[-1].last_offset < batch.first_offset:
            kept.append(batch)
    return tuple(kept)


epochs = st.integers(0, INT32_MAX)
offsets = st.integers(0, INT64_MAX)
lists_of_batches = st.lists(state_batches_of(offsets, MAX_DELIVERY_COUNT), max_size=200).map(disjoint)
int32, int64 = optional(INT32_MAX), optional(INT64_MAX)
snapshots = st.builds(ShareSnapshotValue, epochs, epochs, int32, int64, offsets, offsets, lists_of_batches, int32)
updates = st.builds(ShareUpdateValue, epochs, int32, int64, lists_of_batches, int32)
group_ids = st.text(min_size=1, max_size=300)
topic_ids = st.text().map(derived_topic_id)
keys = st.one_of(
    st.builds(ShareSnapshotKey, group_ids, topic_ids, epochs),
    st.builds(ShareUpdateKey, group_ids, topic_ids, epochs),
    st.builds(GroupRecordKey, group_ids, offsets),
    st.builds(GroupSnapshotPartKey, group_ids, offsets, epochs),
)


@given(keys)
def test_an_encoded_key_decodes_to_the_same_key(key: Key) -> None:
    data = encode_key(key)
    assert (decode_key(data), type(decode_key(data))) == (key, type(key))
    assert group_of(data) == key.group_id


@given(snapshots)
def test_an_encoded_snapshot_decodes_to_the_same_snapshot(value: ShareSnapshotValue) -> None:
    assert decode_snapshot(encode_snapshot(value)) == value


@given(updates)
def test_an_encoded_update_decodes_to_the_same_update(value: ShareUpdateValue) -> None:
    assert decode_update(encode_update(value)) == value


def test_more_batches_than_a_byte_counts_come_back() -> None:
    for count in (126, 127, 128, 16_383, 16_384):
        batches = tuple(StateBatch(at, at, RecordState.ACKNOWLEDGED, 1) for at in range(count))
        assert decode_update(encode_update(ShareUpdateValue(0, 0, 0, batches))).state_batches == batches


@pytest.mark.parametrize(
    ("number", "data"), [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")]
)
def test_an_unsigned_varint_has_seven_bits_a_byte_the_lowest_first(number: int, data: str) -> None:
    assert unsigned_varint(number).hex() == data


def damaged(data: bytes, at: int, byte: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([byte]) + data[at + 1 :]


@given(updates, snapshots, keys, st.integers(0, 60), st.integers(0, 255), st.binary(max_size=60))
def test_other_bytes_are_read_as_something_else_or_refused_by_name(
    update: ShareUpdateValue, snapshot: ShareSnapshotValue, key: Key, at: int, byte: int, anything: bytes
) -> None:
    for decode, encode, data in (
        (decode_update, encode_update, damaged(encode_update(update), at, byte)),
        (decode_snapshot, encode_snapshot, damaged(encode_snapshot(snapshot), at, byte)),
        (decode_key, encode_key, damaged(encode_key(key), at, byte)),
        (decode_update, encode_update, b"\0\0" + anything),
        (decode_snapshot, encode_snapshot, b"\0\0" + anything),
        (decode_key, encode_key, b"\0\0" + anything),
    ):
        try:
            value: Any = decode(data)
        except UnreadableRecord:
            continue
        assert decode(encode(value)) == value


BATCH = bytes.fromhex("00000000000000030000000000000004040001")
FIXED = bytes.fromhex("000000000000000000000000000000000000")
UNKNOWN = tagged_fields({7: b"later"})


def test_a_tagged_field_that_is_not_known_is_passed_over() -> None:
    data = FIXED + b"\2" + BATCH + UNKNOWN + tagged_fields({0: (9).to_bytes(4, "big"), 7: b"later"})
    assert decode_update(data) == ShareUpdateValue(0, 0, 0, (StateBatch(3, 4, RecordState.ARCHIVED, 1),), 9)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\2" + FIXED[2:] + b"\1\0", "its value is of version 2"),
        (FIXED + b"\0\0", "an array is null"),
        (FIXED + b"\xff\xff\xff\xff\xff\1\0", "more than 5 bytes"),
        (FIXED + b"\xff\xff\xff\xff\x7f\0", "more than 32 bits"),
        (FIXED + b"\xff\xff\xff\xff\x0f" + BATCH, "more bytes are needed"),
        (FIXED + b"\2" + BATCH[:-3] + b"\6\0\1" + b"\0\0", "in state 6"),
        (FIXED + b"\2" + BATCH[8:16] + BATCH[:8] + BATCH[16:] + b"\0\0", "offsets 4 to 3"),
        (FIXED + b"\2" + BATCH[:-2] + b"\xff\xff" + b"\0\0", "with delivery count -1"),
        (FIXED + b"\1\1\0\1\0", "4 more bytes are needed and 1 are there"),
        (FIXED + b"\1\1\0\5\0\0\0\1\0", "1 bytes too many"),
        (FIXED + b"\2" + b"\xff" + BATCH[1:] + b"\0\0", "offsets -"),
        (FIXED + b"\1\2\0\4\0\0\0\1\0\4\0\0\0\1", "tag 0 comes after tag 0"),
        (FIXED[:-8] + b"\xff" * 7 + b"\xfe" + b"\1\0", "-2 is below -1"),
        (FIXED + b"\1\0\0", "1 bytes too many"),
    ],
)
def test_an_unreadable_record_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableRecord, match=reason) as caught:
        decode_update(data, "billing")
    assert "share group billing" in str(caught.value)


def test_our_own_records_have_a_key_type_that_kafkas_tools_pass_over() -> None:
    assert encode_key(GroupRecordKey("billing", 258)) == b"\0\x64" + b"\0\7billing" + b"\0\0\0\0\0\0\1\2"
    assert GROUP_RECORD >= 100


def test_an_unreadable_key_of_a_later_version_names_its_group() -> None:
    later = b"\0\x67" + encode_key(GroupRecordKey("billing", 1))[2:]
    assert group_of(later) == "billing"
    with pytest.raises(UnreadableRecord, match=r"share group billing can't be read \(its key is of type 103"):
        decode_key(later)


@pytest.mark.parametrize(
    "data",
    [
        *(None, b"", b"\0", b"\0\0\0\5bill", b"\0\0\xff\xff", b"\0\0\0\1\xff", b"\0\0\0\0"),
        *(b"hello", b'{"order": 7}', bytes(8), b"\x03\xe8\0\7billing", b"\xff\xff\0\7billing", b"billing"),
    ],
)
def test_a_key_that_is_neither_kafkas_nor_ours_belongs_to_no_group(data: bytes | None) -> None:
    assert group_of(data) is None


@pytest.mark.parametrize(
    "key",
    [
        ShareSnapshotKey("g", "T", 0),
        ShareSnapshotKey("g", TOPIC_ID[:-1], 0),
        ShareSnapshotKey("g", TOPIC_ID[:-1] + "R", 0),  # spare bits that no uuid has
        ShareSnapshotKey("g", TOPIC_ID[:-1] + "é", 0),
        ShareSnapshotKey("g", TOPIC_ID, 2**31),
        GroupRecordKey("g" * 32_768, 0),
        GroupRecordKey("g", 2**63),
    ],
)
def test_a_key_that_kafkas_format_has_no_room_for_is_not_written(key: Key) -> None:
    with pytest.raises(ValueError):
        encode_key(key)


def test_a_count_that_kafkas_format_has_no_room_for_is_not_written() -> None:
    with pytest.raises(ValueError):
        encode_update(ShareUpdateValue(0, 0, 0, (StateBatch(0, 0, RecordState.AVAILABLE, MAX_DELIVERY_COUNT + 1),)))
