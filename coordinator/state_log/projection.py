"""The projection of a share partition in Kafka's state log: its state as if every lock were lost now.

- Kafka never writes ACQUIRED (KIP-932, "Share coordinator"; docs/trust/facts.md, K21). A record that a member holds is
  projected as it was before this acquisition: AVAILABLE with one delivery less. If it was never acquired before, it is
  in no batch.
- Kafka has no IN_PROGRESS (KAFKA-20458). Such a record is projected as AVAILABLE, and this delivery counts.
- Holders, failures, plan ids and delays are in sharegroup's own records only.

No command of a member lowers a record's projection, so an update can hold each change. An administrator's reset may
lower it, and needs a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from coordinator.state_log.record_values import MAX_DELIVERY_COMPLETE_COUNT, MAX_DELIVERY_COUNT, StateBatch


class Projection(NamedTuple):
    """A share partition in Kafka's terms: the SPSO, and the state batches from it on."""

    start_offset: int
    state_batches: tuple[StateBatch, ...]

    @property
    def delivery_complete_count(self) -> int:
        """The number of terminal records from the start offset on (KIP-1226); at most what Kafka's field holds."""
        terminal = (batch for batch in self.state_batches if batch.delivery_state in TERMINAL)
        return min(sum(last - first + 1 for first, last, _, _ in terminal), MAX_DELIVERY_COMPLETE_COUNT)


class Change(NamedTuple):
    """The content of an update: the SPSO and the delivery complete count after the change, both None if only batches
    changed, and the batches that changed. Batches below the new SPSO are included, so that the log shows the outcome of
    each record; a reader drops them."""

    start_offset: int | None
    state_batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int | None = None


def project(partition: SharePartition) -> Projection:
    """The partition as it is now, without anything below the start offset: records that are still held there are left
    out as well (docs/trust/facts.md, K27, K29)."""
    return Projection(partition.start_offset, project_runs(partition.runs, partition.start_offset))


def changed(partition: SharePartition, runs: Iterable[tuple[int, int, Run]]) -> Change:
    """The change that these runs, ascending and disjoint, have made. The partition must have replayed them."""
    complete = min(partition.delivery_complete_count, MAX_DELIVERY_COMPLETE_COUNT)
    return Change(partition.start_offset, project_runs(runs), complete)


def project_runs(runs: Iterable[tuple[int, int, Run]], start_offset: int = 0) -> tuple[StateBatch, ...]:
    """The state batches of ascending, disjoint runs, without offsets below ``start_offset``."""
    batches: list[StateBatch] = []
    for first, last, run in runs:
        if last < start_offset or (state_and_count := _state_and_count(run)) is None:
            continue
        batch = StateBatch(max(first, start_offset), last, *state_and_count)
        before = batches[-1] if batches else None
        if before is not None and before[1:] == (batch.first_offset - 1, *state_and_count):
            batch = batches.pop()._replace(last_offset=last)
        batches.append(batch)
    return tuple(batches)


def _state_and_count(run: Run) -> tuple[RecordState, int] | None:
    """State and delivery count of a record without its lock; None if it was never acquired. A count is at most the
    largest that Kafka's format holds: sharegroup's own records have it in full."""
    state, count = run.state, run.delivery_count
    if state == RecordState.ACQUIRED:
        state, count = RecordState.AVAILABLE, count - 1
    elif state == RecordState.IN_PROGRESS:
        state = RecordState.AVAILABLE
    if state == RecordState.AVAILABLE and not count:
        return None
    return state, min(count, MAX_DELIVERY_COUNT)
