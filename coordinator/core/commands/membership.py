"""Commands on members (docs/learn/concepts.md, "Sessions"): join, heartbeat, leave, expire; and on the group itself:
create it, alter its configs."""

from __future__ import annotations

from functools import partial

from coordinator.config.group_keys import DEAD_LETTER_SOURCES
from coordinator.config.resolved import GroupConfig, changed_configs
from coordinator.core.changes import Changes, MemoizedTransition, count_records, moved, split_at
from coordinator.core.commands import AlterConfigs, CreateGroup, Decision, Expire, ExtendDeadlines
from coordinator.core.commands.forget import SEEN_PARTS, forget
from coordinator.core.consumer_locks import progress_deadline_ms
from coordinator.core.endings import after_end
from coordinator.core.failed_deliveries import (
    clears_evidence,
    consumer_lost_lock,
    data_lost,
    given_back,
    query_lost_lock,
    released,
)
from coordinator.core.log_records import (
    ConfigsAltered,
    DeadlinesExtended,
    DeadlinesPassed,
    EvidenceCleared,
    EvidenceUsed,
    GroupCreated,
    MemberJoined,
    MemberSeen,
    QueryEnded,
    Record,
    RunsChanged,
    SessionEnded,
    SessionRenewed,
)
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.record_codec import MOST_BYTES, encode_record
from coordinator.core.record_state import HELD, Event, RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.stored_times import ahead
from coordinator.protocol.errors import (
    DeadLetterTopicInUse,
    FencedMemberEpoch,
    GroupIdNotFound,
    MemberForgotten,
    OrderInUse,
    SubscriptionTooLarge,
    TopicNotAllowed,
    UnknownMemberId,
)
from coordinator.protocol.messages import Done, Heartbeat, Joined, JoinGroup, LeaveGroup
from coordinator.protocol.topic_names import EVERYTHING, is_allowed
from coordinator.protocol.values import SharePartitionKey

FENCED_PROCESSES_KEPT = 16
"""A member remembers this many earlier processes: if one of them joins again without an epoch, it is refused
(FencedMemberEpoch)."""
MOST_ENDED_RUNS = 5_000
"""A round stops after the plan or session with which it has ended the locks of this many runs, after some 0.1 s.
Waiting requests come before the rest (docs/adr/0031)."""


def create_group(group: ShareGroup, command: CreateGroup, now_ms: int) -> Decision[Done]:
    """Create the group; nothing changes if it exists already."""
    created = GroupCreated(incarnation=command.incarnation, topic_ids=command.topic_ids)
    return Decision(() if group.exists else (created,), Done())


def alter_configs(group: ShareGroup, command: AlterConfigs, now_ms: int) -> Decision[Done]:
    """Set configs, and unset those whose text is empty. Locks and sessions keep the deadlines that they have.

    Raises:
        ShareGroupError: a key or a value is bad; the subclass says how.
        DeadLetterTopicInUse: see :func:`check_dead_letter_topic_kept`.
        TopicNotAllowed: see :func:`check_dead_letter_sources`.
        OrderInUse: see :func:`check_order_may_change`.
    """
    configs = changed_configs(group.configs, command.configs)
    config = GroupConfig.parse(configs)
    if not command.drop_dead_letters:
        check_dead_letter_topic_kept(group, config)
    if configs != group.configs:
        check_dead_letter_sources(group, config)
    check_order_may_change(group, config)
    return Decision(() if configs == group.configs else (ConfigsAltered(configs=configs),), Done())


def check_order_may_change(group: ShareGroup, config: GroupConfig) -> None:
    """Check that this config keeps share.order, or that no member holds records, and no query may come back to some.

    Raises:
        OrderInUse: share.order would change, although a member holds records or a query may come back to some.
    """
    if config.share_order == group.config.share_order:
        return
    used = count_records(
        segment
        for plan in group.plans.values()
        for _, segments in group.carrying(plan)
        for segment in segments
        if plan.query or segment.run.state in HELD
    )
    if used:
        raise OrderInUse(group_id=group.group_id, order=config.share_order, count=used)


def check_dead_letter_topic_kept(group: ShareGroup, config: GroupConfig) -> None:
    """Check that no record waits for its dead letter, or that this config keeps the dead letter topic and goes on to
    hold records whose dead letters can't be written.

    Raises:
        DeadLetterTopicInUse: records that wait would be archived without their dead letters.
    """
    before = group.config
    topic, held = before.errors_deadletterqueue_topic_name, before.errors_deadletterqueue_on_failure == "hold"
    gives_up = held and config.errors_deadletterqueue_on_failure != "hold"
    is_kept = config.errors_deadletterqueue_topic_name and not gives_up
    if topic and not is_kept and (waiting := group.waiting_for_dead_letters):
        raise DeadLetterTopicInUse(count=waiting, group_id=group.group_id, topic=topic)


