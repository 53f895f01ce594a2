"""The snapshot of a large group, in steps: one step after each round, so that requests wait for one step at most.

Rule: the snapshot shows the group as it was at one moment. Records that are appended while it is written follow at its
end. So a load after a crash finds the old log with these records, or the snapshot with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.core.looks.snapshot import GroupCut
from coordinator.core.record_codec import encode_records
from coordinator.core.share_group import ShareGroup
from coordinator.service.stores.store import Store

STEPS_FROM_RUNS = 10_000
"""A group with this many runs gets its snapshot in steps; a smaller one takes some hundredths of a second."""
SNAPSHOT_AGAIN_MS = 60_000
RUNS_A_STEP = 5_000
"""One step writes this many runs: some milliseconds, and a transaction."""
RUNS_AN_UPDATE = 20
"""A snapshot waits for one append per this many runs of the group (or for SNAPSHOT_AFTER_BYTES). A group with a million
runs has one after 50,000 appends at the earliest: more frequent snapshots would leave time for little else. A load
reads these appends about as fast as the snapshot."""
SNAPSHOT_AFTER_BYTES = 32 << 20
"""A log is snapshotted after this many bytes of appends: an append with staged outcomes can be a megabyte."""
REST_AFTER_MS = 300_000
"""A group is checked for unloading after this many milliseconds without a request."""


@dataclass(kw_only=True, slots=True)
class Log:
    """The state of a served group's log. ``updates`` and ``size_bytes``: the appends since its last snapshot.
    ``snapshot_ms`` and ``asked_ms``: the times of the last snapshot and request. ``busy_ms``: when the group was last
    found not to be at rest."""

    updates: int
    snapshot_ms: int
    asked_ms: int
    size_bytes: int = 0
    busy_ms: int = 0

    def upkeep_ms(self, cold_after_ms: int) -> int:
        """The time at which a snapshot, or the unloading of the group, is due. A snapshot delays no unloading."""
        if self.updates:
            return self.snapshot_ms + cold_after_ms
        return max(self.asked_ms + REST_AFTER_MS, self.busy_ms + cold_after_ms)

    def is_long(self, group: ShareGroup, snapshot_after: int) -> bool:
        if self.size_bytes >= SNAPSHOT_AFTER_BYTES:
            return True
        return self.updates >= snapshot_after and self.updates >= runs_of(group) // RUNS_AN_UPDATE


class Pause(NamedTuple):
    """The pause before a group's failed snapshot is tried again."""

    pause_ms: int = SNAPSHOT_AGAIN_MS // 2
    until_ms: int = 0


class SnapshotInSteps:
    """The snapshot of a group that is being written."""

    def __init__(self, store: Store, group: ShareGroup, now_ms: int) -> None:
        self._tail: list[bytes] = []
        records = map(encode_records, GroupCut(group).steps(RUNS_A_STEP))
        self._steps = store.snapshot_in_steps(group, records, self._tail, now_ms)

    def appended(self, records: Sequence[bytes]) -> None:
        """Add what was appended to the group since the snapshot was begun. Omit nothing."""
        self._tail += records

    def write_step(self) -> bool:
        """Write the next step. Returns whether the snapshot is written whole. Raises StoreRefused or
        StoreOutcomeUnknown: see :meth:`Store.snapshot_in_steps`."""
        return next(self._steps, self) is self


def is_large(group: ShareGroup) -> bool:
    """Whether the group's snapshot is made in steps."""
    return runs_of(group) >= STEPS_FROM_RUNS


def runs_of(group: ShareGroup) -> int:
    """The number of the group's runs."""
    return sum(len(partition.runs) for partition in group.partitions.values())
