"""A share partition as Kafka's state log has it: what would be left of it if every lock were lost now.

Kafka never writes ACQUIRED (KIP-932, "Share coordinator"; ``kafka-engine-facts.md`` 21). A record that a member holds
is projected as it was before this acquisition, AVAILABLE at one delivery less; what was never acquired before is in no
batch. Who holds what, failures, numbers and delays are in our own records only.

No command of ours lowers a record's projection, so updates can say them all; an admin's reset may, and takes a
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.record_state import TERMINAL, RecordState
from coordinator.runs import Run, RunMap
from coordinator.share_partition import SharePartition
from coordinator.state_log.combiner import advance, combine
from coordinator.state_log.record_values import (
    MAX_DELIVERY_COMPLETE_COUNT,
    MAX_DELIVERY_COUNT,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)


class Projection(NamedTuple):
    """A share partition in Kafka's terms: SPSO, and by offset what is known of the records from it on."""

    start_offset: int
    state_batches: tuple[StateBatch, ...]

    @property
    def delivery_complete_count(self) -> int:
        """Terminal records from the start offset on (KIP-1226), or the most that its field can say."""
        terminal = (batch for batch in self.state_batches if batch.delivery_state in TERMINAL)
        return min(sum(last - first + 1 for first, last, _, _ in terminal), MAX_DELIVERY_COMPLETE_COUNT)

    def snapshot(
        self,
        *,
        snapshot_epoch: int,
        state_epoch: int,
        leader_epoch: int | None,
        create_timestamp_ms: int,
        write_timestamp_ms: int,
    ) -> ShareSnapshotValue:
        """All of it, as a record."""
        return ShareSnapshotValue(
            snapshot_epoch=snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=self.start_offset,
            create_timestamp_ms=create_timestamp_ms,
            write_timestamp_ms=write_timestamp_ms,
            state_batches=self.state_batches,
            delivery_complete_count=self.delivery_complete_count,
        )


def project(partition: SharePartition) -> Projection:
    """The partition as it is now. Below the start offset nothing is said, also of records still held there
    (``kafka-engine-facts.md`` 27, 29)."""
    return Projection(partition.start_offset, project_runs(partition.runs, partition.start_offset))


def project_runs(runs: Iterable[tuple[int, int, Run]], start_offset: int) -> tuple[StateBatch, ...]:
    """The state batches of runs, ascending and disjoint: those of a partition, or those that a record names."""
    batches: list[StateBatch] = []
    for first, last, run in runs:
        if last < start_offset or (said := _state_and_count(run)) is None:
            continue
        batch = StateBatch(max(first, start_offset), last, *said)
        before = batches[-1] if batches else None
        if before is not None and before[1:] == (batch.first_offset - 1, *said):
            batch = batches.pop()._replace(last_offset=last)
        batches.append(batch)
    return tuple(batches)


def update_between(
    before: Projection, after: Projection, *, snapshot_epoch: int, leader_epoch: int | None
) -> ShareUpdateValue | None:
    """What brings a reader from ``before`` to ``after``: the batches, or the parts of them, that are new.

    None if no update can: the start offset, or a record, is less far on than before; a snapshot can say it.
    """
    changed = _changed(before, after)
    said = combine(before.state_batches, changed, after.start_offset)
    if after.start_offset < before.start_offset or said != after.state_batches:
        return None
    return ShareUpdateValue(snapshot_epoch, leader_epoch, after.start_offset, changed, after.delivery_complete_count)


def _changed(before: Projection, after: Projection) -> tuple[StateBatch, ...]:
    """The parts of ``after`` that ``before`` does not have alike."""
    old = RunMap()
    for batch in before.state_batches:
        advance(old, batch)
    changed = []
    for batch in after.state_batches:
        at = batch.first_offset
        for first, last, run in old.between(batch.first_offset, batch.last_offset):
            if (run.state, run.delivery_count) != batch[2:]:
                continue
            if at < first:
                changed.append(batch._replace(first_offset=at, last_offset=first - 1))
            at = last + 1
        if at <= batch.last_offset:
            changed.append(batch._replace(first_offset=at))
    return tuple(changed)


def _state_and_count(run: Run) -> tuple[RecordState, int] | None:
    """The record as it would be without its lock; None if it was never acquired. A count that the format has no room
    for is the largest one that it has: our own records have it in full."""
    state, count = run.state, run.delivery_count
    if state == RecordState.ACQUIRED:
        state, count = RecordState.AVAILABLE, count - 1
    if state == RecordState.AVAILABLE and not count:
        return None
    return state, min(count, MAX_DELIVERY_COUNT)
