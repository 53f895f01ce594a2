"""The transactions of the requests (:data:`coordinator.service.runtime.transaction.Transaction`).

Rule: no I/O in here. The service asks the brokers beforehand, and passes their answers in :class:`Facts`. A transaction
runs in one round, so completing, initialising and acquiring are one store transaction."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.config.group_keys import DELIVERY_DELAY, RECORD_TTL
from coordinator.config.resolved import GroupConfig, changed_configs, replaced_configs
from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AlterConfigs,
    ArchiveExpired,
    ArchiveGaps,
    AssignPartitions,
    CompletePlan,
    CreateGroup,
    InitializePartitions,
    MoveLogStarts,
    PartitionStart,
    StartOrReclaimPlan,
    TopicWithId,
    with_facts,
)
from coordinator.core.commands.membership import (
    check_dead_letter_sources,
    check_dead_letter_topic_kept,
    check_order_may_change,
)
from coordinator.core.looks.description import open_breaker
from coordinator.core.looks.view import GroupView, altered_since, fetch_from, past_ids, reads_topic
from coordinator.core.members import Member
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupIdNotFound, NothingDecided, TooManyRejects
from coordinator.protocol.messages import (
    Acknowledge,
    AcquiredReply,
    AcquireRecords,
    GivenUp,
    GroupRequest,
    Joined,
    JoinGroup,
    NextPlan,
    PartitionBounds,
    PlanReply,
    Reply,
    StartPlan,
)
from coordinator.protocol.values import OffsetRange, SharePartitionKey, TopicAndPartition
from coordinator.service.brokers.partition_starts import Known, Start, where_to_begin
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition
from coordinator.service.runtime.transaction import Transaction, TransactionSteps, ask, looking


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinView:
    """The part of a group's state that a join needs before it asks the brokers. ``fetch_from``: the first offset that
    was never acquired, by (topic id, partition). ``gone``: ids of topics that the group knows to be deleted.
    ``config``: as the join would set it. ``known``: the topics and subscriptions before the join.
    ``reads_dead_letters``: whether another member reads that config's dead letter topic now."""

    exists: bool
    topic_ids: bool
    known: Known
    fetch_from: Mapping[tuple[str, int], int]
    gone: frozenset[str]
    config: GroupConfig
    reads_dead_letters: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """The brokers' answers: the subscribed ``partitions``, their log starts and ends; ``delayed``: the logs go on with
    records that are not old enough to be delivered.

    ``gaps``: quarantined offsets without a record. ``processed``: the plan to complete had a record.
    ``undecided_gaps``: offsets without a record among those that no sink decided; ``undecided_left``: how many of these
    offsets must still be read. ``of_plan``: what the logs of the plan to complete hold now, where that matters.
    ``expired``: what is older than the group's ttl; ``expired_left``: some of that must still be read."""

    partitions: list[TopicIdPartition]
    log_starts: Mapping[TopicAndPartition, int]
    ends: Mapping[TopicAndPartition, int]
    delayed: bool = False
    gaps: tuple[OffsetRange, ...] = ()
    processed: bool = True
    undecided_gaps: tuple[OffsetRange, ...] = ()
    undecided_left: int = 0
    of_plan: tuple[PartitionBounds, ...] = ()
    expired: ArchiveExpired | None = None
    expired_left: bool = False


def look_before_join(request: JoinGroup) -> Transaction[JoinView]:
    """The view of a group that may not exist yet, with the configs that the join would set. Raises ShareGroupError if a
    config of the request is refused."""

    def look(group: ShareGroup) -> JoinView:
        config = GroupConfig.parse(changed_configs(group.configs, request.configs))
        return JoinView(
            exists=group.exists,
            topic_ids=group.topic_ids,
            known=Known.of(group),
            fetch_from=fetch_from(group),
            gone=frozenset(group.gone),
            config=config,
            reads_dead_letters=reads_topic(group, config.errors_deadletterqueue_topic_name, without=request.member_id),
        )

    return looking(look)


