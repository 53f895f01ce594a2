"""Keys of the state log: a record type of two bytes, the group id, and the fields that identify the record in the
group.

Types 0 and 1 are Kafka's (KIP-932, "Share coordinator": ShareSnapshotKey, ShareUpdateKey); types from 100 up are ours,
and Kafka's ShareGroupStateMessageFormatter skips types that it does not know. Every type, also a later one, continues
with the group id, so that a reader of one group can skip another group's records of any type."""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from coordinator.state_log.primitives import INT16, INT32, INT64, ByteReader, number, string, uuid

SHARE_SNAPSHOT = 0
SHARE_UPDATE = 1
GROUP_RECORD = 100
"""The lowest type that is ours: a record of :mod:`coordinator.core.log_records`, as ``encode_record`` wrote it."""
GROUP_SNAPSHOT = 101
GROUP_OWNER = 102
GROUP_SNAPSHOT_PART = 104
PLACEMENT = 110
"""A record of the state topic itself and of no group: see :mod:`coordinator.state_log.placement`."""
_TYPES_END = 1_000
"""Types from this one on belong to neither Kafka nor sharegroup, in any version."""


class ShareSnapshotKey(NamedTuple):
    """The key of a snapshot: the whole durable state of one share partition. A record without a value (a tombstone)
    deletes the share partition."""

    group_id: str
    topic_id: str
    partition: int


class ShareUpdateKey(NamedTuple):
    """The key of an update: the change of one share partition since its last snapshot, or since the update before."""

    group_id: str
    topic_id: str
    partition: int


class GroupRecordKey(NamedTuple):
    """The key of a record of our own. ``sequence`` numbers the group's records; it rises, and is never used twice."""

    group_id: str
    sequence: int


class GroupSnapshotKey(NamedTuple):
    """The key of a snapshot's mark: none of the group's records before the snapshot is needed. If the value has no
    content, the records that follow in the mark's transaction are the snapshot, from ``sequence`` on. Otherwise the
    content is a number of parts, and these parts are the snapshot; they were written before the mark, in transactions
    of their own."""

    group_id: str
    sequence: int


class GroupSnapshotPartKey(NamedTuple):
    """The key of a record of a snapshot that is too large for one transaction; ``part`` counts from 0. Parts have no
    effect before the snapshot's mark, which has the same ``sequence``."""

    group_id: str
    sequence: int
    part: int


class GroupOwnerKey(NamedTuple):
    """The key of an owner record. The process that its value names (:class:`~coordinator.state_log.owner_record.Owner`)
    serves the group from this record on."""

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
    """The encoded key, as bytes. Raises ValueError if a field does not fit into Kafka's format."""
    head = key_head(_TYPES[type(key)], key.group_id)
    if isinstance(key, (ShareSnapshotKey, ShareUpdateKey)):
        return head + uuid(key.topic_id) + number(INT32, key.partition)
    if isinstance(key, GroupSnapshotPartKey):
        return head + number(INT64, key.sequence) + number(INT32, key.part)
    if isinstance(key, (GroupRecordKey, GroupSnapshotKey)):
        return head + number(INT64, key.sequence)
    return head


def key_head(record_type: int, group_id: str) -> bytes:
    """The bytes with which all keys of this type and group begin."""
    return number(INT16, record_type) + string(group_id)


def decode_key(data: bytes) -> Key:
    """The key that :func:`encode_key` wrote. Raises UnreadableRecord for no key, or one of an unknown type."""
    reader = ByteReader(data)
    record_type, group_id = reader.number(INT16), reader.string()
    reader.group_id = group_id
    key: Key
    if record_type in (SHARE_SNAPSHOT, SHARE_UPDATE):
        shared = ShareSnapshotKey if record_type == SHARE_SNAPSHOT else ShareUpdateKey
        key = shared(group_id, reader.uuid(), reader.natural(INT32))
    elif record_type in (GROUP_RECORD, GROUP_SNAPSHOT):
        numbered = GroupRecordKey if record_type == GROUP_RECORD else GroupSnapshotKey
        key = numbered(group_id, reader.natural(INT64))
    elif record_type == GROUP_SNAPSHOT_PART:
        key = GroupSnapshotPartKey(group_id, reader.natural(INT64), reader.natural(INT32))
    elif record_type == GROUP_OWNER:
        key = GroupOwnerKey(group_id)
    else:
        raise reader.unreadable(f"its key is of type {record_type}")
    reader.end()
    return key


def group_of(key: bytes | None) -> str | None:
    """Returns the group id in a key of any type; None for a record of no group, as one of another program."""
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
