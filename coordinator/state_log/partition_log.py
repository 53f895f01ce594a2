"""The Kafka records of one share partition: keeps the numbers from which the next record is made.

This is Kafka's ShareCoordinatorShard for one key, without a second copy of the state: the core has the state, and
passes it as an argument. A write returns records and changes nothing; :meth:`PartitionLog.replay` of the records
changes the numbers, live and on load alike (docs/trust/facts.md, K35 and K38). Callers pass only records of this share
partition; that is not checked.

The records are for Kafka's tools and for the history of each record; the next one depends on these numbers alone:

- Snapshots are numbered from 0. An update carries the number of the snapshot that it follows.
- After ``updates_per_snapshot`` updates the next write is a snapshot of everything.
- :meth:`PartitionLog.snapshot` is a snapshot without a change. Kafka writes such snapshots of cold partitions, so that
  the log below can be pruned. It keeps the creation time of the previous snapshot; only its write time is new.
- A record has up to MOST_BATCHES state batches. Further ones follow in updates, which belong to the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from coordinator.state_log.projection import Change, Projection
from coordinator.state_log.record_keys import ShareSnapshotKey, ShareUpdateKey, encode_key
from coordinator.state_log.record_values import (
    ShareSnapshotValue,
    ShareUpdateValue,
    encode_snapshot,
    encode_update,
    snapshot_head,
    update_leader_epoch,
)

KeyValue: TypeAlias = tuple[bytes, bytes | None]
"""A record's key and value, as they are appended."""
Whole: TypeAlias = Projection | Change
"""The whole state of a share partition: a projection, or a change that holds all of it."""

INITIAL_LEADER_EPOCH = 0
"""The leader epoch of the first snapshot in Kafka, before any leader has read the share partition."""
MOST_BATCHES = 400_000
"""A record is cut at this many state batches of 20 bytes: 8 MB, less than the state topic's max.message.bytes."""


@dataclass(slots=True, eq=False)
class PartitionLog:
    """The numbers of a share partition's records so far: those of the last snapshot, and the updates since.

    snapshot_epoch: None while there is no snapshot. leader_epoch: None if no leader has read the share partition.
    Timestamps: wall time in ms, of the last snapshot. updates: how many updates followed it; Kafka keeps that number at
    the snapshot of a cold partition."""

    group_id: str
    topic_id: str
    partition: int
    snapshot_epoch: int | None = None
    state_epoch: int = 0
    leader_epoch: int | None = None
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    updates: int = 0

    # --- the next records

    def initialize(self, whole: Whole, *, state_epoch: int, now_ms: int) -> list[KeyValue]:
        """The first snapshot of a share partition, or its first one after a reset (a new state epoch)."""
        return self._snapshot(whole, now_ms, now_ms, state_epoch, INITIAL_LEADER_EPOCH)

    def write(
        self, change: Change, whole: Callable[[], Whole], *, updates_per_snapshot: int, now_ms: int
    ) -> list[KeyValue]:
        """An update with ``change``; after ``updates_per_snapshot`` updates, and where there is no snapshot yet, a
        snapshot of ``whole()`` instead, which is the state with the change."""
        if self.snapshot_epoch is None:
            return self.initialize(whole(), state_epoch=0, now_ms=now_ms)
        if self.updates < updates_per_snapshot:
            return self.update(change)
        return self._snapshot(whole(), now_ms, now_ms, self.state_epoch, self.leader_epoch)

    def update(self, change: Change) -> list[KeyValue]:
        """An update with ``change``, however many updates there were before. There must be a snapshot."""
        assert self.snapshot_epoch is not None
        return self._updates(self.snapshot_epoch, self.leader_epoch, change)

    def snapshot(self, whole: Whole, *, now_ms: int) -> list[KeyValue]:
        """A snapshot without a change, as Kafka writes of a cold partition; the first one, if there is none yet."""
        if self.snapshot_epoch is None:
            return self.initialize(whole, state_epoch=0, now_ms=now_ms)
        return self._snapshot(whole, self.create_timestamp_ms, now_ms, self.state_epoch, self.leader_epoch)

    def delete(self) -> KeyValue:
        """The tombstone of a share partition whose state is deleted."""
        return encode_key(ShareSnapshotKey(self.group_id, self.topic_id, self.partition)), None

    # --- the numbers

    def replay(self, key: ShareSnapshotKey | ShareUpdateKey, value: bytes | None) -> None:
        """Apply a record of this share partition, appended or loaded. The record's batches are not read. An update
        before any snapshot is of a log whose beginning was pruned; the snapshot after it sets the numbers. Raises
        UnreadableRecord if the value is damaged before its batches, or of another version."""
        if isinstance(key, ShareUpdateKey):
            leader_epoch = update_leader_epoch(value or b"", self.group_id)
            if leader_epoch is not None:
                self.leader_epoch = leader_epoch
            self.updates += 1
        elif value is None:
            PartitionLog.__init__(self, self.group_id, self.topic_id, self.partition)
        else:
            head = snapshot_head(value, self.group_id)
            self.snapshot_epoch, self.state_epoch, self.leader_epoch = head[:3]
            self.create_timestamp_ms, self.write_timestamp_ms = head[3:]
            self.updates = 0

    # --- the bytes

    def _snapshot(
        self, whole: Whole, created_ms: int, now_ms: int, state_epoch: int, leader_epoch: int | None
    ) -> list[KeyValue]:
        epoch = 0 if self.snapshot_epoch is None else self.snapshot_epoch + 1
        first, others = whole.state_batches[:MOST_BATCHES], whole.state_batches[MOST_BATCHES:]
        start_offset, complete = whole.start_offset, whole.delivery_complete_count
        value = ShareSnapshotValue(epoch, state_epoch, leader_epoch, start_offset, created_ms, now_ms, first, complete)
        key = encode_key(ShareSnapshotKey(self.group_id, self.topic_id, self.partition))
        updates = self._updates(epoch, leader_epoch, Change(start_offset, others, complete)) if others else []
        return [(key, encode_snapshot(value)), *updates]

    def _updates(self, epoch: int, leader_epoch: int | None, change: Change) -> list[KeyValue]:
        key = encode_key(ShareUpdateKey(self.group_id, self.topic_id, self.partition))
        value = ShareUpdateValue(epoch, leader_epoch, *change)
        batches = value.state_batches
        cut = (batches[at : at + MOST_BATCHES] for at in range(0, max(1, len(batches)), MOST_BATCHES))
        return [(key, encode_update(value._replace(state_batches=part))) for part in cut]