def join(request: JoinGroup, *, topic_ids: bool, starts: Mapping[TopicIdPartition, Start]) -> Transaction[Joined]:
    """Create the group if it is new, join, set configs that differ, and initialise partitions without a start offset.
    The rule for their start is chosen here, because other members may have joined since the offsets were looked up.

    Raises:
        CoordinatorNotAvailable: the group was created meanwhile, or the start offsets of its rule were not looked up.
        DeadLetterTopicInUse: the configs unset a dead letter topic for which records wait.
        OrderInUse: the configs change share.order while members hold records.
        TopicNotAllowed: the dead letter topic may not get copies of what the member, or the group, reads."""

    def transaction(group: ShareGroup) -> TransactionSteps[Joined]:
        begins = where_to_begin(group, starts)  # decided by the subscriptions before this join
        before, created = dict(group.configs), not group.exists
        # A rejoin, or a join that is sent again, sets no configs: others may have set them since.
        member = group.members.get(request.member_id)
        again = request.member_epoch is not None or (member is not None and member.process_id == request.process_id)
        sets = request.configs if created or not again else {}
        configs = changed_configs(before, sets)
        config = GroupConfig.parse(configs)
        check_dead_letter_topic_kept(group, config)  # checked first: a refused join changes nothing
        check_order_may_change(group, config)
        check_dead_letter_sources(group, config, request)
        if not group.exists:
            yield from ask(CreateGroup(incarnation=uuid.uuid4().hex[:8], topic_ids=topic_ids))
        elif topic_ids != group.topic_ids and starts:
            raise CoordinatorNotAvailable(group_id=request.group_id, reason="the group was created; join again")
        joined = yield from ask(request)
        if group.configs != configs:
            yield from ask(AlterConfigs(configs=dict(sets)))
            # The same process joins again: it keeps its epoch, and its session gets the new configs.
            joined = yield from ask(request)
        begun = yield from initialize(group, begins)
        yield from ask(AssignPartitions())
        replaced = {} if created else replaced_configs(before, configs)
        return msgspec.structs.replace(joined, created=created, begun=begun, replaced=replaced)

    return transaction


def next_plan(request: NextPlan, facts: Facts) -> Transaction[PlanReply]:
    """Complete the plan ``start``, then acquire the next plan, in one transaction.

    Raises:
        NothingDecided: no sink has ever decided a record of this member; the plan is given back.
        TooManyRejects: the batch's sinks rejected too many records; those are given back, and the plan is completed."""

    def transaction(group: ShareGroup) -> TransactionSteps[PlanReply]:
        given_up: tuple[GivenUp, ...] = ()
        outcomes: dict[str, int] = {}
        if request.start:
            done = yield from ask(
                CompletePlan(
                    member_id=request.member_id,
                    member_epoch=request.member_epoch,
                    plan_id=request.start,
                    processed=facts.processed,
                    gaps=facts.undecided_gaps,
                    bounds=facts.of_plan,
                )
            )
            if done.undecided:
                raise NothingDecided(group_id=group.group_id)
            if done.too_many_rejects is not None:
                decided, rejected = done.too_many_rejects
                ratio = group.config.errors_deadletterqueue_max_reject_ratio
                raise TooManyRejects(group_id=group.group_id, rejected=rejected, decided=decided, ratio=ratio)
            given_up, outcomes = done.given_up, done.outcomes
        if facts.gaps:
            yield from ask(ArchiveGaps(gaps=facts.gaps))
        known = _existing(group, facts)
        # Partitions and topics that were added after the join begin at their earliest record.
        yield from initialize(group, {p: facts.log_starts[p.topic_partition] for p in known})
        yield from move_log_starts(known, facts)
        yield from _expire(facts)
        reply = yield from ask(
            with_facts(
                AcquirePlan,
                request,
                bounds=bounds(known, facts, request.until),
                topics=_unreported_topics(group, group.member(request.member_id, request.member_epoch)),
            )
        )
        return msgspec.structs.replace(
            reply,
            given_up=given_up,
            outcomes=outcomes,
            **_limited_by(reply, facts),
            breaker=open_breaker(group, group.members[request.member_id]),
            **_altered(group, request.start),
        )

    return transaction


def _altered(group: ShareGroup, plan_id: str) -> dict[str, Any]:
    acquired = group.plan_id(plan_id)
    total, altered = (0, ()) if acquired is None else altered_since(group, acquired)
    return {"altered_total": total, "altered": altered}


def _existing(group: ShareGroup, facts: Facts) -> list[TopicIdPartition]:
    """Returns the partitions that brokers answered for, without deleted topics and ids that may not be registered."""
    past = past_ids(group)
    return [
        p
        for p in facts.partitions
        if p.topic_partition in facts.log_starts and p.topic_id not in past and _may_be_registered(group, p)
    ]


