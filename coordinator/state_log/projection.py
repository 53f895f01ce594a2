"""A share partition as Kafka's state log has it: what would be left of it if every lock were lost now.

Kafka never writes ACQUIRED (KIP-932, "Share coordinator"; docs/facts.md, K21). A record that a member holds
is projected as it was before this acquisition, AVAILABLE at one delivery less; what was never acquired before is in no
batch. Who holds what, failures, numbers and delays are in our own records only.

No command of ours lowers a record's projection, so updates can say them all; an admin's reset may, and takes a
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from coordinator.state_log.record_values import MAX_DELIVERY_COMPLETE_COUNT, MAX_DELIVERY_COUNT, StateBatch


class Projection(NamedTuple):
    """A share partition in Kafka's terms: SPSO, and by offset what is known of the records from it on."""

    start_offset: int
    state_batches: tuple[StateBatch, ...]

    @property
    def delivery_complete_count(self) -> int:
        """Terminal records from the start offset on (KIP-1226), or the most that its field can say."""
        terminal = (batch for batch in self.state_batches if batch.delivery_state in TERMINAL)
        return min(sum(last - first + 1 for first, last, _, _ in terminal), MAX_DELIVERY_COMPLETE_COUNT)


class Change(NamedTuple):
    """What an update says: the SPSO and the delivery complete count that there are after it, both None if it says only
    batches, and the batches that changed, also those that are below the SPSO now (a reader drops them, and the trail
    of what became of each record is whole)."""

    start_offset: int | None
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int | None = None


def project(partition: SharePartition) -> Projection:
    """The partition as it is now. Below the start offset nothing is said, also of records still held there
    (docs/facts.md, K27, K29)."""
    return Projection(partition.start_offset, project_runs(partition.runs, partition.start_offset))


def changed(partition: SharePartition, runs: Iterable[tuple[int, int, Run]]) -> Change:
    """What these runs, ascending and disjoint, have changed in the partition as it is now."""
    complete = min(partition.delivery_complete_count, MAX_DELIVERY_COMPLETE_COUNT)
    return Change(partition.start_offset, project_runs(runs), complete)


def project_runs(runs: Iterable[tuple[int, int, Run]], start_offset: int = 0) -> tuple[StateBatch, ...]:
    """The state batches of runs, ascending and disjoint, as far as they are at ``start_offset`` or above."""
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


def _state_and_count(run: Run) -> tuple[RecordState, int] | None:
    """The record as it would be without its lock; None if it was never acquired. A count that the format has no room
    for is the largest one that it has: our own records have it in full."""
    state, count = run.state, run.delivery_count
    if state == RecordState.ACQUIRED:
        state, count = RecordState.AVAILABLE, count - 1
    if state == RecordState.AVAILABLE and not count:
        return None
    return state, min(count, MAX_DELIVERY_COUNT)
