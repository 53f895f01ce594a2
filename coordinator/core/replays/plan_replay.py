"""Replay of the records of plans: acquisitions, starts, staged outcomes, completions, and losses to report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator.core.left_out import bounded
from coordinator.core.log_records import (
    DataLost,
    EvidenceCleared,
    EvidenceUsed,
    PlanAcquired,
    PlanCompleted,
    PlanKept,
    PlanStaged,
    PlanStarted,
    RangesAdded,
)
from coordinator.core.members import AcquiredPlan, Member, PlanRanges, plan_from, with_ranges
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import staged_with
from coordinator.protocol.values import SharePartitionKey


def _plan_acquired(group: ShareGroup, record: PlanAcquired) -> None:
    member = group.members[record.member_id]
    plan = plan_from(record, member)
    if record.ranges:
        group.plans[record.plan_id] = plan
        group.waiting.pop(record.member_id, None)
        if group.config.share_max_records_per_second is not None:
            group.recent.add(record.acquired_ms, plan.records)
    group.last_plan_id = record.plan_id
    member.seen_ms = max(member.seen_ms, record.acquired_ms)
    member.acquisitions += 1
    if member.query:
        _drop_reported_losses(group, record.reported_topic_ids)
        member.newest = plan


def _drop_reported_losses(group: ShareGroup, topic_ids: tuple[str, ...]) -> None:
    group.unreported_losses = tuple(lost for lost in group.unreported_losses if lost.topic_id not in topic_ids)


def _ranges_added(group: ShareGroup, record: RangesAdded) -> None:
    newest = group.members[record.member_id].newest
    plan = newest if newest is not None and newest.plan_id == record.plan_id else group.plans[record.plan_id]
    plan.ranges = with_ranges(plan.ranges, record.ranges)


def _plan_started(group: ShareGroup, record: PlanStarted) -> None:
    _drop_reported_losses(group, record.reported_topic_ids)
    member = group.members[record.member_id]
    plan = member.newest
    assert plan is not None
    if record.replaced_plan_id is not None:
        plan = member.newest = replace(
            plan, plan_id=record.plan_id, trial=False, superseded_plans=(), explicit_attempts=(), staged={}, signals={}
        )
    if record.member_epoch != plan.member_epoch:
        plan.signals = {}
    plan.member_epoch, plan.started, plan.reclaims = record.member_epoch, record.started, record.reclaims
    plan.counts_as_evidence = record.started
    plan.explicit, plan.replaces, plan.fail_on_data_loss = record.explicit, None, record.fail_on_data_loss
    plan.data_loss, plan.left_out = record.data_loss, record.left_out
    plan.unreported_losses = record.unreported_losses
    plan.lost_if_completed = record.unreported_losses if record.explicit else ()
    plan.ranges = _still_held(group, plan)


def _still_held(group: ShareGroup, plan: AcquiredPlan) -> PlanRanges:
    """The plan's ranges that still carry its plan id. Replay computes them from the runs: a plan may have 10,000
    ranges, and a record that repeated them would be larger than all other records of a start."""
    held = []
    for partition, segments in group.carrying(plan):
        ranges: list[tuple[int, int]] = []
        for first, last, _ in segments:
            if ranges and ranges[-1][1] == first - 1:
                first = ranges.pop()[0]
            ranges.append((first, last))
        held.append((partition.key.topic_id, partition.key.partition, tuple(ranges)))
    return tuple(held)


def _plan_staged(group: ShareGroup, record: PlanStaged) -> None:
    """Merge the outcomes with those staged before. The record holds one commit's outcomes only, since all that is
    staged of a plan may be much larger."""
    member = group.members[record.member_id]
    member.decides = member.decides or not _is_of_the_driver(record)
    _set_known(member, record, "query_id", "query_name", "checkpoint")
    if record.reject_window is not None:
        group.decided, group.rejected = record.reject_window
    plan = group.plans.get(record.plan_id)
    if plan is None:
        return
    # Only an older version's record has ``explicit``: a sink could change the mode.
    _set_known(plan, record, "explicit", "replaces", "explicit_attempts")
    for topic_id, index, runs in record.partitions:
        key = SharePartitionKey(topic_id, index)
        plan.staged[key] = staged_with(plan.staged.get(key, []), list(runs))


def _set_known(target: Member | AcquiredPlan, record: PlanStaged, *names: str) -> None:
    """Give ``target`` the record's values of these fields; where the record has None, the value before stays."""
    for name in names:
        if (value := getattr(record, name)) is not None:
            setattr(target, name, value)


def _is_of_the_driver(record: PlanStaged) -> bool:
    """Whether the record holds only the driver's rejects of unreadable records, and no sink's outcome."""
    verdicts = (verdict for _, _, runs in record.partitions for _, _, verdict in runs)
    return bool(record.partitions) and all(verdict.unreadable for verdict in verdicts)


def _plan_completed(group: ShareGroup, record: PlanCompleted) -> None:
    member = group.members[record.member_id]
    member.completed, member.evidence, member.breaker = record.plan_id, record.evidence, record.breaker
    member.ending = None
    if record.reject_window is not None:
        group.decided, group.rejected = record.reject_window
    assert member.newest is not None
    # Nothing but the plan id of a completed plan is needed any more.
    member.newest.staged, member.newest.ranges, member.newest.left_out = {}, (), ()
    member.newest.data_loss, member.newest.superseded_plans = (), ()
    member.newest.unreported_losses, member.newest.lost_if_completed = (), ()


def _evidence_cleared(group: ShareGroup, record: EvidenceCleared) -> None:
    for member in group.members.values():
        member.evidence = False
        if member.newest is not None:
            member.newest.counts_as_evidence = False


def _evidence_used(group: ShareGroup, record: EvidenceUsed) -> None:
    group.members[record.member_id].evidence = False


def _data_lost(group: ShareGroup, record: DataLost) -> None:
    if record.plan_id is None or record.member_id is None:
        group.unreported_losses = bounded((*group.unreported_losses, *record.lost))
        return
    plan = group.members[record.member_id].newest
    assert plan is not None and plan.plan_id == record.plan_id
    plan.unreported_losses = bounded((*plan.unreported_losses, *record.lost))
    plan.lost_if_completed = bounded((*plan.lost_if_completed, *record.lost_if_completed))


def _plan_kept(group: ShareGroup, record: PlanKept) -> None:
    member = group.members[record.member_id]
    plan = plan_from(record, member)
    if record.carried:
        group.plans[record.plan_id] = plan
    if record.newest:
        member.newest = plan


REPLAY_PLANS: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    PlanAcquired: _plan_acquired,
    RangesAdded: _ranges_added,
    PlanStarted: _plan_started,
    PlanStaged: _plan_staged,
    PlanCompleted: _plan_completed,
    EvidenceCleared: _evidence_cleared,
    EvidenceUsed: _evidence_used,
    DataLost: _data_lost,
    PlanKept: _plan_kept,
}
