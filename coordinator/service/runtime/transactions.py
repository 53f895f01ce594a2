"""The transactions of the requests (:data:`coordinator.service.runtime.runtime.Transaction`).

Rule: no I/O in here. The service looks up the brokers' answers before, and passes them in :class:`Facts`. A
transaction runs in one round, so completing, initialising and acquiring are one store transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AlterConfigs,
    ArchiveGaps,
    CompletePlan,
    CreateGroup,
    InitializePartitions,
    MoveLogStarts,
    PartitionStart,
    StartOrReclaimPlan,
    TopicPartitions,
)
from coordinator.core.commands.complete_plan import nobody_decides
from coordinator.core.members import Member
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import undecided
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupIdNotFound, NothingDecided
from coordinator.protocol.messages import (
    AcquiredReply,
    AcquireRecords,
    GivenUp,
    GroupRequest,
    Joined,
    JoinGroup,
    MemberRequest,
    NextPlan,
    PartitionBounds,
    PlanReply,
    Reply,
    StartPlan,
)
from coordinator.protocol.values import OffsetRange
from coordinator.service.brokers.cluster import TopicAndPartition
from coordinator.service.brokers.log_gaps import LogRange
from coordinator.service.brokers.partition_starts import Known, Start, where_to_begin
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition
from coordinator.service.runtime.runtime import Transaction, TransactionSteps, ask

QUARANTINED_AT_ONCE = 10
"""Quarantined records of a partition that are looked for in the log at a time: they are delivered one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """The part of a group's state that a handler needs before it asks the brokers.

    ``topics``: names by id, without the topics that the group knows to be deleted (``gone``). ``past``: ids of topics
    that are deleted or that a newer topic of the same name replaced. ``fetch_from``: the first offset that was never
    acquired, by (topic id, partition). ``plan``: the partitions of the plan that was asked for.

    ``quarantined``: the quarantined records that are delivered next, one by one. ``unproven``: the ranges of the
    member's plan, if its completion would be the member's first evidence while records are quarantined. ``undecided``:
    the offsets of an explicit plan that no sink decided, which its completion releases. ``decides``: a sink has decided
    a record of this member before.

    For a join only: ``config`` as the join would set it, and ``known``, the topics and subscriptions before it.
    """

    group_id: str
    exists: bool
    topic_ids: bool
    read_committed: bool
    subscription: Subscription | None = None
    known: Known = field(default_factory=Known)
    topics: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    past: frozenset[str] = frozenset()
    fetch_from: Mapping[tuple[str, int], int] = field(default_factory=dict)
    plan: frozenset[tuple[str, str, int]] = frozenset()
    quarantined: tuple[LogRange, ...] = ()
    unproven: tuple[LogRange, ...] = ()
    undecided: tuple[LogRange, ...] = ()
    decides: bool = True
    config: GroupConfig | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The brokers' answers: the subscribed ``partitions``, their log starts and ends.

    ``gaps``: quarantined offsets without a record. ``processed``: the plan to complete had a record.
    ``undecided_gaps``: offsets without a record among those that no sink decided; ``undecided_left``: how many of these
    offsets must still be read.
    """

    partitions: list[TopicIdPartition]
    log_starts: Mapping[TopicAndPartition, int]
    ends: Mapping[TopicAndPartition, int]
    gaps: tuple[OffsetRange, ...] = ()
    processed: bool = True
    undecided_gaps: tuple[OffsetRange, ...] = ()
    undecided_left: int = 0


def look(request: MemberRequest[Any], plan_id: str = "") -> Transaction[View]:
    """The view of a member with a live session. With ``plan_id``, ``View.plan`` names the partitions of that plan.

    Raises:
        GroupIdNotFound: the group does not exist.
        UnknownMemberId, FencedMemberEpoch: the member has no session of this epoch.
    """

    def transaction(group: ShareGroup) -> TransactionSteps[View]:
        yield from ()  # makes a transaction without commands a generator, too
        if not group.exists:
            raise GroupIdNotFound(group_id=request.group_id)
        member = group.member(request.member_id, request.member_epoch)
        held = group.plan_topic_ids(member, plan_id) if plan_id else set()
        return view(group, member, frozenset((group.topic_names[t], t, p) for t, p in held))

    return transaction


def look_before_join(request: JoinGroup) -> Transaction[View]:
    """The view of a group that may not exist yet, with the configs that the join would set.

    Raises:
        ShareGroupError: a config of the request is refused.
    """

    def transaction(group: ShareGroup) -> TransactionSteps[View]:
        yield from ()
        config = GroupConfig.parse({**group.configs, **request.configs})
        return View(
            group_id=group.group_id,
            exists=group.exists,
            topic_ids=group.topic_ids,
            read_committed=config.share_isolation_level == "read_committed",
            known=Known.of(group),
            fetch_from=_fetch_from(group),
            gone=frozenset(group.gone),
            config=config,
        )

    return transaction


def view(group: ShareGroup, member: Member | None, plan: frozenset[tuple[str, str, int]] = frozenset()) -> View:
    """The view of the group, with the member's subscription."""
    aside = _quarantined(group)
    return View(
        group_id=group.group_id,
        exists=group.exists,
        topic_ids=group.topic_ids,
        read_committed=group.config.share_isolation_level == "read_committed",
        subscription=None if member is None else Subscription.of(member),
        topics={topic_id: topic for topic_id, topic in group.topic_names.items() if topic_id not in group.gone},
        gone=frozenset(group.gone),
        past=past_ids(group),
        fetch_from=_fetch_from(group),
        plan=plan,
        quarantined=aside,
        unproven=_unproven(group, member) if aside and member is not None else (),
        undecided=() if member is None else _undecided(group, member),
        decides=member is None or not nobody_decides(member),
    )


