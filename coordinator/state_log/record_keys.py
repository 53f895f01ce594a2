"""Keys of the state log: a record type of two bytes, the group, and which of the group's records it is.

Types 0 and 1 are Kafka's (KIP-932, "Share coordinator": ShareSnapshotKey, ShareUpdateKey); types from 100 up are ours,
and Kafka's ShareGroupStateMessageFormatter skips what it does not know. Every type, also a later one, goes on with the
group id, so that a reader of one group can pass over another group's records whatever they are.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from coordinator.state_log.primitives import INT16, INT32, INT64, Reader, number, string, uuid

SHARE_SNAPSHOT = 0
SHARE_UPDATE = 1
GROUP_RECORD = 100
"""The lowest type that is ours: a record of :mod:`coordinator.core.records`, as ``encode_record`` wrote it."""
GROUP_SNAPSHOT = 101
GROUP_OWNER = 102
GROUP_SNAPSHOT_PART = 104
PLACEMENT = 110
"""Of the state topic itself, and no group's: see :mod:`coordinator.state_log.placement`."""
_TYPES_END = 1_000
"""Types from here on are neither Kafka's nor ours, in any version."""


class ShareSnapshotKey(NamedTuple):
    """All that is durable of one share partition. A record without a value (a tombstone) says that it is deleted."""

    group_id: str
    topic_id: str
    partition: int


class ShareUpdateKey(NamedTuple):
    """What changed of one share partition since its last snapshot, or since the last update after it."""

    group_id: str
    topic_id: str
    partition: int


class GroupRecordKey(NamedTuple):
    """A record of our own; ``sequence`` is its place among the group's, rising, never used twice."""

    group_id: str
    sequence: int


class GroupSnapshotKey(NamedTuple):
    """A snapshot of the group begins: what lies before it of this group is not needed. Its value is empty, and the
    records that follow in its transaction, from ``sequence`` on, are the snapshot; or its value is the number of parts
    that came before it, in transactions of their own, and are the snapshot then."""

    group_id: str
    sequence: int


class GroupSnapshotPartKey(NamedTuple):
    """A record of a snapshot that is too large for one transaction; ``part`` counts from 0. Nothing is read from parts
    before the snapshot's mark, which has the same ``sequence``."""

    group_id: str
    sequence: int
    part: int


class GroupOwnerKey(NamedTuple):
    """Who serves the group from here on; the value is an :class:`~coordinator.state_log.owner.Owner`."""

    group_id: str


Key: TypeAlias = (
    ShareSnapshotKey | ShareUpdateKey | GroupRecordKey | GroupSnapshotKey | GroupSnapshotPartKey | GroupOwnerKey
)


_HEAD = struct.Struct(">hh")
_GROUP_AT = _HEAD.size
_TYPES: dict[type[Key], int] = {
    ShareSnapshotKey: SHARE_SNAPSHOT,
    ShareUpdateKey: SHARE_UPDATE,
    GroupRecordKey: GROUP_RECORD,
    GroupSnapshotKey: GROUP_SNAPSHOT,
    GroupOwnerKey: GROUP_OWNER,
    GroupSnapshotPartKey: GROUP_SNAPSHOT_PART,
}


def encode_key(key: Key) -> bytes:
    """The key's bytes; ValueError for fields that Kafka's format has no room for."""
    head = key_head(_TYPES[type(key)], key.group_id)
    if isinstance(key, (ShareSnapshotKey, ShareUpdateKey)):
        return head + uuid(key.topic_id) + number(INT32, key.partition)
    if isinstance(key, GroupSnapshotPartKey):
        return head + number(INT64, key.sequence) + number(INT32, key.part)
    if isinstance(key, (GroupRecordKey, GroupSnapshotKey)):
        return head + number(INT64, key.sequence)
    return head


def key_head(record_type: int, group_id: str) -> bytes:
    """What the keys of this type and group begin with."""
    return number(INT16, record_type) + string(group_id)


def decode_key(data: bytes) -> Key:
    """The key that was encoded; UnreadableRecord for other bytes, and for a type that this version does not know."""
    reader = Reader(data)
    record_type, group_id = _head(reader)
    key: Key
    if record_type in (SHARE_SNAPSHOT, SHARE_UPDATE):
        shared = ShareSnapshotKey if record_type == SHARE_SNAPSHOT else ShareUpdateKey
        key = shared(group_id, reader.uuid(), reader.number(INT32))
    elif record_type in (GROUP_RECORD, GROUP_SNAPSHOT):
        numbered = GroupRecordKey if record_type == GROUP_RECORD else GroupSnapshotKey
        key = numbered(group_id, reader.number(INT64))
    elif record_type == GROUP_SNAPSHOT_PART:
        key = GroupSnapshotPartKey(group_id, reader.number(INT64), reader.number(INT32))
    elif record_type == GROUP_OWNER:
        key = GroupOwnerKey(group_id)
    else:
        raise reader.unreadable(f"its key is of type {record_type}")
    reader.end()
    return key


def group_of(key: bytes | None) -> str | None:
    """Whose record it is, by its key, of whatever type. None: no group's; somebody else has written it."""
    if not key or len(key) <= _GROUP_AT:
        return None
    record_type, length = _HEAD.unpack_from(key)
    end = _GROUP_AT + length
    if not (0 <= record_type < _TYPES_END and _GROUP_AT < end <= len(key)):
        return None
    try:
        return key[_GROUP_AT:end].decode("utf-8")
    except UnicodeDecodeError:
        return None


def _head(reader: Reader) -> tuple[int, str]:
    record_type, group_id = reader.number(INT16), reader.string()
    reader.group_id = group_id
    return record_type, group_id
