"""A group as people see it: share partitions with start offset and lag, members, runs in flight."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from coordinator.core.members import Member
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import GroupDescription, MemberDescription, PartitionBounds, PartitionDescription
from coordinator.protocol.values import Disposition

MOST_RUNS = 10_000
"""Runs that one description shows, of all partitions together."""
MOST_MEMBERS = 1_000
"""Members that one description shows, those with a session first."""


def describe_group(group: ShareGroup, bounds: Iterable[PartitionBounds] = ()) -> GroupDescription:
    """The group's state; the lag of a share partition is None where no ``bounds`` name it. At most MOST_RUNS runs and
    MOST_MEMBERS members are shown, beside their total numbers."""
    ends = {(b.topic_id, b.partition): b.end for b in bounds}
    current = set(group.topics.values())
    shown = [partition for key, partition in sorted(group.partitions.items()) if key.topic_id in current]
    left = MOST_RUNS
    partitions = []
    for partition in shown:
        end = ends.get((partition.key.topic_id, partition.key.partition))
        partitions.append(_partition(group, partition, end, left))
        left -= len(partitions[-1].runs)
    members = sorted(group.members.values(), key=lambda member: not member.active)
    return GroupDescription(
        group_id=group.group_id,
        state=_state(group),
        incarnation=group.incarnation,
        partitions=tuple(partitions),
        members=tuple(_member(group, member) for member in members[:MOST_MEMBERS]),
        members_total=len(members),
        configs=dict(group.configs),
    )


def _state(group: ShareGroup) -> str:
    if not group.exists:
        return "DEAD"
    return "STABLE" if any(member.active for member in group.members.values()) else "EMPTY"


def _member(group: ShareGroup, member: Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        active=member.active,
        newest_plan=group.plan_id_text(member.newest.plan_id) if member.newest is not None else "",
        topics=member.topics,
    )


def _partition(group: ShareGroup, partition: SharePartition, end: int | None, most: int) -> PartitionDescription:
    return PartitionDescription(
        topic=group.topic_names[partition.key.topic_id],
        topic_id=partition.key.topic_id,
        partition=partition.key.partition,
        start_offset=partition.start_offset,
        end_offset=partition.end_offset,
        lag=None if end is None else partition.lag(end),
        acquired=partition.acquired_count,
        archiving=partition.archiving_count,
        archived_total=partition.archived_total,
        archived={Disposition(kind).name.lower(): count for kind, count in enumerate(partition.archived) if count},
        runs_total=len(partition.runs),
        runs=tuple(
            {
                "first": first,
                "last": last,
                "state": run.state.name,
                "delivery_count": run.delivery_count,
                "failures": run.failures,
                "releases": run.releases,
                "plan": group.plan_id_text(run.plan_id or 0),
                "member": _holder(group, run.plan_id),
                "quarantined": run.quarantined,
                "not_before_ms": run.not_before_ms,
                "disposition": run.disposition.name.lower() if run.disposition else "",
                "reason": run.reason,
            }
            for first, last, run in islice(partition.runs, most)
        ),
    )


def _holder(group: ShareGroup, acquisition: int | None) -> str:
    plan = group.plans.get(acquisition) if acquisition is not None else None
    return "" if plan is None else plan.member_id