def _may_be_registered(group: ShareGroup, p: TopicIdPartition) -> bool:
    """Whether the group has this topic id for the name, or may take it. A new id replaces another one only once that
    topic is known to be deleted: the brokers' answer may be older than the registration of the other id, and a replaced
    topic is never read again."""
    current = group.topics.get(p.topic, p.topic_id)
    return current == p.topic_id or current in group.gone


def _unreported_topics(group: ShareGroup, member: Member) -> tuple[str, ...]:
    """The subscribed topics with losses that the group has not reported yet."""
    names = {lost.topic for lost in group.unreported_losses if lost.topic}
    subscription = Subscription.of(member)
    return tuple(sorted(name for name in names if subscription.has(name)))


def acquire_records(request: AcquireRecords, facts: Facts, *, beyond: bool = False) -> Transaction[AcquiredReply]:
    """Acknowledge, assign partitions anew where that is due, and acquire records for a ShareConsumer, within what the
    logs hold now. ``beyond`` as in AcquireForConsumer."""

    def transaction(group: ShareGroup) -> TransactionSteps[AcquiredReply]:
        errors = yield from _acknowledged(request)
        known = _existing(group, facts)
        yield from initialize(group, {p: facts.log_starts[p.topic_partition] for p in known})
        yield from move_log_starts(known, facts)
        yield from _expire(facts)
        yield from ask(AssignPartitions())
        within = bounds(known, facts, None)
        reply = yield from ask(with_facts(AcquireForConsumer, request, bounds=within, beyond=beyond))
        level, ordered = group.config.share_isolation_level, group.config.is_ordered
        limits = _limited_by(reply, facts)
        return msgspec.structs.replace(reply, errors=errors, isolation_level=level, ordered=ordered, **limits)

    return transaction


def _limited_by(reply: PlanReply | AcquiredReply, facts: Facts) -> dict[str, Any]:
    """Returns why nothing was acquired, if the age of records is the reason, as fields of the reply. While expired
    records are left, an AvailableNow run has to ask again: others may lie behind them."""
    acquired = reply.plan.plan_id if isinstance(reply, PlanReply) else reply.plan_id
    if acquired or reply.held_back or reply.limited_by:
        return {}
    if facts.expired_left:
        return {"limited_by": RECORD_TTL, "retry_ms": 1}
    return {"limited_by": DELIVERY_DELAY} if facts.delayed else {}


def _expire(facts: Facts) -> TransactionSteps[None]:
    if facts.expired is not None:
        yield from ask(facts.expired)


def archive_expired(facts: Facts) -> Transaction[None]:
    """Archive what is expired, within what the logs hold now."""

    def transaction(group: ShareGroup) -> TransactionSteps[None]:
        yield from move_log_starts(_existing(group, facts), facts)
        yield from _expire(facts)

    return transaction


def acknowledge_only(request: AcquireRecords) -> Transaction[AcquiredReply]:
    """Apply the request's acknowledgements, and acquire nothing."""

    def transaction(group: ShareGroup) -> TransactionSteps[AcquiredReply]:
        return AcquiredReply(errors=(yield from _acknowledged(request)))

    return transaction


def _acknowledged(request: AcquireRecords) -> TransactionSteps[dict[str, str]]:
    """Apply the request's acknowledgements. Returns their errors by partition."""
    if not request.acknowledgements:
        return {}
    acknowledge = Acknowledge(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        partitions=request.acknowledgements,
    )
    return (yield from ask(acknowledge)).errors


def start_plan(
    request: StartPlan, facts: Facts, *, gone: frozenset[str], unsubscribed: frozenset[str]
) -> Transaction[PlanReply]:
    """Start or reclaim the plan, within what the logs hold of it now."""

    def transaction(group: ShareGroup) -> TransactionSteps[PlanReply]:
        reply = yield from ask(
            with_facts(
                StartOrReclaimPlan,
                request,
                bounds=bounds(facts.partitions, facts, None),
                deleted_topic_ids=gone,
                unsubscribed_topic_ids=unsubscribed,
            )
        )
        level, ordered = group.config.share_isolation_level, group.config.is_ordered
        return msgspec.structs.replace(
            reply, isolation_level=level, ordered=ordered, **_altered(group, request.plan_id)
        )

    return transaction


