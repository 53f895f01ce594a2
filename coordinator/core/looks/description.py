"""Describes a group for people: share partitions with start offset and lag, members, and counts of records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Generic, TypeAlias

import msgspec

from coordinator.config.resolved import in_force
from coordinator.core.flow import flow_of
from coordinator.core.isolation import stage_of
from coordinator.core.looks.ending_queries import shown
from coordinator.core.members import Member
from coordinator.core.order import holding_plan
from coordinator.core.record_state import HELD
from coordinator.core.release_breaker import TRIES_KEPT_MS, is_open, keeps_tries
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.admin_messages import ListOffsets, OffsetsListed
from coordinator.protocol.messages import (
    AwaitedRecord,
    DescribeGroup,
    GroupDescription,
    GroupRequest,
    MemberDescription,
    PartitionBounds,
    PartitionDescription,
    RecordCounts,
    ReleaseBreaker,
    Reply,
    TopicPartitions,
)
from coordinator.protocol.values import Disposition, SharePartitionKey

Subscribed: TypeAlias = tuple[Any, ...]

MOST_MEMBERS = 1_000
"""One description shows up to this many members, those with a session first."""
MOST_ASSIGNED = 10_000
"""One description shows up to this many assigned partitions, of all members together."""

MOST_LOOKED_AT = 1_000
"""The first held record of a share partition is searched in up to this many runs: many may wait for dead letters."""


class WithLag(GroupRequest[Reply], Generic[Reply], frozen=True, kw_only=True):
    """A DescribeGroup or a ListOffsets with the ``bounds`` of the logs; the lag of other partitions stays None."""

    request: GroupRequest[Reply]
    bounds: tuple[PartitionBounds, ...]


def with_lag(group: ShareGroup, command: WithLag[Any], now_ms: int) -> GroupDescription | OffsetsListed:
    """The answer to the request in ``command``, with the lag."""
    if isinstance(command.request, ListOffsets):
        return _offsets(group, command.request, command.bounds, now_ms)
    return describe_group(group, command.bounds, now_ms)


def describe(group: ShareGroup, request: DescribeGroup, now_ms: int) -> GroupDescription:
    """The group's state, without the lag."""
    return describe_group(group, now_ms=now_ms)


def list_offsets(group: ShareGroup, request: ListOffsets, now_ms: int) -> OffsetsListed:
    """The share partitions of the group's current topics, without the lag."""
    return _offsets(group, request, (), now_ms)


def describe_group(group: ShareGroup, bounds: Iterable[PartitionBounds] = (), now_ms: int = 0) -> GroupDescription:
    """The group's state; the lag is None for share partitions that ``bounds`` do not name. Up to MOST_MEMBERS members
    and MOST_ASSIGNED assigned partitions are shown, with their total numbers."""
    ends = _ends(bounds)
    current = set(group.topics.values())
    members = sorted(group.members.values(), key=lambda member: not member.active)
    return GroupDescription(
        group_id=group.group_id,
        state=state_of(group),
        incarnation=group.incarnation,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        partitions=tuple(
            _partition(group, partition, ends.get(key), now_ms)
            for key, partition in sorted(group.partitions.items())
            if key.topic_id in current
        ),
        members=_members(group, members[:MOST_MEMBERS], now_ms),
        members_total=len(members),
        configs=dict(group.configs),
        records=describe_counts(group),
        forgotten=_forgotten(group),
        limited_by=flow_of(group, now_ms).limited_by,
        in_force=in_force(group.configs, group.bounds),
    )


def describe_counts(group: ShareGroup) -> RecordCounts:
    """The counts of all share partitions that the group has or had."""
    totals, still_there = group.totals()
    counts = msgspec.structs.asdict(totals)
    for name in ("archived", "without_dead_letter"):
        counts[name] = _by_disposition(counts[name])
    return RecordCounts(**counts, still_there=still_there, unaccounted=totals.left - still_there)


def _forgotten(group: ShareGroup) -> dict[str, dict[str, int]]:
    """By topic name and partition: the highest end among the forgotten topics of that name."""
    found: dict[str, dict[str, int]] = {}
    for topic in group.forgotten_topics.values():
        ends = found.setdefault(topic.topic, {})
        for index, end, _ in topic.ends:
            ends[str(index)] = max(end, ends.get(str(index), 0))
    return found


def state_of(group: ShareGroup) -> str:
    """EMPTY, STABLE or DEAD (KIP-932)."""
    if not group.exists:
        return "DEAD"
    return "STABLE" if any(member.active for member in group.members.values()) else "EMPTY"


def _members(group: ShareGroup, members: Iterable[Member], now_ms: int) -> tuple[MemberDescription, ...]:
    of_queries: dict[Subscribed, list[SharePartitionKey]] = {}
    slowed = slowed_queries(group)
    left = MOST_ASSIGNED
    found = []
    for member in members:
        assigned = _assigned(group, member, of_queries)
        found.append(
            MemberDescription(
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                active=member.active,
                newest_plan=group.plan_id_text(member.newest.plan_id) if member.newest is not None else "",
                topics=member.topics,
                topic_pattern=member.topic_pattern,
                client_id=member.name,
                client_host=member.client_host,
                client_pid=member.client_pid,
                checkpoint=member.checkpoint,
                assigned_total=len(assigned),
                assignment=topic_partitions(group, assigned[:left]),
                breaker=slowed.get(member.member_id),
                ending=shown(group, member, now_ms),
                waits=(waits := group.waiting.get(member.member_id)) is not None and waits.until_ms > now_ms,
            )
        )
        left = max(0, left - len(assigned))
    return tuple(found)


