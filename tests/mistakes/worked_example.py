"""Mistakes that the worked example of KIP-932 finds (tests/kip932)."""

from __future__ import annotations

from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.share_partition import SharePartition
from tests.mistakes.mistake import Make, Patch
from tests.mistakes.recordings import forget_to_append_runs, give_a_count_back, keep_the_lock_at_its_deadline


def fresh_records_before_those_that_came_back(patch: Patch) -> None:
    def take(self: acquire_records.PartitionFetch) -> None:
        self._take_fresh()
        self._take_returned()

    patch.setattr(acquire_records.PartitionFetch, "take", take)


def never_move_the_start_offset(patch: Patch) -> None:
    patch.setattr(SharePartition, "_advance", lambda self: None)


MISTAKES: list[Make] = [
    give_a_count_back,
    keep_the_lock_at_its_deadline,
    fresh_records_before_those_that_came_back,
    never_move_the_start_offset,
    forget_to_append_runs,
]
