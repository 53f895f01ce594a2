"""View a group: what the service must know of it before it asks the brokers. Nothing is changed.

A view may be old when it is used; the commands that follow decide again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from coordinator.core.commands.acquire_for_consumer import may_acquire
from coordinator.core.commands.acquisition import room
from coordinator.core.commands.complete_plan import nobody_decides
from coordinator.core.flow import flow_of
from coordinator.core.members import Member
from coordinator.core.order import due_after
from coordinator.core.record_state import HELD
from coordinator.core.release_breaker import pause_ms
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import undecided
from coordinator.protocol.messages import MemberRequest
from coordinator.protocol.values import AlteredStart, OffsetRange, SharePartitionKey

MOST_NAMED = 20
"""The log of a query names up to this many share partitions whose start offsets were altered."""
QUARANTINED_AT_ONCE = 10
"""A view has up to this many quarantined records of a partition, for the check that the log still holds them: they are
delivered one by one."""


class LogRange(NamedTuple):
    """Offsets of a share partition, with the name of their topic, which requests to the brokers need."""

    topic: str
    offsets: OffsetRange

    @property
    def topic_partition(self) -> tuple[str, int]:
        return self.topic, self.offsets.partition


class Subscribed(NamedTuple):
    """A member's subscription, as the member joined with it."""

    topics: tuple[str, ...]
    topic_pattern: str | None
    assign: Mapping[str, tuple[int, ...]] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTopics:
    """The topics that a group knows and that exist as far as it knows: names by id. ``past``: ids of topics that were
    deleted, or that a newer topic of the same name replaced. ``topic_ids``: the ids are the cluster's own.
    ``waits_from``: if the group has share.record.ttl.ms, the first offset that is AVAILABLE or held, and the first that
    was never acquired; else empty."""

    group_id: str
    topic_ids: bool
    read_committed: bool
    topics: Mapping[str, str]
    past: frozenset[str]
    record_ttl_ms: int | None
    waits_from: Mapping[SharePartitionKey, tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupView(KnownTopics):
    """The group as a member with a session sees it, and the member's subscription.

    gone: ids of topics that were deleted, as far as the group knows.
    fetch_from: the first offset that was never acquired, by (topic id, partition).
    plan: the partitions of the plan that was asked for, as (topic, topic id, partition).
    to_check: the partitions of the member's plan if its tasks go on without records that are gone; then the plan's
        completion depends on what the logs hold. Else empty.
    quarantined: the quarantined records that are delivered next, one by one.
    unproven: the ranges of the member's plan if records are quarantined and the plan's completion would be the member's
        first evidence. Else empty.
    undecided: the offsets of an explicit plan that no sink decided; the plan's completion releases them.
    decides: False only while the member's plan is in explicit mode and no sink has ever decided a record of the member.
    delivery_delay_ms: the age that a record has at least when it is first delivered.
    assigned: the partitions that the member may acquire from. None: all in its subscription, or an assignment is due.
    due_in_ms: in how many milliseconds the member may find more to acquire although nobody changes the group: a record
        is no longer delayed, the query's breaker ends its pause, or the group's rate allows more. None: never.
    """

    subscribed: Subscribed
    gone: frozenset[str]
    fetch_from: Mapping[tuple[str, int], int]
    plan: frozenset[tuple[str, str, int]]
    to_check: frozenset[tuple[str, str, int]]
    quarantined: tuple[LogRange, ...]
    unproven: tuple[LogRange, ...]
    undecided: tuple[LogRange, ...]
    decides: bool
    delivery_delay_ms: int
    assigned: frozenset[SharePartitionKey] | None = None
    due_in_ms: int | None = None


class ViewGroup(MemberRequest[GroupView], frozen=True):
    """Asks for the group as a member sees it, with the partitions of the plan ``plan_id`` if that is not empty."""

    plan_id: str = ""


def view_group(group: ShareGroup, command: ViewGroup, now_ms: int) -> GroupView:
    """The view of a member with a live session.

    Raises:
        ForeignPlan: the plan is of another incarnation of the group.
    """
    member = group.member(command.member_id, command.member_epoch)
    held = group.plan_partitions(member, command.plan_id)
    pending = member.pending
    to_check = () if pending is None or pending.fail_on_data_loss else pending.ranges
    quarantined = _quarantined(group)
    return GroupView(
        **_known(group),
        subscribed=Subscribed(member.topics, member.topic_pattern, member.assign),
        gone=frozenset(group.gone),
        fetch_from=fetch_from(group),
        plan=frozenset((group.topic_names[topic_id], topic_id, index) for topic_id, index in held),
        to_check=frozenset(
            (group.topic_names[topic_id], topic_id, index)
            for topic_id, index, _ in to_check
            if topic_id in group.topic_names
        ),
        quarantined=quarantined,
        unproven=_unproven(group, member) if quarantined else (),
        undecided=_undecided(group, member),
        decides=not nobody_decides(member),
        delivery_delay_ms=group.config.share_delivery_delay_ms,
        assigned=_assigned(group, member),
        due_in_ms=_due_in_ms(group, member, now_ms),
    )


def known_topics(group: ShareGroup) -> KnownTopics:
    """Returns the topics that the group knows."""
    return KnownTopics(**_known(group))


def _known(group: ShareGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "topic_ids": group.topic_ids,
        "read_committed": group.config.share_isolation_level == "read_committed",
        "topics": {topic_id: topic for topic_id, topic in group.topic_names.items() if topic_id not in group.gone},
        "past": past_ids(group),
        "record_ttl_ms": group.config.share_record_ttl_ms,
        "waits_from": {} if group.config.share_record_ttl_ms is None else _waits_from(group),
    }


def _waits_from(group: ShareGroup) -> dict[SharePartitionKey, tuple[int, int]]:
    found = {}
    for key, partition in group.partitions.items():
        front = None if partition.acquired_count else next(partition.runs.all_available(), None)
        first = partition.end_offset if front is None else front.first
        found[key] = partition.start_offset if partition.acquired_count else first, partition.end_offset
    return found


def _assigned(group: ShareGroup, member: Member) -> frozenset[SharePartitionKey] | None:
    if not member.is_assigned or group.assignment_is_old:
        return None
    return group.assignment.get(member.member_id, frozenset())


def _due_in_ms(group: ShareGroup, member: Member, now_ms: int) -> int | None:
    """As GroupView.due_in_ms. What only a change of the group makes available is left out: the change is news."""
    if (flow := flow_of(group, now_ms)).limited_by:
        return flow.retry_ms or None
    if left_ms := pause_ms(member.breaker, group.config, now_ms):
        return left_ms
    found = [
        due_ms - now_ms
        for key, partition in group.partitions.items()
        if partition.runs.timed  # asked first: most requests of most groups find none
        and (due_ms := due_after(group, partition, now_ms)) is not None
        and room(group, partition, 0) > 0
        and may_acquire(group, member, key)
        and not group.config.is_paused(group.topic_names[key.topic_id])
    ]
    return min(found, default=None)


def past_ids(group: ShareGroup) -> frozenset[str]:
    """The ids of topics that the group knew and that were deleted or replaced since."""
    return frozenset(topic_id for topic_id in group.topic_names if not group.is_current(topic_id))


def _quarantined(group: ShareGroup) -> tuple[LogRange, ...]:
    """The next quarantined records of each partition whose topic exists."""
    found = []
    for key, partition in group.partitions.items():
        if not (partition.runs.has_quarantined and group.is_current(key.topic_id)):
            continue
        for first, last, _ in islice(partition.runs.quarantined(), QUARANTINED_AT_ONCE):
            last = min(last, first + QUARANTINED_AT_ONCE - 1)
            found.append(_log_range(group, partition, first, last))
    return tuple(found)


def _log_range(group: ShareGroup, partition: SharePartition, first: int, last: int) -> LogRange:
    return LogRange(group.topic_names[partition.key.topic_id], OffsetRange(*partition.key, first, last))


def _unproven(group: ShareGroup, member: Member) -> tuple[LogRange, ...]:
    plan = member.pending
    if plan is None or not plan.counts_as_evidence or member.evidence:
        return ()
    return tuple(
        _log_range(group, partition, segment.first, segment.last)
        for partition, segments in group.carrying(plan)
        if group.is_current(partition.key.topic_id)
        for segment in segments
    )


def _undecided(group: ShareGroup, member: Member) -> tuple[LogRange, ...]:
    plan = member.pending
    if plan is None or not plan.explicit:
        return ()
    return tuple(
        _log_range(group, partition, first, last)
        for partition, segments in group.carrying(plan)
        if group.is_current(partition.key.topic_id)
        for first, last in undecided(segments, plan.staged.get(partition.key, []))
    )


def fetch_from(group: ShareGroup) -> dict[tuple[str, int], int]:
    """The first offset that was never acquired, by (topic id, partition)."""
    return {(key.topic_id, key.partition): partition.end_offset for key, partition in group.partitions.items()}


def reads_topic(group: ShareGroup, topic: str, *, without: str = "") -> bool:
    """Whether a member with a session subscribes to the topic, or a member holds records of it; that the group has read
    the topic before does not matter. ``without``: a member that does not count, since it is about to subscribe anew."""
    live = (group.members[member_id] for member_id in group.sessions if member_id != without)
    if any(member.subscribes(topic) or topic in (member.assign or {}) for member in live):
        return True
    topic_id = group.topics.get(topic)
    return topic_id is not None and any(
        partition.key.topic_id == topic_id and any(segment.run.state in HELD for segment in segments)
        for plan in group.plans.values()
        if plan.member_id != without
        for partition, segments in group.carrying(plan)
    )


def altered_since(group: ShareGroup, plan_id: int) -> tuple[int, tuple[AlteredStart, ...]]:
    """The number of share partitions whose start offsets were altered since the plan was acquired, and the first
    MOST_NAMED of them. Each poll of a query calls this, so no share partition is scanned if there was no alteration."""
    if plan_id > group.last_altered_after:
        return 0, ()
    found = sorted(
        (key, by)
        for key, by in group.altered_by.items()
        if (p := group.partitions.get(key) or group.deleted_partitions.get(key)) and p.altered_after >= plan_id
    )
    named = []
    for key, by in found[:MOST_NAMED]:
        partition = group.partitions.get(key)
        start = None if partition is None else partition.start_offset
        named.append(AlteredStart(group.topic_names.get(key.topic_id, key.topic_id), key.partition, start, by))
    return len(found), tuple(named)