def slowed_queries(group: ShareGroup) -> dict[str, ReleaseBreaker]:
    """The open breakers of the queries with a session, by member id. Empty once nothing is in flight: an idle query's
    breaker stays open, since there is no batch to judge by, and slows nothing."""
    if not group.has_records_in_flight:
        return {}
    open_ones = ((member.member_id, open_breaker(group, member)) for member in group.members.values() if member.active)
    return {member_id: breaker for member_id, breaker in open_ones if breaker is not None}


def open_breaker(group: ShareGroup, member: Member) -> ReleaseBreaker | None:
    """The member's breaker on releases; None: it is closed."""
    breaker = member.breaker
    if breaker is None or not is_open(breaker, group.config):
        return None
    return ReleaseBreaker(
        since_ms=breaker.since_ms,
        until_ms=breaker.until_ms,
        released=breaker.released,
        records=breaker.records,
        keeps_tries=keeps_tries(breaker, group.config),
        tries_kept_until_ms=breaker.until_ms + max(0, TRIES_KEPT_MS - breaker.paused_ms),
    )


def _assigned(
    group: ShareGroup, member: Member, of_queries: dict[Subscribed, list[SharePartitionKey]]
) -> list[SharePartitionKey]:
    """The partitions that the member acquires from, in order: those that are assigned to it, or all in its
    subscription. ``of_queries`` is a cache of the latter."""
    if not member.active:
        return []
    if member.is_assigned:
        return sorted(group.assignment.get(member.member_id, ()))
    named = member.assign or {}
    subscribed = (*member.subscription, tuple(sorted(named.items())))
    if subscribed not in of_queries:
        names = group.topic_names
        of_queries[subscribed] = [
            SharePartitionKey(topic_id, index)
            for topic_id, partitions in sorted(group.existing_partitions().items())
            for index in sorted(partitions)
            if index in named.get(names[topic_id], ()) or member.subscribes(names[topic_id])
        ]
    return of_queries[subscribed]


def topic_partitions(group: ShareGroup, keys: Iterable[SharePartitionKey]) -> tuple[TopicPartitions, ...]:
    """The partitions by the names of their topics, both in order."""
    found: dict[str, list[int]] = {}
    for key in sorted(keys):
        found.setdefault(group.topic_names[key.topic_id], []).append(key.partition)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(of_topic)) for topic, of_topic in sorted(found.items()))


def _offsets(group: ShareGroup, request: ListOffsets, bounds: Iterable[PartitionBounds], now_ms: int) -> OffsetsListed:
    ends = _ends(bounds)
    names = {topic_id: topic for topic, topic_id in group.topics.items()}
    shown = sorted((names[key.topic_id], key.partition, key) for key in group.partitions if key.topic_id in names)
    listed = tuple(
        _partition(group, group.partitions[key], ends.get(key), now_ms)
        for topic, _, key in shown
        if (not request.topics or topic in request.topics)
        and (not request.partitions or key.partition in request.partitions)
    )
    return OffsetsListed(partitions=listed)


def _ends(bounds: Iterable[PartitionBounds]) -> dict[SharePartitionKey, int]:
    return {SharePartitionKey(b.topic_id, b.partition): b.end for b in bounds}


def awaited(group: ShareGroup, partition: SharePartition, now_ms: int) -> AwaitedRecord | None:
    """The record that holds up the share partition of an ordered group; None if there is none, or if nobody holds it
    and its topic is paused."""
    if not group.config.is_ordered:
        return None
    plan = holding_plan(group, partition)
    if plan is None and group.config.is_paused(group.topic_names[partition.key.topic_id]):
        return None
    if plan is None:
        front = next(partition.runs.all_available(), None)
    else:
        first_runs = islice(partition.runs.whole_from(partition.start_offset), MOST_LOOKED_AT)
        front = next((each for each in first_runs if each.run.state in HELD), None)
    if front is None:
        return None
    run = front.run
    until_ms = run.not_before_ms if (run.not_before_ms or 0) > now_ms else None
    if plan is None and until_ms is None and not run.quarantined:
        return None
    since_ms = run.failed_alone_ms
    if since_ms is None and plan is not None:
        since_ms = plan.acquired_ms
    elif since_ms is None and until_ms is not None and run.delay_ms is not None:
        since_ms = until_ms - run.delay_ms
    member = None if plan is None else group.members.get(plan.member_id)
    return AwaitedRecord(
        offset=max(front.first, partition.start_offset),
        stage=stage_of(run, group.config.share_delivery_count_limit, on_trial=plan is not None and plan.trial).value,
        tries=run.tries,
        since_ms=since_ms,
        until_ms=until_ms,
        member_id="" if plan is None else plan.member_id,
        client_id="" if member is None else member.name,
        client_host="" if member is None else member.client_host,
    )


def _partition(group: ShareGroup, partition: SharePartition, end: int | None, now_ms: int) -> PartitionDescription:
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
        accepted=partition.counts.accepted,
        removed=partition.counts.removed,
        deleted=partition.counts.deleted,
        skipped=partition.counts.skipped,
        repeated=partition.counts.repeated,
        without_dead_letter=_by_disposition(partition.counts.without_dead_letter),
        archived=_by_disposition(partition.counts.archived),
        runs_total=len(partition.runs),
        waits_for=awaited(group, partition, now_ms),
    )


def _by_disposition(counts: Iterable[int]) -> dict[str, int]:
    """The counts that are not 0, by the name of their disposition."""
    return {Disposition(kind).name.lower(): count for kind, count in enumerate(counts) if count}
