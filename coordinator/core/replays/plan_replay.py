"""Replay of the records of plans: acquisitions, starts, what sinks staged, completions, and the losses that plans
report."""

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
from coordinator.core.members import AcquiredPlan, PlanRanges, plan_from, with_ranges
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import staged_with
from coordinator.protocol.values import SharePartitionKey


def _plan_acquired(group: ShareGroup, record: PlanAcquired) -> None:
    member = group.members[record.member_id]
    plan = plan_from(record, member)
    plan.explicit, plan.superseded_plans = record.explicit, record.superseded_plans
    plan.unreported_losses = record.unreported_losses
    if record.ranges:
        group.plans[record.plan_id] = plan
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
    plan.ranges = _still_held(group, plan)


def _still_held(group: ShareGroup, plan: AcquiredPlan) -> PlanRanges:
    """The plan's ranges that still carry its plan id. Replay computes them from the runs, which are logged: a plan
    may have 10,000 ranges, and a record that repeated them would be larger than all the others of a start."""
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
    """Replay merges the outcomes with those staged before: the record holds a sink's own outcomes only, since all
    that is staged of a plan may be larger by far than what one commit adds."""
    member = group.members[record.member_id]
    member.decides = member.decides or not _is_of_the_driver(record)
    if record.query_id is not None:
        member.query_id = record.query_id
    if record.query_name is not None:
        member.query_name = record.query_name
    if record.checkpoint is not None:
        member.checkpoint = record.checkpoint
    if record.reject_window is not None:
        group.decided, group.rejected = record.reject_window
    plan = group.plans.get(record.plan_id)
    if plan is None:
        return
    if record.explicit is not None:  # an older version's: there a sink could change the mode
        plan.explicit = record.explicit
    if record.replaces is not None:
        plan.replaces = record.replaces
    if record.explicit_attempts is not None:
        plan.explicit_attempts = record.explicit_attempts
    for topic_id, index, runs in record.partitions:
        key = SharePartitionKey(topic_id, index)
        plan.staged[key] = staged_with(plan.staged.get(key, []), list(runs))


def _is_of_the_driver(record: PlanStaged) -> bool:
    """Whether the driver rejected unreadable records, and no sink decided anything."""
    verdicts = (verdict for _, _, runs in record.partitions for _, _, verdict in runs)
    return bool(record.partitions) and all(verdict.unreadable for verdict in verdicts)


def _plan_completed(group: ShareGroup, record: PlanCompleted) -> None:
    member = group.members[record.member_id]
    member.completed, member.evidence, member.breaker = record.plan_id, record.evidence, record.breaker
    if record.reject_window is not None:
        group.decided, group.rejected = record.reject_window
    assert member.newest is not None
    # Only the plan id of a completed plan is needed.
    member.newest.staged, member.newest.ranges, member.newest.left_out = {}, (), ()
    member.newest.data_loss, member.newest.superseded_plans = (), ()


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


def _plan_kept(group: ShareGroup, record: PlanKept) -> None:
    member = group.members[record.member_id]
    plan = plan_from(record, member)
    plan.started, plan.counts_as_evidence = record.started, record.counts_as_evidence
    plan.data_loss, plan.unreported_losses, plan.left_out = (
        record.data_loss,
        record.unreported_losses,
        record.left_out,
    )
    plan.superseded_plans, plan.reclaims = record.superseded_plans, record.reclaims
    plan.explicit, plan.explicit_attempts, plan.replaces = (
        record.explicit,
        record.explicit_attempts,
        record.replaces,
    )
    plan.fail_on_data_loss = record.fail_on_data_loss
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
