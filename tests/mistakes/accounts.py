"""Counts of records that are wrong: what Kafka removed, and what a reset skips and repeats, is not counted, or as
something else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from coordinator.core import failed_deliveries
from coordinator.core.commands import reclaim_plan
from coordinator.core.log_records import LogStartMoved, Record
from coordinator.core.looks import snapshot
from coordinator.core.members import AcquiredPlan
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import ONE_RECORD


@mistake(rules.OFFSETS_ARE_ACCOUNTED_FOR, explorer=(SmallWorld(ONE_RECORD, Budget(1, retention=1)),), model=0)
def count_nothing_that_kafka_removed(patch: Patch) -> None:
    right = SharePartition.move_log_start

    def move_log_start(self: SharePartition, log_start: int, archived: int = 0, *, is_deleted: bool = False) -> None:
        removed = self.counts.removed
        right(self, log_start, archived, is_deleted=is_deleted)
        self.counts.removed = removed

    patch.setattr(SharePartition, "move_log_start", move_log_start)


@mistake(rules.REASONS_ARE_TRUE, simulator=(Seeds("removals"),), model=0)
def count_what_a_start_finds_removed_as_gaps(patch: Patch) -> None:
    right = failed_deliveries.removed_records

    def removed_records(group: ShareGroup, segments: Iterable[Any]) -> list[Record]:
        return [record for record in right(group, segments) if not isinstance(record, LogStartMoved)]

    patch.setattr(reclaim_plan, "removed_records", removed_records)


@mistake(rules.REASONS_ARE_TRUE, simulator=(Seeds("removals"),), model=0)
def accept_what_a_batch_went_on_without(patch: Patch) -> None:
    patch.setattr(AcquiredPlan, "is_unread", lambda *arguments: False)


@mistake(rules.REASONS_ARE_TRUE, model=0)
def forget_in_snapshots_that_tasks_go_on_without_records(patch: Patch) -> None:
    right = snapshot._plan_record
    patch.setattr(
        snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), fail_on_data_loss=True)
    )


@mistake(rules.OFFSETS_ARE_ACCOUNTED_FOR, model=0)
def count_nothing_that_a_reset_skips(patch: Patch) -> None:
    right = SharePartition._count_reset

    def count_reset(self: SharePartition, anew: SharePartition) -> None:
        right(self, anew)
        anew.counts.skipped = self.counts.skipped

    patch.setattr(SharePartition, "_count_reset", count_reset)


@mistake(rules.OFFSETS_ARE_ACCOUNTED_FOR, model=0)
def count_a_deleted_topics_records_as_removed(patch: Patch) -> None:
    right = SharePartition._count_removed

    def count_removed(self: SharePartition, number: int, *, is_deleted: bool) -> None:
        right(self, number, is_deleted=False)

    patch.setattr(SharePartition, "_count_removed", count_removed)
