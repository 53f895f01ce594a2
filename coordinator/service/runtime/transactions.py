"""What each request does with its group: transactions for the runtime
(:data:`coordinator.service.runtime.runtime.Transaction`).

Rule: no I/O in here. What only the broker knows was looked up before and is handed over in :class:`Facts`; a
transaction runs in one round, so that what it completes, initialises and acquires is one store transaction.
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
"""So many are looked for in the log at a time: they are delivered one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What a handler needs to know of a group before it asks the broker.

    ``quarantined``: records that are delivered alone, the next ones. ``unproven``: the ranges of the member's plan, if
    its completion would be the member's first evidence while records are set aside. ``undecided``: of a plan in
    explicit mode, those that no sink decided, which its completion releases; ``decides``: one has decided something
    once. ``config``: as the join would set it, if it is one, and what is ``known`` before it. ``topics``: names by id,
    of those that the group does not know to be ``gone``; ``past``: those that are, or that another topic came after.
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
    """What the broker said: the subscribed partitions, their log starts and ends; starts for new ones; set-aside
    offsets that are ``gaps``; whether the plan to complete had a record (``processed``), and which of its offsets that
    nobody decided are none (``undecided_gaps``), or how many of those must still be read (``undecided_left``)."""

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
        yield from ()  # a transaction is a generator, also one that commands nothing
        if not group.exists:
            raise GroupIdNotFound(group_id=request.group_id)
        member = group.member(request.member_id, request.member_epoch)
        held = group.plan_topic_ids(member, plan_id) if plan_id else set()
        return view(group, member, frozenset((group.topic_names[t], t, p) for t, p in held))

    return transaction


def look_before_join(request: JoinGroup) -> Transaction[View]:
    """The view of a group that may not exist yet, with the configs that the join would set (its named errors)."""

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
    """The group as it is, with the member's subscription."""
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
    """The next ones of each partition that is there, one by one."""
    found = []
    for key, partition in group.partitions.items():
        if not group.is_current(key.topic_id):
            continue
        for _, first in islice(partition.runs.quarantined, QUARANTINED_AT_ONCE):
            segment = partition.runs.starting_at(first)
            assert segment is not None
            last = min(segment.last, first + QUARANTINED_AT_ONCE - 1)
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
    """Create the group if it is new, set configs that differ, join, and initialise what has no start offset yet. By
    which rule that begins is decided here: others may have joined since it was looked up."""

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
    """Complete ``start``, then acquire the next plan: one transaction. NothingDecided, once the plan is given back."""

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
        known = _there(group, facts)
        # A partition that came after the join is new, and so is a topic: they begin at their earliest record.
        yield from initialize(group, {p: facts.log_starts[p.topic_partition] for p in known})
        yield from move_log_starts(known, facts)
        reply = yield from ask(
            AcquirePlan(
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                start=request.start,
                max_records=request.max_records,
                bounds=bounds(known, facts, request.until),
                topics=_only_to_tell(group, group.member(request.member_id, request.member_epoch)),
            )
        )
        return msgspec.structs.replace(reply, given_up=given_up) if given_up else reply

    return transaction


def _there(group: ShareGroup, facts: Facts) -> list[TopicIdPartition]:
    """Without partitions of which the brokers told nothing, or whose topic is gone by now: who names it goes by an old
    look."""
    past = past_ids(group)
    return [p for p in facts.partitions if p.topic_partition in facts.log_starts and p.topic_id not in past]


def past_ids(group: ShareGroup) -> frozenset[str]:
    """Ids of topics that were there and are not any more; an id never comes back."""
    return frozenset(topic_id for topic_id in group.topic_names if not group.is_current(topic_id))


def _only_to_tell(group: ShareGroup, member: Member) -> tuple[str, ...]:
    """Topics that the member asks for and that the group has lost something of."""
    names = {lost.topic for lost in group.unreported_losses if lost.topic}
    subscription = Subscription.of(member)
    return tuple(sorted(name for name in names if subscription.has(name)))


def acquire_records(request: AcquireRecords, facts: Facts) -> Transaction[AcquiredReply]:
    """Acquire for a ShareConsumer, of what the logs hold now."""

    def transaction(group: ShareGroup) -> TransactionSteps[AcquiredReply]:
        known = _there(group, facts)
        yield from initialize(group, {p: facts.log_starts[p.topic_partition] for p in known})
        yield from move_log_starts(known, facts)
        reply = yield from ask(AcquireForConsumer(**msgspec.structs.asdict(request), bounds=bounds(known, facts, None)))
        return reply

    return transaction


def start_plan(
    request: StartPlan, facts: Facts, *, gone: frozenset[str], unsubscribed: frozenset[str]
) -> Transaction[PlanReply]:
    """Take the plan up with what the log holds of it now."""

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
    """Append start offsets of partitions that have none, before their first acquire."""
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
    """Tell the group where the logs begin now."""
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
    """What the logs hold, below ``until`` where that is given; partitions that it does not name are left out."""
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
