"""Replay of the records of members: joins, sessions, and what a snapshot keeps of a member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.core.log_records import (
    AssignmentMade,
    BatchNamed,
    MemberJoined,
    MemberProgressKept,
    MemberSeen,
    MembersForgotten,
    MemberWaits,
    PartitionsAssigned,
    QueryEnded,
    SessionEnded,
    SessionRenewed,
    TaskSignalled,
)
from coordinator.core.members import Member, TaskSignal
from coordinator.core.runs import Progress
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import SharePartitionKey


def _member_joined(group: ShareGroup, record: MemberJoined) -> None:
    member = group.members.get(record.member_id)
    if member is None:
        member = group.members[record.member_id] = Member(record.member_id, 0, "", record.query)
    if (member.topics, member.topic_pattern) != (record.topics, record.topic_pattern) and not record.query:
        group.assignment_is_old = True
    for name in record.__struct_fields__:
        setattr(member, name, getattr(record, name))


def _session_renewed(group: ShareGroup, record: SessionRenewed) -> None:
    member = group.members[record.member_id]
    if not member.active and member.is_assigned:
        group.assignment_is_old = True
    group.keep_session(member, record.deadline_ms)
    group.unheard.discard(record.member_id)


def _session_ended(group: ShareGroup, record: SessionEnded) -> None:
    member = group.members[record.member_id]
    if member.is_assigned:
        group.assignment_is_old = True
    group.end_session(member)
    group.unheard.discard(record.member_id)


def _member_waits(group: ShareGroup, record: MemberWaits) -> None:
    group.waiting[record.member_id] = record


def _assignment_made(group: ShareGroup, record: AssignmentMade) -> None:
    group.assignment_epoch = record.assignment_epoch


def _partitions_assigned(group: ShareGroup, record: PartitionsAssigned) -> None:
    assigned: dict[str, list[SharePartitionKey]] = {}
    for member_id, topic_id, partitions in record.assigned:
        assigned.setdefault(member_id, []).extend(SharePartitionKey(topic_id, index) for index in partitions)
    group.assignment = {member_id: frozenset(keys) for member_id, keys in assigned.items()}
    group.assigned_ms, group.assignment_is_old = record.now_ms, False


def _member_seen(group: ShareGroup, record: MemberSeen) -> None:
    group.members[record.member_id].seen_ms = record.seen_ms


def _members_forgotten(group: ShareGroup, record: MembersForgotten) -> None:
    for member_id in record.member_ids:
        del group.members[member_id]
        group.unheard.discard(member_id)
    group.forgotten_epoch = record.forgotten_epoch
    if record.unreported_losses is not None:
        group.unreported_losses = record.unreported_losses


def _member_progress_kept(group: ShareGroup, record: MemberProgressKept) -> None:
    member = group.members[record.member_id]
    for name in record.__struct_fields__:
        setattr(member, name, getattr(record, name))
    member.completed = record.completed or None


def _query_ended(group: ShareGroup, record: QueryEnded) -> None:
    group.members[record.member_id].ending = record.ending


MOST_TASKS = 100
"""A plan keeps the signals of up to this many tasks: those that signalled last."""


def _task_signalled(group: ShareGroup, record: TaskSignalled) -> None:
    plan = group.members[record.member_id].newest
    assert plan is not None
    before = plan.signals.pop(record.task, None)
    if before is None:
        progress = Progress(record.now_ms, record.now_ms, record.hint or "")
    else:
        hint = before.progress.hint if record.hint is None else record.hint
        progress = Progress(before.progress.first_ms, max(before.progress.last_ms, record.now_ms), hint)
    plan.signals[record.task] = TaskSignal(record.host, progress)
    if len(plan.signals) > MOST_TASKS:
        del plan.signals[next(iter(plan.signals))]


def _batch_named(group: ShareGroup, record: BatchNamed) -> None:
    plan = group.plans.get(record.plan_id)
    if plan is not None:  # else no run carries the plan's id any more, and nobody asks for its batch
        plan.batch_id = record.batch_id


REPLAY_MEMBERS: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    MemberJoined: _member_joined,
    SessionRenewed: _session_renewed,
    MemberWaits: _member_waits,
    SessionEnded: _session_ended,
    AssignmentMade: _assignment_made,
    PartitionsAssigned: _partitions_assigned,
    MemberSeen: _member_seen,
    MembersForgotten: _members_forgotten,
    MemberProgressKept: _member_progress_kept,
    QueryEnded: _query_ended,
    TaskSignalled: _task_signalled,
    BatchNamed: _batch_named,
}
