"""Values of Kafka's share-coordinator records (KIP-932, "Share coordinator"; KIP-1226 for the delivery complete count).

Each value begins with its schema version, 0, in two bytes. Both schemas are flexible (KIP-482: compact arrays and
tagged fields). A field that Kafka writes as -1 for "none" is ``None`` here. A coordinator writes whole values and reads
only their first fields: a group is loaded from sharegroup's own records."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from coordinator.core.record_state import RecordState
from coordinator.state_log.primitives import INT16, INT32, ByteReader, number, optional, tagged_fields, unsigned_varint

VERSION = 0
DELIVERY_COMPLETE_COUNT_TAG = 0
MAX_DELIVERY_COUNT = 2**15 - 1
"""The largest delivery count that a state batch can hold."""
MAX_DELIVERY_COMPLETE_COUNT = 2**31 - 1

_STATE_BATCH = struct.Struct(">qqbh")
_SNAPSHOT = struct.Struct(">iiiqqq")
_UPDATE = struct.Struct(">iiq")
_SNAPSHOT_HEAD = struct.Struct(">hiiiqqq")
_UPDATE_HEAD = struct.Struct(">hii")


class StateBatch(NamedTuple):
    """Records ``first_offset`` to ``last_offset`` inclusive, with their state and the number of acquisitions so far."""

    first_offset: int
    last_offset: int
    delivery_state: RecordState
    delivery_count: int


class ShareSnapshotValue(NamedTuple):
    """The whole durable state of a share partition. ``state_batches`` are ascending, disjoint and merged; an offset
    from ``start_offset`` (SPSO) on that is in no batch was never delivered.

    start_offset: None if the share partition is not initialised. leader_epoch: None if no leader has read it.
    delivery_complete_count: None before KIP-1226. Timestamps: wall time in ms, of the last snapshot that came with a
    change, and of this snapshot. The two differ in the snapshot of a cold partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int | None
    start_offset: int | None
    create_timestamp_ms: int
    write_timestamp_ms: int
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int | None = None


class ShareUpdateValue(NamedTuple):
    """A change since snapshot ``snapshot_epoch``: offsets in no batch stay as they are. ``start_offset`` and
    ``leader_epoch``: None if unchanged. The delivery complete count counts from the start offset on."""

    snapshot_epoch: int
    leader_epoch: int | None
    start_offset: int | None
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int | None = None


def encode_snapshot(value: ShareSnapshotValue) -> bytes:
    """The value's bytes as Kafka writes them. Raises ValueError if a number does not fit into Kafka's format."""
    fixed = number(
        _SNAPSHOT,
        value.snapshot_epoch,
        value.state_epoch,
        optional(value.leader_epoch),
        optional(value.start_offset),
        value.create_timestamp_ms,
        value.write_timestamp_ms,
    )
    return _encoded(fixed, value.state_batches, value.delivery_complete_count)


def encode_update(value: ShareUpdateValue) -> bytes:
    """The bytes of an update, as :func:`encode_snapshot` makes those of a snapshot."""
    fixed = number(_UPDATE, value.snapshot_epoch, optional(value.leader_epoch), optional(value.start_offset))
    return _encoded(fixed, value.state_batches, value.delivery_complete_count)


def snapshot_head(data: bytes, group_id: str = "?") -> tuple[int, int, int | None, int, int]:
    """A snapshot's epoch, state epoch, leader epoch, create and write timestamps. Nothing after these is read. Raises
    UnreadableRecord if these fields can't be read, or are of another version."""
    reader = ByteReader(data, group_id)
    version, snapshot_epoch, state_epoch, leader_epoch, _, created_ms, written_ms = reader.fields(_SNAPSHOT_HEAD)
    _check_version(reader, version)
    return snapshot_epoch, state_epoch, None if leader_epoch == -1 else leader_epoch, created_ms, written_ms


def update_leader_epoch(data: bytes, group_id: str = "?") -> int | None:
    """The leader epoch of an update. Raises as :func:`snapshot_head`."""
    reader = ByteReader(data, group_id)
    version, _, leader_epoch = reader.fields(_UPDATE_HEAD)
    _check_version(reader, version)
    return None if leader_epoch == -1 else leader_epoch


def _encoded(fixed: bytes, batches: Iterable[StateBatch], delivery_complete_count: int | None) -> bytes:
    nothing = tagged_fields({})
    encoded = [number(_STATE_BATCH, *batch) + nothing for batch in batches]
    tagged = {}
    if delivery_complete_count is not None:
        tagged[DELIVERY_COMPLETE_COUNT_TAG] = number(INT32, delivery_complete_count)
    return b"".join((number(INT16, VERSION), fixed, unsigned_varint(len(encoded) + 1), *encoded, tagged_fields(tagged)))


def _check_version(reader: ByteReader, version: int) -> None:
    if version != VERSION:
        raise reader.unreadable(f"its value is of version {version}, and this version reads {VERSION}")