def check_dead_letter_sources(group: ShareGroup, config: GroupConfig, subscriber: JoinGroup | None = None) -> None:
    """Check that the group, and the member that is about to join, read only topics that may be copied to the dead
    letter topic (errors.deadletterqueue.source.topics).

    Raises:
        TopicNotAllowed: the group reads a topic, or a member subscribes by a pattern, that may not be copied.
    """
    allowed, name = config.errors_deadletterqueue_source_topics, config.errors_deadletterqueue_topic_name
    if not name or allowed == EVERYTHING:
        return
    members: list[Member | JoinGroup] = [*group.members.values(), *([] if subscriber is None else [subscriber])]
    topics = {*group.topics, *(topic for m in members for topic in (*m.topics, *(m.assign or {})))}
    found = [f"Topic {topic}" for topic in sorted(topics) if not is_allowed(allowed, topic)]
    patterns = {m.topic_pattern for m in members if m.topic_pattern is not None}
    found += [f"The topics of the pattern {pattern}" for pattern in sorted(patterns - {allowed})]
    if found:
        raise TopicNotAllowed(
            what=found[0],
            use=f"copied to the dead letter topic {name} of share group {group.group_id}",
            rule=f"{DEAD_LETTER_SOURCES} of the group, which comes from topics= of the token that named that topic,",
            pattern=allowed,
            where="that config, or name another dead letter topic",
        )


def join(group: ShareGroup, command: JoinGroup, now_ms: int) -> Decision[Joined]:
    """See :class:`~coordinator.protocol.messages.JoinGroup`. The epoch is durable before the answer, and outlives the
    session.

    Raises:
        GroupIdNotFound: there is no such group.
        MemberForgotten: the member was away for so long that the group has forgotten it.
        FencedMemberEpoch: the process lost the member's epoch to a newer one.
        SubscriptionTooLarge: its subscription does not fit into one record.
    """
    if not group.exists:
        raise GroupIdNotFound(group_id=group.group_id)
    member = group.members.get(command.member_id)
    records: list[Record] = []
    if member is not None and _same_process(group, member, command):
        epoch = member.member_epoch
        records.extend(_seen(group, member, now_ms))
    else:
        if member is None and command.member_epoch and command.member_epoch <= group.forgotten_epoch:
            raise MemberForgotten(member_id=command.member_id, group_id=group.group_id)
        epoch = (group.forgotten_epoch if member is None else member.member_epoch) + 1
        joined = _joined(command, epoch, member, now_ms)
        if (size := len(encode_record(joined))) > MOST_BYTES:  # a record of this kind can't be stored in parts
            who = {"group_id": group.group_id, "member_id": joined.member_id[:80]}
            raise SubscriptionTooLarge(**who, size_bytes=size, limit_bytes=MOST_BYTES)
        records.append(joined)
        if member is not None and member.pending is not None:  # its last process is over, perhaps without a word
            ending = after_end(member.ending, member.member_epoch, now_ms)
            if ending != member.ending:
                records.append(QueryEnded(member_id=member.member_id, ending=ending))
    deadline_ms = now_ms + group.config.share_session_timeout_ms
    records.append(SessionRenewed(member_id=command.member_id, deadline_ms=deadline_ms))
    return Decision(tuple(records), _joined_reply(group, epoch))


def _same_process(group: ShareGroup, member: Member, command: JoinGroup) -> bool:
    """Whether the process that holds the member's epoch asks again. Raises FencedMemberEpoch."""
    if command.process_id == member.process_id and command.member_epoch in (None, member.member_epoch):
        return True
    if command.member_epoch is not None or command.process_id in member.fenced_processes:
        raise FencedMemberEpoch(
            member_id=member.member_id,
            group_id=group.group_id,
            holder=member.client,
            current_epoch=member.member_epoch,
            member_epoch=command.member_epoch if command.member_epoch is not None else "older",
        )
    return False


def _joined(command: JoinGroup, epoch: int, before: Member | None, now_ms: int) -> MemberJoined:
    fenced = () if before is None else (*before.fenced_processes, before.process_id)[-FENCED_PROCESSES_KEPT:]
    shared = {name: getattr(command, name) for name in JoinGroup.__struct_fields__ if name in _OF_JOINED}
    return MemberJoined(**shared | {"member_epoch": epoch}, fenced_processes=fenced, seen_ms=now_ms)


_OF_JOINED = frozenset(MemberJoined.__struct_fields__)


def _joined_reply(group: ShareGroup, epoch: int) -> Joined:
    return Joined(
        member_epoch=epoch,
        incarnation=group.incarnation,
        session_timeout_ms=group.config.share_session_timeout_ms,
        heartbeat_interval_ms=group.config.share_heartbeat_interval_ms,
        isolation_level=group.config.share_isolation_level,
        configs=dict(group.configs),
    )