def initialize(group: ShareGroup, starts: Mapping[TopicIdPartition, int]) -> TransactionSteps[int]:
    """Give partitions their start offset before their first acquisition. Returns how many there were. If a topic was
    created again, its partitions follow once its predecessor is known to be deleted."""
    new = [
        p
        for p in starts
        if (not group.initialized(p.topic_id, p.partition) or p.topic_id in group.gone) and _may_be_registered(group, p)
    ]
    if not new:
        return 0
    topics = dict.fromkeys((p.topic, p.topic_id) for p in new)
    yield from ask(
        InitializePartitions(
            topics=tuple(TopicWithId(topic=topic, topic_id=topic_id) for topic, topic_id in topics),
            starts=tuple(
                PartitionStart(topic_id=p.topic_id, partition=p.partition, start_offset=starts[p]) for p in new
            ),
        )
    )
    return len(new)


def move_log_starts(partitions: list[TopicIdPartition], facts: Facts) -> TransactionSteps[None]:
    """Give the group the log starts of the partitions."""
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
    """The bounds of the logs. ``until`` limits the ends, and leaves out partitions not in it; None: no limit."""
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


def single_command(request: GroupRequest[Reply]) -> Transaction[Reply]:
    """The transaction that is this request alone, for a group that exists. Raises GroupIdNotFound if it does not."""

    def transaction(group: ShareGroup) -> TransactionSteps[Reply]:
        if not group.exists:
            raise GroupIdNotFound(group_id=request.group_id)
        return (yield from ask(request))

    return transaction


def shown_partitions(
    group_id: str, topics: Iterable[str] = (), numbers: Iterable[int] = ()
) -> Transaction[tuple[list[TopicIdPartition], bool]]:
    """The transaction that returns the partitions of the group's current topics that a look shows, of these topics and
    with these numbers if any are named, and whether the group's members read committed records only. Raises
    GroupIdNotFound if the group does not exist."""
    wanted, only = frozenset(topics), frozenset(numbers)

    def look(group: ShareGroup) -> tuple[list[TopicIdPartition], bool]:
        if not group.exists:
            raise GroupIdNotFound(group_id=group_id)
        names = {topic_id: topic for topic, topic_id in group.topics.items() if not wanted or topic in wanted}
        shown = [
            TopicIdPartition(names[key.topic_id], key.topic_id, key.partition)
            for key in group.partitions
            if key.topic_id in names and (not only or key.partition in only)
        ]
        return shown, group.config.share_isolation_level == "read_committed"

    return looking(look)


def bounds_of_ends(
    partitions: list[TopicIdPartition], ends: Mapping[TopicAndPartition, int]
) -> tuple[PartitionBounds, ...]:
    """The bounds that a look needs: the ends of the logs alone."""
    return bounds(partitions, Facts(partitions=partitions, log_starts=dict.fromkeys(ends, 0), ends=ends), None)


def to_acquire_from(
    view: GroupView, subscribed: list[TopicIdPartition], without: Collection[tuple[str, int]] = ()
) -> list[TopicIdPartition]:
    """The partitions that are assigned to the member, and those that the group does not have yet. ``without``:
    partitions (topic id, partition) that the member leaves out."""
    wanted_now = [p for p in subscribed if (p.topic_id, p.partition) not in without] if without else subscribed
    if view.assigned is None:
        return wanted_now
    wanted = view.assigned
    return [
        p
        for p in wanted_now
        if (p.topic_id, p.partition) not in view.fetch_from
        or p.topic_id in view.gone
        or SharePartitionKey(p.topic_id, p.partition) in wanted
    ]


def left_by_others(
    view: GroupView, subscribed: Collection[TopicIdPartition], ends: Mapping[TopicAndPartition, int]
) -> list[TopicIdPartition]:
    """Returns the partitions that are assigned to others alone and have records that were never acquired, as far as the
    ends are known."""
    return [
        p
        for p in subscribed
        if view.assigned is not None
        and SharePartitionKey(p.topic_id, p.partition) not in view.assigned
        and p.topic_id not in view.gone
        and ends.get(p.topic_partition, 0) > view.fetch_from.get((p.topic_id, p.partition), 2**63)
    ]


def backlog(view: GroupView, facts: Facts) -> int:
    """The number of records that were never acquired, as far as the ends are known. Only current topics count: records
    of a deleted topic, or of its future successor, can't be acquired."""
    current = {topic: topic_id for topic_id, topic in view.topics.items() if topic_id not in view.past}
    return sum(
        max(
            0,
            facts.ends.get(p.topic_partition, 0)
            - view.fetch_from.get((p.topic_id, p.partition), facts.log_starts[p.topic_partition]),
        )
        for p in facts.partitions
        if p.topic_partition in facts.log_starts
        and p.topic_id not in view.past
        and current.get(p.topic, p.topic_id) == p.topic_id
    )
