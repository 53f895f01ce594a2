"""Mistakes in the records that a process appends, and in their load by the next process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from coordinator.core.log_records import PlanAcquired, PlanStaged, PlanStarted, Record, TopicRegistered
from coordinator.core.looks import snapshot
from coordinator.core.replays import partition_replay as partitions
from coordinator.core.runs import Run, RunMap
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.service.runtime import snapshots, transactions
from coordinator.service.runtime.snapshots import SnapshotInSteps
from tests.mistakes import rules
from tests.mistakes.mistake import WITH_SINKS, Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import ONE_RECORD, REJECTS, TWO


@mistake(
    rules.START_OFFSET_FIRST,
    tests=("core/test_groups::test_a_later_partitions_start_is_appended_before_its_first_acquire",),
    explorer=(SmallWorld(ONE_RECORD, Budget(1, partitions=1)),),
)
def acquire_without_a_start_offset(patch: Patch) -> None:
    patch.setattr(transactions, "initialize", lambda group, starts: iter(()))


@mistake(
    rules.START_OFFSET_FIRST,
    tests=("core/test_groups::test_a_resolved_start_offset_is_appended_before_the_first_acquire",),
)
def resolve_the_start_offset_at_the_first_acquire(patch: Patch) -> None:
    right = transactions.join
    patch.setattr(
        transactions, "join", lambda request, *, topic_ids, starts: right(request, topic_ids=topic_ids, starts={})
    )


@mistake(rules.ACQUISITION_IS_DURABLE, explorer=(SmallWorld(ONE_RECORD, Budget(1, restarts=1)),), simulator=(Seeds(),))
def acquire_without_appending(patch: Patch) -> None:
    patch.setattr(PlanAcquired, "durable", False)


@mistake(rules.ONE_FAILURE_A_DELIVERY, simulator=(Seeds(),))
def start_without_appending(patch: Patch) -> None:
    patch.setattr(PlanStarted, "durable", False)


@mistake(rules.SNAPSHOT_IS_WHOLE, explorer=(SmallWorld(ONE_RECORD, Budget(1, restarts=1)),), simulator=(Seeds(),))
def leave_live_plans_out_of_snapshots(patch: Patch) -> None:
    patch.setattr(snapshot, "_kept_plans", lambda self: [])


@mistake(rules.SNAPSHOT_IS_WHOLE, simulator=(Seeds(),))
def leave_appends_out_of_the_snapshot_that_is_under_way(patch: Patch) -> None:
    patch.setattr(snapshots, "STEPS_FROM_RUNS", 1)
    patch.setattr(snapshots, "RUNS_A_STEP", 1)
    patch.setattr(SnapshotInSteps, "appended", lambda self, records: None)


@mistake(rules.NEWEST_PLAN_REPLAYS_EMPTY, explorer=(SmallWorld(ONE_RECORD, Budget(1, expiries=1, pauses=1)),))
def forget_newest_plans_without_runs(patch: Patch) -> None:
    right = partitions._drop_plans_nobody_carries

    def drop(group: ShareGroup, partition: SharePartition) -> None:
        right(group, partition)
        for member in group.members.values():
            if member.newest is not None and member.newest.plan_id < min(group.plans, default=0):
                member.newest = None

    patch.setattr(partitions, "_drop_plans_nobody_carries", drop)


@mistake(
    rules.ACQUISITION_IS_DURABLE,
    tests=("core/test_membership::test_after_a_load_every_holder_has_one_session_to_come_back",),
    explorer=(SmallWorld(ONE_RECORD, Budget(2, restarts=1, crashes=1)),),
)
def nobody_comes_back_after_a_load(patch: Patch) -> None:
    patch.setattr(ShareGroup, "loaded", lambda self, *known: None)


@mistake(
    rules.SNAPSHOT_IS_WHOLE,
    explorer=(SmallWorld(REJECTS, Budget(1, restarts=1)),),
    simulator=(Seeds("sinks", WITH_SINKS),),
    model=0,
)
def leave_staged_outcomes_out_of_snapshots(patch: Patch) -> None:
    patch.setattr(snapshot, "_staged_records", lambda self: iter(()))


@mistake(rules.SNAPSHOT_IS_WHOLE, simulator=(Seeds("sinks", 105),), model=4)
def forget_disagreements_in_snapshots(patch: Patch) -> None:
    right = snapshot._staged_records

    def records(self: ShareGroup) -> Iterator[PlanStaged]:
        for record in right(self):
            partitions = tuple(
                (topic_id, index, tuple((f, last, verdict._replace(disagrees=False)) for f, last, verdict in runs))
                for topic_id, index, runs in record.partitions
            )
            yield msgspec.structs.replace(record, partitions=partitions)

    patch.setattr(snapshot, "_staged_records", records)


@mistake(
    rules.TOPIC_IS_ITS_ID,
    explorer=(SmallWorld(ONE_RECORD, Budget(2, restarts=1, topics=1)),),
    simulator=(Seeds("topics", 29),),
    model=0,
)
def forget_the_names_of_deleted_topics_in_snapshots(patch: Patch) -> None:
    right = snapshot._before_partitions

    def before(group: ShareGroup) -> Iterator[Record]:
        for record in right(group):
            if not isinstance(record, TopicRegistered) or group.topics[record.topic] == record.topic_id:
                yield record

    patch.setattr(snapshot, "_before_partitions", before)


@mistake(rules.ALIKE_NEIGHBOURS_ARE_ONE_RUN, explorer=(SmallWorld(TWO, Budget(1, crashes=1)),))
def merge_runs_of_one_state(patch: Patch) -> None:
    """Neighbours in the same state are merged, whatever else differs."""
    patch.setattr(Run, "__eq__", lambda run, other: run.state == other.state)


@mistake(rules.ALIKE_NEIGHBOURS_ARE_ONE_RUN, simulator=(Seeds(),))
def merge_unequal_runs(patch: Patch) -> None:
    """Neighbours that differ in their counts only are merged."""
    right = RunMap.replace

    def replace(self: RunMap, pieces: Any) -> None:
        right(self, pieces)
        first, last = pieces[0][0] - 1, pieces[-1][1] + 1
        near = [s for s in self if s.last >= first and s.first <= last]
        for before, after in itertools.pairwise(near):
            run = after.run
            counts = {"delivery_count": run.delivery_count, "failures": run.failures, "releases": run.releases}
            if before.last == after.first - 1 and before.run._replace(**counts) == run:
                right(self, [(before.first, after.last, run)])
                return

    patch.setattr(RunMap, "replace", replace)
