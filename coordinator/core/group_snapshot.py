"""A snapshot: the records that rebuild a group as it is, in place of its log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.record_state import RecordState
from coordinator.core.records import (
    ConfigsAltered,
    DataLost,
    GroupCreated,
    GroupProgressKept,
    MemberJoined,
    MemberProgressKept,
    PartitionInitialized,
    PlanKept,
    PlanStaged,
    Record,
    RunsChanged,
    TopicDeleted,
    TopicRegistered,
)
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey

if TYPE_CHECKING:
    from coordinator.core.share_group import ShareGroup


def snapshot_of(group: ShareGroup) -> Iterator[Record]:
    """Records that rebuild this group from an empty one; live plans and numbers among them."""
    if not group.exists:
        return
    yield GroupCreated(incarnation=group.incarnation, topic_ids=group.topic_ids)
    if group.configs:
        yield ConfigsAltered(configs=dict(group.configs))
    # Older ids of a name first: share partitions and plans of a topic that is gone are still known by it.
    for topic_id in sorted(group.topic_names, key=lambda topic_id: topic_id not in group.old_topics):
        yield TopicRegistered(topic=group.topic_names[topic_id], topic_id=topic_id)
    for topic_id in sorted(group.gone):
        yield TopicDeleted(topic_id=topic_id)
    for member in group.members.values():
        yield _member_record(member)
    yield GroupProgressKept(
        last_plan_id=group.last_plan_id,
        decided=group.decided,
        rejected=group.rejected,
        forgotten_epoch=group.forgotten_epoch,
        assignment_epoch=group.assignment_epoch,
    )
    for plan in _kept_plans(group):
        yield _plan_record(group, plan)
    yield from _staged_records(group)
    for member in group.members.values():
        yield MemberProgressKept(
            member_id=member.member_id,
            completed=member.completed or 0,
            evidence=member.evidence,
            decides=member.decides,
            query_id=member.query_id,
        )
    for key, partition in group.partitions.items():
        yield from _partition_records(key, partition)
    yield from group.deleted_partitions.values()
    if group.unreported_losses:
        yield DataLost(lost=group.unreported_losses)


def _staged_records(group: ShareGroup) -> Iterator[PlanStaged]:
    for plan in group.plans.values():
        if plan.staged:
            partitions = tuple((*key, tuple(runs)) for key, runs in plan.staged.items())
            yield PlanStaged(plan_id=plan.plan_id, member_id=plan.member_id, partitions=partitions)


def _kept_plans(group: ShareGroup) -> list[AcquiredPlan]:
    newest = [m.newest for m in group.members.values() if m.newest is not None]
    return sorted({p.plan_id: p for p in [*group.plans.values(), *newest]}.values(), key=lambda p: p.plan_id)


def _plan_record(group: ShareGroup, plan: AcquiredPlan) -> PlanKept:
    return PlanKept(
        plan_id=plan.plan_id,
        member_id=plan.member_id,
        member_epoch=plan.member_epoch,
        acquired_ms=plan.acquired_ms,
        trial=plan.trial,
        started=plan.started,
        counts_as_evidence=plan.counts_as_evidence,
        newest=group.members[plan.member_id].newest is plan,
        carried=plan.plan_id in group.plans,
        data_loss=plan.data_loss,
        unreported_losses=plan.unreported_losses,
        left_out=plan.left_out,
        ranges=plan.ranges,
        reclaims=plan.reclaims,
        superseded_plans=plan.superseded_plans,
        explicit=plan.explicit,
        explicit_attempts=plan.explicit_attempts,
        replaces=plan.replaces,
    )


def _member_record(member: Member) -> MemberJoined:
    return MemberJoined(**{name: getattr(member, name) for name in MemberJoined.__struct_fields__})


def _partition_records(key: SharePartitionKey, partition: SharePartition) -> Iterator[Record]:
    archived = list(partition.archived)  # less those of the runs, which are counted when the runs are replayed
    for first, last, run in partition.runs:
        if run.state == RecordState.ARCHIVED:
            archived[run.disposition] -= last - first + 1
    yield PartitionInitialized(
        topic_id=key.topic_id,
        partition=key.partition,
        start_offset=partition.start_offset,
        log_start=partition.log_start,
        archived=tuple(archived) if any(archived) else (),
        end_offset=partition.end_offset,
        highest_count=partition.highest_count,
        altered_after=partition.altered_after,
    )
    runs = tuple((segment.first, segment.last, segment.run) for segment in partition.runs)
    if runs:
        yield RunsChanged(topic_id=key.topic_id, partition=key.partition, runs=runs)