def heartbeat(group: ShareGroup, command: Heartbeat, now_ms: int) -> Decision[Joined]:
    """Extend the session, and with it a query's locks, to share.session.timeout.ms from now. The reply has the interval
    of heartbeats, since that config may have been altered."""
    member = group.member(command.member_id, command.member_epoch)
    deadline_ms = now_ms + group.config.share_session_timeout_ms
    renewed = SessionRenewed(member_id=member.member_id, deadline_ms=deadline_ms)
    return Decision((renewed, *_seen(group, member, now_ms)), _joined_reply(group, member.member_epoch))


def _seen(group: ShareGroup, member: Member, now_ms: int) -> list[Record]:
    """The log record that the member is there, if the last such record is an eighth of share.member.retention.ms old.
    The record is durable, which a session is not: otherwise a member that has just come back could be forgotten after a
    load, as if it were still away."""
    if now_ms - member.seen_ms <= group.config.share_member_retention_ms // SEEN_PARTS:
        return []
    return [MemberSeen(member_id=member.member_id, seen_ms=now_ms)]


def leave(group: ShareGroup, command: LeaveGroup, now_ms: int) -> Decision[Done]:
    """End the session now. A ShareConsumer's records are released, those in progress after a grace period. A query
    loses its locks, as after a timeout.

    Raises:
        UnknownMemberId: the group has no such member.
        FencedMemberEpoch: a later process of the member has joined.
    """
    member = group.members.get(command.member_id)
    if member is None:
        raise UnknownMemberId(member_id=command.member_id, group_id=group.group_id)
    group.check_epoch(member, command.member_epoch)
    return Decision((*_seen(group, member, now_ms), *end_session(group, member, now_ms, left=True)), Done())


def expire(group: ShareGroup, command: Expire, now_ms: int) -> Decision[Done]:
    """End the sessions whose deadline has passed, and the ShareConsumers' locks whose deadline has passed; then forget
    the members and topics that may be forgotten now. After MOST_ENDED_RUNS runs the rest is left to the next command.
    If the group was loaded with times ahead of the clock, this command only limits these times, and leaves the rest."""
    if group.times_are_ahead:
        return Decision(tuple(_bounded_times(group, now_ms)), Done())
    records: list[Record] = []
    ended: set[str] = set()
    runs = 0
    for member in [group.members[member_id] for member_id in group.sessions]:
        if member.session_deadline_ms is not None and member.session_deadline_ms < now_ms:
            ended.add(member.member_id)
            lost = end_session(group, member, now_ms, left=False)
            records.extend(lost)
            runs += sum(len(each.runs) for each in lost if isinstance(each, RunsChanged))
            if runs >= MOST_ENDED_RUNS:
                return Decision(tuple(records), Done())
    due = sorted(group.locks.due(now_ms))
    changes = Changes()
    for index, plan_id in enumerate(due):
        if len(changes) >= MOST_ENDED_RUNS:
            passed = DeadlinesPassed(now_ms=now_ms, plan_ids=tuple(due[:index]))
            return Decision((*records, *changes.records(), passed), Done())
        plan = group.plans.get(plan_id)
        if plan is not None and not plan.query and plan.member_id not in ended:
            _end_locks(group, plan, changes, now_ms)
    records.extend(changes.records())
    if due:
        records.append(DeadlinesPassed(now_ms=now_ms, plan_ids=None))
    if group.has_forgettable and group.swept_until_ms < now_ms:
        records.extend(forget(group, now_ms))
    return Decision(tuple(records), Done())


def _bounded_times(group: ShareGroup, now_ms: int) -> list[Record]:
    """Returns log records that cut times which lie too far ahead of the clock, in up to MOST_ENDED_RUNS runs."""
    changes = Changes()
    for key, partition in group.partitions.items():
        for first, last, run in ahead(partition.runs, now_ms):
            changes.put(key, first, last, run)
            if len(changes) >= MOST_ENDED_RUNS:
                return [*changes.records()]
    return [*changes.records(), DeadlinesPassed(now_ms=now_ms, plan_ids=())]


def _end_locks(group: ShareGroup, plan: AcquiredPlan, changes: Changes, now_ms: int) -> None:
    """Add the runs of a ShareConsumer's plan to ``changes`` whose locks end before now. In an ordered group, the locks
    of later records of the share partition end with them, without a failure."""
    lost_lock = MemoizedTransition(lambda run: consumer_lost_lock(run, group.config))
    available: set[SharePartitionKey] = set()
    for partition, (first, last, run) in _carried(group, plan):
        if run.deadline_ms is not None and group.locks.deadline_ms(run.deadline_ms) < now_ms:
            lost = _below_log_start(partition, last, run) or lost_lock(run)
            changes.put(partition.key, first, last, lost)
            if group.config.is_ordered and lost.state == RecordState.AVAILABLE:
                available.add(partition.key)
        elif partition.key in available and run.state in HELD:
            changes.put(partition.key, first, last, given_back(run))


