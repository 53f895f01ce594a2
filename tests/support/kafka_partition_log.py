"""The part of Kafka's ShareCoordinatorShard that no coordinator of ours needs: leaders that read, share partitions that
are deleted, and snapshots of cold ones. It is here so that Kafka's recordings can be played in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordinator.state_log.partition_log import KeyValue, PartitionLog, Whole
from coordinator.state_log.projection import Change


class KafkaPartitionLog(PartitionLog):
    """A partition log with all that Kafka's does."""

    def lead(
        self, leader_epoch: int, whole: Callable[[], Whole], *, updates_per_snapshot: int, now_ms: int
    ) -> list[KeyValue]:
        """The records that the first read of a newer leader writes, as :meth:`write` does; none for a leader that is
        not newer: a write never changes the leader epoch. ``whole()`` is the state; an update repeats its start
        offset. There must be a snapshot."""
        if self.leader_epoch is not None and leader_epoch <= self.leader_epoch:
            return []
        state = whole()
        assert self.snapshot_epoch is not None
        if self.updates < updates_per_snapshot:
            change = Change(state.start_offset, (), state.delivery_complete_count)
            return self._updates(self.snapshot_epoch, leader_epoch, change)
        return self._snapshot(state, now_ms, now_ms, self.state_epoch, leader_epoch)

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