def _quarantined(group: ShareGroup) -> tuple[LogRange, ...]:
    """The next quarantined records of each partition whose topic exists."""
    found = []
    for key, partition in group.partitions.items():
        if not group.is_current(key.topic_id):
            continue
        for first, last, _ in islice(partition.runs.quarantined(), QUARANTINED_AT_ONCE):
            last = min(last, first + QUARANTINED_AT_ONCE - 1)
            found.append(LogRange(group.topic_names[key.topic_id], OffsetRange(*key, first, last)))
    return tuple(found)


def _unproven(group: ShareGroup, member: Member) -> tuple[LogRange, ...]:
    plan = member.pending
    if plan is None or not plan.counts_as_evidence or member.evidence:
        return ()
    return tuple(
        LogRange(group.topic_names[partition.key.topic_id], OffsetRange(*partition.key, segment.first, segment.last))
        for partition, segments in group.carrying(plan)
        if group.is_current(partition.key.topic_id)
        for segment in segments
    )


def _undecided(group: ShareGroup, member: Member) -> tuple[LogRange, ...]:
    plan = member.pending
    if plan is None or not plan.explicit:
        return ()
    return tuple(
        LogRange(group.topic_names[partition.key.topic_id], OffsetRange(*partition.key, first, last))
        for partition, segments in group.carrying(plan)
        if group.is_current(partition.key.topic_id)
        for first, last in undecided(segments, plan.staged.get(partition.key, []))
    )


def _fetch_from(group: ShareGroup) -> dict[tuple[str, int], int]:
    return {(key.topic_id, key.partition): partition.end_offset for key, partition in group.partitions.items()}


def join(request: JoinGroup, *, topic_ids: bool, starts: Mapping[TopicIdPartition, Start]) -> Transaction[Joined]:
    """Create the group if it is new, join, set configs that differ, and initialise partitions without a start offset.
    The rule for their start is chosen here, since other members may have joined since the offsets were looked up.

    Raises:
        CoordinatorNotAvailable: the group was created meanwhile, or the start offsets of its rule were not looked up.
    """

    def transaction(group: ShareGroup) -> TransactionSteps[Joined]:
        begins = where_to_begin(group, starts)  # by the subscriptions before this one
        GroupConfig.parse({**group.configs, **request.configs})  # a join that is refused creates no group
        if not group.exists:
            yield from ask(CreateGroup(incarnation=uuid.uuid4().hex[:8], topic_ids=topic_ids))
        elif topic_ids != group.topic_ids and starts:
            raise CoordinatorNotAvailable(group_id=request.group_id, reason="it was created meanwhile")
        joined = yield from ask(request)
        if any(group.configs.get(key) != value for key, value in request.configs.items()):
            yield from ask(AlterConfigs(configs=dict(request.configs)))
            # The same process joins again: the epoch stays, and the session is as it is configured now.
            joined = yield from ask(request)
        yield from initialize(group, begins)
        return joined

    return transaction


def next_plan(request: NextPlan, facts: Facts) -> Transaction[PlanReply]:
    """Complete the plan ``start``, then acquire the next plan, in one transaction.

    Raises:
        NothingDecided: no sink has ever decided a record of this member; the plan is given back.
    """

    def transaction(group: ShareGroup) -> TransactionSteps[PlanReply]:
        given_up: tuple[GivenUp, ...] = ()
        if request.start:
            done = yield from ask(
                CompletePlan(
                    member_id=request.member_id,
                    member_epoch=request.member_epoch,
                    plan_id=request.start,
                    processed=facts.processed,
                    gaps=facts.undecided_gaps,
                )
            )
            if done.undecided:
                raise NothingDecided(group_id=group.group_id)
            given_up = done.given_up
        if facts.gaps:
            yield from ask(ArchiveGaps(gaps=facts.gaps))
        known = _existing(group, facts)
        # Partitions and topics that were added after the join begin at their earliest record.
        yield from initialize(group, {p: facts.log_starts[p.topic_partition] for p in known})
        yield from move_log_starts(known, facts)
        reply = yield from ask(
            AcquirePlan(
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                start=request.start,
                max_records=request.max_records,
                bounds=bounds(known, facts, request.until),
                topics=_unreported_topics(group, group.member(request.member_id, request.member_epoch)),
            )
        )
        return msgspec.structs.replace(reply, given_up=given_up) if given_up else reply

    return transaction