def extend_deadlines(group: ShareGroup, command: ExtendDeadlines, now_ms: int) -> Decision[Done]:
    """See :class:`~coordinator.core.commands.ExtendDeadlines`. Members get a full session timeout at most once within a
    session timeout, so that members that are gone lose their records even if the coordinator is paused again and
    again."""
    until_ms = group.deadlines_extended_until_ms + command.stalled_ms
    full_ms = 0
    if now_ms >= until_ms:
        until_ms = full_ms = now_ms + group.config.share_session_timeout_ms

    sessions = [
        SessionRenewed(member_id=member.member_id, deadline_ms=max(ends_ms + command.stalled_ms, full_ms))
        for member in group.members.values()
        if (ends_ms := member.session_deadline_ms) is not None
    ]
    extended = DeadlinesExtended(stalled_ms=command.stalled_ms, until_ms=until_ms, is_full=bool(full_ms))
    return Decision((*sessions, extended), Done())


def end_session(group: ShareGroup, member: Member, now_ms: int, *, left: bool) -> list[Record]:
    """The log records of a session's end: the member's records become available to others, or are given up. ``left``:
    the member itself ended the session. In an ordered group, a record that leaves its plan takes along what follows it
    in its share partition."""
    changes = Changes()
    lost: list[tuple[SharePartitionKey, Segment]] = []
    evidence_is_old = trial_failed = False
    left_plan: set[SharePartitionKey] = set()
    for plan in [p for p in group.plans.values() if p.member_id == member.member_id]:
        ended = MemoizedTransition(partial(_ended, group, plan, now_ms, left))
        for partition, (first, last, run) in _carried(group, plan):
            after = ended(run) if run.state in HELD else run
            if (gone := _below_log_start(partition, last, run)) is not None:
                after = gone
                if plan.query:
                    lost.append((partition.key, Segment(first, last, run)))
            elif plan.query:
                if partition.key in left_plan:
                    after = after._replace(plan_id=None)
                elif group.config.is_ordered and after.state == RecordState.AVAILABLE and after.plan_id is None:
                    left_plan.add(partition.key)
                evidence_is_old = evidence_is_old or clears_evidence(run, after, group.config)
                trial_failed = trial_failed or after.state in (RecordState.ARCHIVING, RecordState.ARCHIVED)
            if run.state in HELD or after != run:  # a lock's end in memory and one of the clock may be one number
                changes.put(partition.key, first, last, after)
    records: list[Record] = [*changes.records(), *data_lost(group, lost)]
    if evidence_is_old:
        records.append(EvidenceCleared())
    if trial_failed:
        records.append(EvidenceUsed(member_id=member.member_id))
    return [*records, SessionEnded(member_id=member.member_id)]


def _ended(group: ShareGroup, plan: AcquiredPlan, now_ms: int, left: bool, run: Run) -> Run:
    """Returns what becomes of a run of the plan when the session of the plan's member ends."""
    if plan.query:
        return query_lost_lock(run, plan, group.config, now_ms)
    if run.progress is not None and not group.config.is_ordered:
        return _orphaned(group, plan, run, now_ms)
    return released(run, group.config) if left else consumer_lost_lock(run, group.config)


def _orphaned(group: ShareGroup, plan: AcquiredPlan, run: Run, now_ms: int) -> Run:
    """The IN_PROGRESS run after its holder left or was lost. If the last signal is stale, the lock ends now. Otherwise
    it ends after group.share.in.progress.rebalance.grace.ms, so that a member that comes back can go on."""
    assert run.progress is not None and run.deadline_ms is not None
    config, lock_ms = group.config, group.locks.deadline_ms(run.deadline_ms)
    deadline_ms = min(progress_deadline_ms(plan, run.progress, config), lock_ms)
    if deadline_ms < now_ms:
        return consumer_lost_lock(run, config)
    grace_ms = config.group_share_in_progress_rebalance_grace_ms
    return run._replace(deadline_ms=min(deadline_ms, now_ms + grace_ms))


def _carried(group: ShareGroup, plan: AcquiredPlan) -> list[tuple[SharePartition, Segment]]:
    return [
        (partition, part)
        for partition, segments in group.carrying(plan)
        for segment in segments
        for part in split_at(segment, partition.log_start)
    ]


def _below_log_start(partition: SharePartition, last: int, run: Run) -> Run | None:
    """The run as ARCHIVED if the log no longer holds its records (docs/trust/facts.md, K27); else None."""
    return moved(run, Event.LOG_START) if last < partition.log_start else None
