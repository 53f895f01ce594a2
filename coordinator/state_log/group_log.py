"""A group's part of the state log: what its records say when they are read, and the next ones to write.

A group's log is its own records (type 100), numbered without gaps, beside Kafka's records of its share partitions. A
snapshot is a mark (type 101) and the records that rebuild the group, in one transaction: what lies before the mark is
not needed. Our own records are what the group is loaded from; Kafka's are for Kafka's tools, and say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coordinator.core.records import LogStartMoved, PartitionInitialized, Record, RunsChanged, UnreadableRecord
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey
from coordinator.state_log.combiner import combine
from coordinator.state_log.foreign_records import ForeignRecords
from coordinator.state_log.owner import Owner, decode_owner
from coordinator.state_log.partition_log import KeyValue, PartitionLog, pieces
from coordinator.state_log.placement import PLACEMENT_KEY
from coordinator.state_log.primitives import INT32, INT64, number
from coordinator.state_log.projection import changed, project
from coordinator.state_log.record_keys import (
    GROUP_RECORD,
    GroupOwnerKey,
    GroupRecordKey,
    GroupSnapshotKey,
    GroupSnapshotPartKey,
    ShareSnapshotKey,
    ShareUpdateKey,
    decode_key,
    encode_key,
    group_of,
    key_head,
)
from coordinator.state_log.record_values import StateBatch
from coordinator.state_log.value_version import group_content_of, versioned

MAX_STATE_RECORD_BYTES = 8 * 1024 * 1024
"""A longer snapshot goes on in updates."""


class Entry(NamedTuple):
    """A record of ours. ``data`` None: a snapshot begins, forget what came before."""

    sequence: int
    data: bytes | None


class GroupLog:
    """What is remembered of one group's log. ``next_sequence``: None while nothing of ours was read. ``needed_offset``:
    where in the state partition what is needed of the group begins."""

    def __init__(self, group_id: str, *, updates_per_snapshot: int) -> None:
        self.group_id = group_id
        self.updates_per_snapshot = updates_per_snapshot
        self.partitions: dict[SharePartitionKey, PartitionLog] = {}
        self.next_sequence: int | None = None
        self.needed_offset: int | None = None
        self.owner: Owner | None = None
        self.strays = ForeignRecords()
        self.parts: Sequence[bytes] = ()
        """Of the snapshot whose mark was read last: its first records, which came before the mark."""
        self._parts: list[bytes] = []
        self._parts_of: int | None = None
        self._parts_from = 0
        self._left_out: int | None = None
        self._record_head = key_head(GROUP_RECORD, group_id)
        self._owner_key = encode_key(GroupOwnerKey(group_id))
        self._state_keys: dict[bytes, ShareSnapshotKey | ShareUpdateKey] = {}
        """As they were decoded: there are two a share partition, and they come again and again."""

    def __repr__(self) -> str:
        return f"<GroupLog {self.group_id} next={self.next_sequence} needed={self.needed_offset} owner={self.owner}>"

    # --- read

    def read(self, key: bytes | None, value: bytes | None, offset: int) -> Entry | None:
        """The record at this offset of the state partition, as it comes; None if it is not one of the group's own.
        UnreadableRecord for one of the group's that can't be read, and where one is missing before it."""
        if key is not None and key.startswith(self._record_head):
            if len(key) != len(self._record_head) + INT64.size:
                raise self._unreadable("the key of a record has another length")
            (sequence,) = INT64.unpack_from(key, len(self._record_head))
            return self._own(int(sequence), value, offset)
        group_id = group_of(key)
        if group_id is None and key != PLACEMENT_KEY:
            self.strays.add(offset)
        if key is None or group_id != self.group_id:
            return None
        known = self._state_keys.get(key) or decode_key(key)
        if isinstance(known, (ShareSnapshotKey, ShareUpdateKey)):
            self._state_keys[key] = known
            self._partition(SharePartitionKey(known.topic_id, known.partition)).replay(known, value)
        elif isinstance(known, GroupSnapshotPartKey):
            self._part(known, value, offset)
        elif isinstance(known, GroupSnapshotKey):
            return self._mark(known.sequence, value, offset)
        elif isinstance(known, GroupOwnerKey):
            self.owner = decode_owner(value or b"", self.group_id)
        return None

    def read_owner(self, key: bytes | None, value: bytes | None) -> bool:
        """Whether the record is of this group; of its content only who owns the group is looked at."""
        if group_of(key) != self.group_id:
            return False
        if key == self._owner_key:
            self.owner = decode_owner(value or b"", self.group_id)
        return True

    def end(self) -> None:
        """All was read. UnreadableRecord if what the group needs is not there any more."""
        if self._left_out is not None:
            raise self._unreadable(f"what came before record {self._left_out} is gone, and no snapshot takes its place")

    def _part(self, key: GroupSnapshotPartKey, value: bytes | None, offset: int) -> None:
        if not key.part:
            self._parts, self._parts_of, self._parts_from = [], key.sequence, offset
        if value is not None and (key.sequence, key.part) == (self._parts_of, len(self._parts)):
            self._parts.append(group_content_of(value, self.group_id))
        else:
            self._parts_of = None  # of an attempt whose beginning is gone

    def _mark(self, sequence: int, value: bytes | None, offset: int) -> Entry | None:
        count = group_content_of(value or b"", self.group_id)
        self.parts, self._parts = [], self._parts if count else []
        if count:
            if self._parts_of != sequence or count != number(INT32, len(self._parts)):
                self._left_out, self.next_sequence = sequence, None  # pruned in the midst of it: a newer one follows
                return None
            self.parts, offset = self._parts, self._parts_from
        self._parts, self._parts_of = [], None
        self.next_sequence, self.needed_offset, self._left_out = sequence, offset, None
        return Entry(sequence, None)

    def _own(self, sequence: int, value: bytes | None, offset: int) -> Entry | None:
        if value is None:
            raise self._unreadable(f"record {sequence} has no value")
        data = group_content_of(value, self.group_id)
        if self.next_sequence is None:
            if sequence:  # pruned before it: a snapshot follows
                self._left_out = sequence if self._left_out is None else self._left_out
                return None
            self.needed_offset = offset
        elif sequence != self.next_sequence:
            raise self._unreadable(f"record {sequence} comes where {self.next_sequence} should")
        self.next_sequence = sequence + 1
        return Entry(sequence, data)

    # --- written

    def keyed(self, records: Iterable[bytes], first: int) -> list[KeyValue]:
        """The group's own records, numbered from ``first``."""
        return [
            (encode_key(GroupRecordKey(self.group_id, at)), versioned(data)) for at, data in enumerate(records, first)
        ]

    def snapshot_mark(self, parts: int = 0) -> KeyValue:
        """What a snapshot begins with; one that was written in parts ends with it."""
        key = encode_key(GroupSnapshotKey(self.group_id, self.next_sequence or 0))
        return key, versioned(number(INT32, parts) if parts else b"")

    def snapshot_parts(self, records: Sequence[bytes]) -> list[KeyValue]:
        """The records of a snapshot that is too large for one transaction; its mark comes after them."""
        sequence = self.next_sequence or 0
        keys = (GroupSnapshotPartKey(self.group_id, sequence, part) for part in range(len(records)))
        return list(zip(map(encode_key, keys), map(versioned, records), strict=True))

    def state_records(self, group: ShareGroup, records: Sequence[Record], now_ms: int) -> list[KeyValue]:
        """Kafka's records of what ``records``, which the group has replayed, changed."""
        batches: dict[SharePartitionKey, list[StateBatch]] = {}
        moved: set[SharePartitionKey] = set()
        for record in records:
            if isinstance(record, RunsChanged):
                key = SharePartitionKey(record.topic_id, record.partition)
                said = changed(group.partitions[key], record.runs).state_batches
                batches[key] = _with(batches.get(key, []), said)
            elif isinstance(record, (PartitionInitialized, LogStartMoved)):
                moved.add(SharePartitionKey(record.topic_id, record.partition))
        found: list[KeyValue] = []
        for key in dict.fromkeys([*moved, *batches]):
            if key in moved or batches[key]:
                found += self._written(key, group.partitions[key], tuple(batches.get(key, ())), now_ms)
        return found

    def snapshot_records(self, group: ShareGroup, now_ms: int) -> list[KeyValue]:
        """Kafka's records of all share partitions as they are."""
        found: list[KeyValue] = []
        for key, partition in group.partitions.items():
            log = self._partition(key)
            if log.snapshot_epoch is None:
                record = log.initialize(project(partition), state_epoch=0, now_ms=now_ms)
            else:
                record = log.snapshot(project(partition), now_ms=now_ms)
            found += pieces(record, MAX_STATE_RECORD_BYTES)
        return found

    def written(self, shown: Iterable[KeyValue]) -> None:
        """Kafka's records are durable."""
        for key, value in shown:
            known = _state_key(key)
            self._partition(SharePartitionKey(known.topic_id, known.partition)).replay(known, value)

    def _written(
        self, key: SharePartitionKey, partition: SharePartition, batches: tuple[StateBatch, ...], now_ms: int
    ) -> list[KeyValue]:
        log = self._partition(key)
        if log.snapshot_epoch is None:
            record = log.initialize(project(partition), state_epoch=0, now_ms=now_ms)
        else:
            change = changed(partition, ())._replace(state_batches=batches)
            limit = self.updates_per_snapshot
            record = log.write(change, lambda: project(partition), updates_per_snapshot=limit, now_ms=now_ms)
        return pieces(record, MAX_STATE_RECORD_BYTES)

    # --- inside

    def _partition(self, key: SharePartitionKey) -> PartitionLog:
        log = self.partitions.get(key)
        if log is None:
            log = self.partitions[key] = PartitionLog(self.group_id, key.topic_id, key.partition)
        return log

    def _unreadable(self, reason: str) -> UnreadableRecord:
        return UnreadableRecord(group_id=self.group_id, reason=reason)


def _with(batches: list[StateBatch], said: tuple[StateBatch, ...]) -> list[StateBatch]:
    """As the combiner has it, which looks at each batch: mostly, what is completed and what is acquired next are apart,
    and of the one there are as many batches as a sink made."""
    if not said or not batches or batches[-1].last_offset < said[0].first_offset - 1:
        return batches + list(said)
    return list(combine(batches, said, None))


def _state_key(key: bytes) -> ShareSnapshotKey | ShareUpdateKey:
    known = decode_key(key)
    assert isinstance(known, (ShareSnapshotKey, ShareUpdateKey))
    return known
