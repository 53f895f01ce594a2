"""The part of Kafka's ShareCoordinatorShard that no coordinator of ours needs: leaders that read, share partitions that
are deleted, and snapshots of cold ones. It is here so that Kafka's recordings can be played in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from coordinator.state_log.combiner import combine
from coordinator.state_log.partition_log import KeyValue, PartitionLog, Whole
from coordinator.state_log.projection import Change
from coordinator.state_log.record_keys import ShareSnapshotKey, encode_key
from coordinator.state_log.record_values import ShareSnapshotValue, ShareUpdateValue

Tombstone: TypeAlias = tuple[bytes, None]


def apply_update(state: ShareSnapshotValue, update: ShareUpdateValue) -> ShareSnapshotValue:
    """A share partition's state after an update that was written behind it. The delivery complete count is the
    update's if it names a start offset (docs/trust/facts.md, K38)."""
    start_offset, complete = update.start_offset, update.delivery_complete_count
    if start_offset is None:
        start_offset, complete = state.start_offset, state.delivery_complete_count
    return state._replace(
        leader_epoch=state.leader_epoch if update.leader_epoch is None else update.leader_epoch,
        start_offset=start_offset,
        state_batches=combine(state.state_batches, update.state_batches, start_offset),
        delivery_complete_count=complete,
    )


class KafkaPartitionLog(PartitionLog):
    """A partition log with all that Kafka's does."""

    def lead(
        self, leader_epoch: int, whole: Callable[[], Whole], *, updates_per_snapshot: int, now_ms: int
    ) -> KeyValue | None:
        """The record that the first read of a newer leader writes, as :meth:`write` does; None for a leader that is not
        newer: a write never changes the leader epoch. ``whole()`` is the state; an update repeats its start offset."""
        if self.leader_epoch is not None and leader_epoch <= self.leader_epoch:
            return None
        state = whole()
        change = Change(state.start_offset, (), state.delivery_complete_count)
        return self._next(change, lambda: state, leader_epoch, updates_per_snapshot, now_ms)

    def delete(self) -> Tombstone | None:
        """The record that deletes the share partition; None if it has no record."""
        if self.snapshot_epoch is None:
            return None
        return encode_key(ShareSnapshotKey(self.group_id, self.topic_id, self.partition)), None

    def is_cold(self, now_ms: int, interval_ms: int) -> bool:
        """Whether the last snapshot is older than the interval."""
        return self.snapshot_epoch is not None and now_ms - self.write_timestamp_ms >= interval_ms

    @property
    def snapshotted_cold(self) -> bool:
        """Whether the last snapshot was one of a cold partition: its two times differ."""
        return self.create_timestamp_ms != self.write_timestamp_ms


def cold_partitions(logs: Iterable[KafkaPartitionLog], now_ms: int, interval_ms: int) -> list[KafkaPartitionLog]:
    """The logs of a state partition that get a snapshot now. None of them once the last snapshot of each was one of a
    cold partition: a quiet log has nothing more to prune, and would grow by snapshots alone."""
    written = [log for log in logs if log.snapshot_epoch is not None]
    if all(log.snapshotted_cold for log in written):
        return []
    return [log for log in written if log.is_cold(now_ms, interval_ms)]