def _existing(group: ShareGroup, facts: Facts) -> list[TopicIdPartition]:
    """The partitions that the brokers answered for, without those of a topic that the group has seen deleted since the
    view was taken."""
    past = past_ids(group)
    return [p for p in facts.partitions if p.topic_partition in facts.log_starts and p.topic_id not in past]


def past_ids(group: ShareGroup) -> frozenset[str]:
    """The ids of topics that the group knew and that are deleted or replaced; an id never comes back."""
    return frozenset(topic_id for topic_id in group.topic_names if not group.is_current(topic_id))


def _unreported_topics(group: ShareGroup, member: Member) -> tuple[str, ...]:
    """The subscribed topics of which the group has losses that are not reported yet."""
    names = {lost.topic for lost in group.unreported_losses if lost.topic}
    subscription = Subscription.of(member)
    return tuple(sorted(name for name in names if subscription.has(name)))


def acquire_records(request: AcquireRecords, facts: Facts) -> Transaction[AcquiredReply]:
    """Acquire records for a ShareConsumer, within what the logs hold now."""

    def transaction(group: ShareGroup) -> TransactionSteps[AcquiredReply]:
        known = _existing(group, facts)
        yield from initialize(group, {p: facts.log_starts[p.topic_partition] for p in known})
        yield from move_log_starts(known, facts)
        reply = yield from ask(AcquireForConsumer(**msgspec.structs.asdict(request), bounds=bounds(known, facts, None)))
        return reply

    return transaction


def start_plan(
    request: StartPlan, facts: Facts, *, gone: frozenset[str], unsubscribed: frozenset[str]
) -> Transaction[PlanReply]:
    """Start or reclaim the plan, within what the logs hold of it now."""

    def transaction(group: ShareGroup) -> TransactionSteps[PlanReply]:
        reply = yield from ask(
            StartOrReclaimPlan(
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                plan_id=request.plan_id,
                bounds=bounds(facts.partitions, facts, None),
                deleted_topic_ids=gone,
                unsubscribed_topic_ids=unsubscribed,
                fail_on_data_loss=request.fail_on_data_loss,
                acknowledgement_mode=request.acknowledgement_mode,
            )
        )
        return msgspec.structs.replace(reply, isolation_level=group.config.share_isolation_level)

    return transaction


def initialize(group: ShareGroup, starts: Mapping[TopicIdPartition, int]) -> TransactionSteps[None]:
    """Give partitions without a start offset theirs, before their first acquire."""
    new = {
        p: start
        for p, start in starts.items()
        if not group.initialized(p.topic_id, p.partition) or p.topic_id in group.gone
    }
    if not new:
        return
    topics: dict[tuple[str, str], int] = {}
    for p in new:
        topics[p.topic, p.topic_id] = max(topics.get((p.topic, p.topic_id), 0), p.partition + 1)
    yield from ask(
        InitializePartitions(
            topics=tuple(TopicPartitions(topic=t, topic_id=i, partitions=count) for (t, i), count in topics.items()),
            starts=tuple(
                PartitionStart(topic_id=p.topic_id, partition=p.partition, start_offset=start)
                for p, start in new.items()
            ),
        )
    )


def move_log_starts(partitions: list[TopicIdPartition], facts: Facts) -> TransactionSteps[None]:
    """Tell the group the log starts of the partitions."""
    yield from ask(
        MoveLogStarts(
            starts=tuple(
                PartitionStart(
                    topic_id=p.topic_id, partition=p.partition, start_offset=facts.log_starts[p.topic_partition]
                )
                for p in partitions
                if facts.log_starts[p.topic_partition] > 0
            )
        )
    )


def bounds(
    partitions: list[TopicIdPartition], facts: Facts, until: Mapping[str, Mapping[str, int]] | None
) -> tuple[PartitionBounds, ...]:
    """The bounds of the logs, cut at ``until`` where that is given; partitions that ``until`` does not name are left
    out."""
    found = []
    for p in partitions:
        cap = None if until is None else until.get(p.topic, {}).get(str(p.partition), -1)
        end = facts.ends.get(p.topic_partition, facts.log_starts.get(p.topic_partition))
        if end is not None and p.topic_partition in facts.log_starts and cap != -1:
            found.append(
                PartitionBounds(
                    topic_id=p.topic_id,
                    partition=p.partition,
                    log_start=facts.log_starts[p.topic_partition],
                    end=end if cap is None else min(end, cap),
                )
            )
    return tuple(found)


def single_command(command: GroupRequest[Reply]) -> Transaction[Reply]:
    """The transaction that is this command, for a group that exists.

    Raises:
        GroupIdNotFound: the group does not exist.
    """

    def transaction(group: ShareGroup) -> TransactionSteps[Reply]:
        if not group.exists:
            raise GroupIdNotFound(group_id=command.group_id)
        return (yield from ask(command))

    return transaction
