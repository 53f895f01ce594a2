"""The Kafka records of one share partition: keeps the numbers from which the next record is made.

This is Kafka's ShareCoordinatorShard for one key, without a second copy of the state: the core has the state, and
passes it as an argument. A write returns a record and changes nothing; :meth:`PartitionLog.replay` of the record
changes the numbers, live and on load alike (docs/trust/facts.md, K35 and K38). A record is always this share
partition's: callers must not pass another key, and it is not checked.

The records are for Kafka's tools and for the history of each record; the next one depends on these numbers alone:

- snapshot 0 begins it; each later one counts one up, updates carry the number of the snapshot that they follow;
- ``updates_per_snapshot`` updates after a snapshot, the next write is a snapshot of everything instead;
- :meth:`PartitionLog.snapshot` is a snapshot without a change, as Kafka writes of cold partitions so that the log below
  can be pruned: the time of its creation stays, and differs from the time of its writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from coordinator.state_log.projection import Change, Projection
from coordinator.state_log.record_keys import ShareSnapshotKey, ShareUpdateKey, decode_key, encode_key
from coordinator.state_log.record_values import (
    MAX_BYTES_BESIDE_BATCHES,
    STATE_BATCH_BYTES,
    ShareSnapshotValue,
    ShareUpdateValue,
    decode_snapshot,
    decode_update,
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


class PartitionLog:
    """The numbers of a share partition's records so far: those of the last snapshot, and the updates since.

    snapshot_epoch: None while there is no snapshot. leader_epoch: None if no leader has read it. Timestamps: wall time
    in ms, of the last snapshot. updates: the number of updates since then; Kafka leaves it as it is at the
    snapshot of a cold partition.
    """

    __slots__ = (
        "create_timestamp_ms",
        "group_id",
        "leader_epoch",
        "partition",
        "snapshot_epoch",
        "state_epoch",
        "topic_id",
        "updates",
        "write_timestamp_ms",
    )

    def __init__(self, group_id: str, topic_id: str, partition: int) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition
        self.snapshot_epoch: int | None = None
        self.state_epoch = 0
        self.leader_epoch: int | None = None
        self.create_timestamp_ms = 0
        self.write_timestamp_ms = 0
        self.updates = 0

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.group_id}/{self.topic_id}-{self.partition} snapshot={self.snapshot_epoch} "
            f"updates={self.updates} state_epoch={self.state_epoch} leader_epoch={self.leader_epoch}>"
        )

    # --- the next record

    def initialize(self, whole: Whole, *, state_epoch: int, now_ms: int) -> KeyValue:
        """The first snapshot of a share partition, or its first one after a reset (a new state epoch)."""
        return self._snapshot(
            whole,
            epoch=0 if self.snapshot_epoch is None else self.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=INITIAL_LEADER_EPOCH,
            create_timestamp_ms=now_ms,
            now_ms=now_ms,
        )

    def write(self, change: Change, whole: Callable[[], Whole], *, updates_per_snapshot: int, now_ms: int) -> KeyValue:
        """An update with ``change``; or, after ``updates_per_snapshot`` updates, a snapshot of ``whole()``: the state
        with the change.

        Raises:
            ValueError: there is no snapshot yet.
        """
        return self._next(change, whole, self.leader_epoch, updates_per_snapshot, now_ms)

    def update(self, change: Change) -> KeyValue:
        """An update with ``change``, however many updates there were before.

        Raises:
            ValueError: there is no snapshot yet.
        """
        return self._update(change, self.leader_epoch)

    def snapshot(self, whole: Whole, *, now_ms: int) -> KeyValue:
        """A snapshot without a change, as Kafka writes of a cold partition.

        Raises:
            ValueError: there is no snapshot yet.
        """
        return self._snapshot(
            whole,
            epoch=self._last_epoch() + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            create_timestamp_ms=self.create_timestamp_ms,
            now_ms=now_ms,
        )

    def delete(self) -> KeyValue:
        """The tombstone of a share partition whose state is deleted."""
        return encode_key(ShareSnapshotKey(self.group_id, self.topic_id, self.partition)), None

    # --- the numbers

    def replay(self, key: ShareSnapshotKey | ShareUpdateKey, value: bytes | None) -> None:
        """Apply one of its records, appended or loaded. The record's batches are not read. An update before any
        snapshot is of a log whose beginning was pruned; the snapshot after it sets the numbers.

        Raises:
            UnreadableRecord: the value is damaged before its batches, or of another version.
        """
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

    def _next(
        self,
        change: Change,
        whole: Callable[[], Whole],
        leader_epoch: int | None,
        updates_per_snapshot: int,
        now_ms: int,
    ) -> KeyValue:
        epoch = self._last_epoch()
        if self.updates < updates_per_snapshot:
            return self._update(change, leader_epoch)
        return self._snapshot(
            whole(),
            epoch=epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            create_timestamp_ms=now_ms,
            now_ms=now_ms,
        )

    def _update(self, change: Change, leader_epoch: int | None) -> KeyValue:
        value = ShareUpdateValue(self._last_epoch(), leader_epoch, *change)
        return encode_key(ShareUpdateKey(self.group_id, self.topic_id, self.partition)), encode_update(value)

    def _snapshot(
        self,
        whole: Whole,
        *,
        epoch: int,
        state_epoch: int,
        leader_epoch: int | None,
        create_timestamp_ms: int,
        now_ms: int,
    ) -> KeyValue:
        value = ShareSnapshotValue(
            snapshot_epoch=epoch,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=whole.start_offset,
            create_timestamp_ms=create_timestamp_ms,
            write_timestamp_ms=now_ms,
            state_batches=whole.state_batches,
            delivery_complete_count=whole.delivery_complete_count,
        )
        return encode_key(ShareSnapshotKey(self.group_id, self.topic_id, self.partition)), encode_snapshot(value)

    def _last_epoch(self) -> int:
        if self.snapshot_epoch is None:
            raise ValueError(f"{self!r} has no snapshot yet: initialize it first")
        return self.snapshot_epoch


def pieces(record: KeyValue, max_bytes: int) -> list[KeyValue]:
    """Returns a share partition's record or, where its value is longer than ``max_bytes``, several records with the
    same effect, for one transaction: a snapshot with the first batches, and updates with the others. Each has at least
    one batch, so ``max_bytes`` does not hold below about 100."""
    key, data = record
    if data is None or len(data) <= max_bytes:
        return [record]
    count = max(1, (max_bytes - MAX_BYTES_BESIDE_BATCHES) // STATE_BATCH_BYTES)
    named = decode_key(key)
    if isinstance(named, ShareUpdateKey):
        return [*_updates(key, decode_update(data), count)]
    assert isinstance(named, ShareSnapshotKey)
    whole = decode_snapshot(data)
    first, others = whole.state_batches[:count], whole.state_batches[count:]
    rest = ShareUpdateValue(
        whole.snapshot_epoch, whole.leader_epoch, whole.start_offset, others, whole.delivery_complete_count
    )
    updates = _updates(encode_key(ShareUpdateKey(*named)), rest, count)
    return [(key, encode_snapshot(whole._replace(state_batches=first))), *updates]


def _updates(key: bytes, update: ShareUpdateValue, count: int) -> Iterator[KeyValue]:
    """Cuts the update into several with ``count`` batches each."""
    batches = update.state_batches
    for at in range(0, len(batches), count):
        yield key, encode_update(update._replace(state_batches=batches[at : at + count]))
