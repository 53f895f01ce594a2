"""Combines an update with the state before it: for each offset the more advanced state wins.

The state with the larger delivery count is more advanced; of two with the same count, the larger delivery state is
(KIP-932, "Share coordinator"; Kafka's PersisterStateBatchCombiner, docs/trust/facts.md, K34). So a late update reverts
nothing, and the order of updates makes no difference. An update can't lower a record; a snapshot can."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from coordinator.core.runs import Run, RunMap
from coordinator.state_log.record_values import StateBatch

_progress = attrgetter("delivery_count", "state")


def combine(
    batches: Iterable[StateBatch], newer: Iterable[StateBatch], start_offset: int | None
) -> tuple[StateBatch, ...]:
    """Both lists combined by the rule above: ascending, disjoint, equal neighbours merged, nothing below
    ``start_offset``. The batches of either list may overlap, and may come in any order."""
    runs = RunMap()
    for batch in (*batches, *newer):
        advance(runs, batch)
    if start_offset is not None:
        drop_below(runs, start_offset)
    return tuple([StateBatch(first, last, run.state, run.delivery_count) for first, last, run in runs])


def advance(runs: RunMap, batch: StateBatch) -> None:
    """Merges the batch into the map. Where they overlap, the larger (delivery count, state) wins."""
    new = Run(batch.delivery_state, batch.delivery_count)
    pieces = []
    at = batch.first_offset
    for first, last, run in runs.between(batch.first_offset, batch.last_offset):
        if at < first:
            pieces.append((at, first - 1, new))
        pieces.append((first, last, max(run, new, key=_progress)))
        at = last + 1
    if at <= batch.last_offset:
        pieces.append((at, batch.last_offset, new))
    runs.replace(pieces)


def drop_below(runs: RunMap, start_offset: int) -> None:
    """Removes the records below ``start_offset``."""
    while (lowest := runs.first()) is not None and lowest.first < start_offset:
        runs.drop(lowest.first)
        if lowest.last >= start_offset:
            runs.put(start_offset, lowest.last, lowest.run)
