"""Keys of the state log: a record type of two bytes, the group, and which of the group's records it is.

Types 0 and 1 are Kafka's (KIP-932, "Share coordinator": ShareSnapshotKey, ShareUpdateKey); types from 100 up are ours,
and Kafka's ShareGroupStateMessageFormatter skips what it does not know. Every type, also a later one, goes on with the
group id, so that a reader of one group can pass over another group's records whatever they are.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from coordinator.state_log.primitives import INT16, INT32, INT64, Reader, number, string, uuid

SHARE_SNAPSHOT = 0
SHARE_UPDATE = 1
GROUP_RECORD = 100
"""The lowest type that is ours: a record of :mod:`coordinator.records`, as ``encode_record`` wrote it."""


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


Key: TypeAlias = ShareSnapshotKey | ShareUpdateKey | GroupRecordKey


def encode_key(key: Key) -> bytes:
    """The key's bytes; ValueError for fields that Kafka's format has no room for."""
    if isinstance(key, GroupRecordKey):
        return number(INT16, GROUP_RECORD) + string(key.group_id) + number(INT64, key.sequence)
    record_type = SHARE_SNAPSHOT if isinstance(key, ShareSnapshotKey) else SHARE_UPDATE
    return number(INT16, record_type) + string(key.group_id) + uuid(key.topic_id) + number(INT32, key.partition)


def decode_key(data: bytes) -> Key:
    """The key that was encoded; UnreadableRecord for other bytes, and for a type that this version does not know."""
    reader = Reader(data)
    record_type, group_id = _head(reader)
    key: Key
    if record_type == GROUP_RECORD:
        key = GroupRecordKey(group_id, reader.number(INT64))
    elif record_type in (SHARE_SNAPSHOT, SHARE_UPDATE):
        cls = ShareSnapshotKey if record_type == SHARE_SNAPSHOT else ShareUpdateKey
        key = cls(group_id, reader.uuid(), reader.number(INT32))
    else:
        raise reader.unreadable(f"its key is of type {record_type}")
    reader.end()
    return key


def group_of(data: bytes) -> str:
    """Whose record it is, by its key, of whatever type; UnreadableRecord if not even that can be read."""
    return _head(Reader(data))[1]


def _head(reader: Reader) -> tuple[int, str]:
    record_type, group_id = reader.number(INT16), reader.string()
    reader.group_id = group_id
    return record_type, group_id
