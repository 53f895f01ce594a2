"""A share group: its members, plans and share partitions, and the one place where they change.

:meth:`ShareGroup.replay` changes the group, live and on recovery alike; commands read the group and return log records
(:mod:`coordinator.core.decide`). Replay copies what a command decided. Where replay derives a value instead, the method
says why. A snapshot is a list of the same records.

Sessions, the deadlines of locks and sessions, ``deadlines_extended_until_ms`` and the time of the next sweep are *soft
state*: their records are not durable, and a new owner begins without them. :meth:`ShareGroup.loaded` sets them after a
load, outside of the log: every holder has one session timeout to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from coordinator.config.resolved import GroupBounds, GroupConfig
from coordinator.core.consumer_locks import lock_deadline_ms
from coordinator.core.due_times import DueTimes, LockIndex
from coordinator.core.group_snapshot import snapshot_of
from coordinator.core.left_out import LeftOutRange
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.plan_state import PlanState
from coordinator.core.record_counts import RecordTotals
from coordinator.core.record_state import HELD
from coordinator.core.records import (
    ActionDone,
    ConfigsAltered,
    DeadlinesExtended,
    DeadlinesPassed,
    GroupCreated,
    GroupDeleted,
    GroupProgressKept,
    LocksRenewed,
    LogStartMoved,
    OffsetsAltered,
    PartitionDeleted,
    PartitionInitialized,
    PartitionsForgotten,
    Record,
    RunsChanged,
    StartsAlteredBy,
    Swept,
    TopicDeleted,
    TopicForgotten,
    TopicRegistered,
)
from coordinator.core.replay_members import REPLAY_MEMBERS
from coordinator.core.replay_plans import REPLAY_PLANS
from coordinator.core.runs import Progress, Run, Segment
from coordinator.core.share_partition import SharePartition
from coordinator.core.stored_times import ahead
from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, UnknownMemberId
from coordinator.protocol.values import SharePartitionKey

MEMBERS_KEPT = 1_000
"""Members without a session that are kept for ever, so that a small group's queries may rest as long as they like."""
ACTIONS_KEPT = 100
"""Actions of administrators whose ids and answers a group remembers: far more than are under way at once, and little
beside the rest of its state."""
ENDS_KEPT = 10_000
"""Share partitions of forgotten topics whose ends a group keeps, of the topics that were forgotten last: a redrive of
their dead letters needs them. A month of topics by the hour with 12 partitions each; some 100 kB."""


class ShareGroup:
    """The state of one group. Plan ids are ints here; on the wire they carry the group's incarnation."""

    def __init__(self, group_id: str, bounds: GroupBounds | None = None) -> None:
        """``bounds``: those that the coordinator sets to stored configs; no part of the state."""
        self.group_id = group_id
        self.incarnation = ""
        self.topic_ids = True
        self._bounds = bounds
        self.config = GroupConfig.parse(None, bounds)
        self.configs: dict[str, str] = {}
        self.topics: dict[str, str] = {}
        self.topic_names: dict[str, str] = {}
        self.gone: dict[str, int] = {}
        """Ids of deleted topics, whose records are archived but for those that a member holds, and when the group
        learnt of each deletion."""
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
        self.deleted_partitions: dict[SharePartitionKey, PartitionDeleted] = {}
        """Share partitions whose state an administrator deleted: what of them was handed out."""
        self.altered_by: dict[SharePartitionKey, str] = {}
        """Soft state: who altered the start offset of a share partition last."""
        self.last_altered_after = 0
        """The highest ``altered_after`` of a share partition: plans above it were acquired after all alterations."""
        self.actions: dict[str, bytes] = {}
        """The ids of the last ACTIONS_KEPT actions, the oldest first, with their answers."""
        self.members: dict[str, Member] = {}
        self.plans: dict[int, AcquiredPlan] = {}
        self.last_plan_id = 0
        self.unreported_losses: tuple[LeftOutRange, ...] = ()
        """Records that the logs lost and that no plan held. The query that acquires next reports them."""
        self.decided = 0
        self.rejected = 0
        """Records that sinks rejected of the last ``decided`` ones: the window of the reject ratio (stage_outcomes)."""
        self.deadlines_extended_until_ms = 0
        """Soft state: until then all holders have a full session timeout, after a load or a stall."""
        self.sessions: dict[str, None] = {}
        """Soft state: the ids of members whose session lives, in the order in which the sessions began. Changed by
        ``keep_session`` and ``end_session`` alone."""
        self._session_ends = DueTimes()
        self.unheard: set[str] = set()
        """Soft state: members that may have a session with the owner before, and were not heard of since the load."""
        self.assignment_epoch = 0
        self.assignment: dict[str, frozenset[SharePartitionKey]] = {}
        """Soft state: the partitions that are assigned to each ShareConsumer."""
        self.assignment_is_old = True
        """Soft state: members, subscriptions or partitions have changed since the assignment."""
        self.assigned_ms = 0
        """Soft state: when the assignment was made; 0: none was made since the load."""
        self.forgotten_epoch = 0
        """The highest epoch of members that were forgotten: new members get higher ones."""
        self.old_topics: set[str] = set()
        """Ids of topics that a newer topic of the same name replaced, and of which the group still has something. A
        topic that was deleted and not created again is not among them."""
        self.dropped = RecordTotals()
        """The counts of share partitions that the group has no more: no count of the group ever falls."""
        self.forgotten_topics: dict[str, TopicForgotten] = {}
        """The last topics that were forgotten, by id, with at most ENDS_KEPT share partitions together."""
        self._ends_kept = 0
        self._swept_until_ms = 0
        self._holders: dict[int, set[SharePartitionKey]] = {}
        self.times_are_ahead = False
        """Soft state: since the load, runs have times that are ahead of the clock, which Expire bounds."""
        self.locks = LockIndex()
        """Soft state: when the locks of ShareConsumers end."""

    def __repr__(self) -> str:
        return (
            f"<ShareGroup {self.group_id} partitions={len(self.partitions)} members={len(self.members)} "
            f"last_plan_id={self.last_plan_id}>"
        )

    # --- looked at by commands and by the service

    @property
    def exists(self) -> bool:
        return bool(self.incarnation)

    @property
    def group_epoch(self) -> int:
        """KIP-932's group epoch: above the assignment's as long as the assignment is old, for all changes together."""
        return self.assignment_epoch + (self.exists and self.assignment_is_old)

    def member(self, member_id: str, member_epoch: int) -> Member:
        """The member, if its session lives and this is its epoch.

        Raises:
            UnknownMemberId: the group does not know the member, or its session has ended.
            FencedMemberEpoch: the member has another epoch.
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(member_id=member_id, group_id=self.group_id)
        self.check_epoch(member, member_epoch)
        if not member.active:
            raise UnknownMemberId(member_id=member_id, group_id=self.group_id)
        return member

    def check_epoch(self, member: Member, member_epoch: int) -> None:
        if member_epoch != member.member_epoch:
            raise FencedMemberEpoch(
                member_id=member.member_id,
                group_id=self.group_id,
                current_epoch=member.member_epoch,
                member_epoch=member_epoch,
            )

    def plan_id(self, text: str) -> int | None:
        """The plan id of a plan named on the wire; None for an empty text.

        Raises:
            ForeignPlan: the plan is of another incarnation of the group.
        """
        if not text:
            return None
        incarnation, _, plan_id = text.rpartition(".")
        if incarnation != self.incarnation or not plan_id.isdigit():
            raise ForeignPlan(plan_id=text, group_id=self.group_id, incarnation=self.incarnation)
        return int(plan_id)

    def plan_id_text(self, plan_id: int | None) -> str:
        return f"{self.incarnation}.{plan_id}" if plan_id is not None else ""

    def plan_of(self, run: Run) -> AcquiredPlan | None:
        """The plan whose id the run carries; None if it carries none."""
        return self.plans.get(run.plan_id) if run.plan_id is not None else None

    def progress_of(self, run: Run) -> Progress | None:
        """The signals of the run's holder; None: there are none."""
        plan = self.plan_of(run)
        return run.progress if plan is None else plan.progress_of(run)

    def carrying(self, plan: AcquiredPlan) -> Iterator[tuple[SharePartition, list[Segment]]]:
        """By partition, the segments that still carry the plan's id, in the plan's order."""
        for topic_id, index, ranges in plan.ranges:
            partition = self.partitions.get(SharePartitionKey(topic_id, index))
            if partition is not None and (segments := partition.carrying(plan.plan_id, ranges)):
                yield partition, segments

    def held_by(self, member: Member) -> int:
        """How many records the member holds."""
        return sum(
            partition.held_under(plan.plan_id, ranges)
            for plan in self.plans.values()
            if plan.member_id == member.member_id
            for topic_id, index, ranges in plan.ranges
            if (partition := self.partitions.get(SharePartitionKey(topic_id, index))) is not None
        )

    def is_current(self, topic_id: str) -> bool:
        """Whether the topic exists, as far as the group knows: it was neither deleted nor deleted and created anew."""
        return self.topics.get(self.topic_names.get(topic_id, "")) == topic_id and topic_id not in self.gone

    @property
    def waiting_for_dead_letters(self) -> int:
        """How many records are given up, and have no dead letter yet."""
        return sum(partition.archiving_count for partition in self.partitions.values())

    def initialized(self, topic_id: str, partition: int) -> bool:
        return SharePartitionKey(topic_id, partition) in self.partitions

    def forgotten_end(self, key: SharePartitionKey) -> tuple[int, int]:
        """The end of what was acquired of a share partition that was forgotten, and the highest delivery count of any
        record; zeros where nothing is known of it."""
        topic = self.forgotten_topics.get(key.topic_id)
        ends = () if topic is None else topic.ends
        return next(((end, highest) for index, end, highest in ends if index == key.partition), (0, 0))

    def totals(self) -> tuple[RecordTotals, int]:
        """The counts of all share partitions that the group has, or had; and how many records are still there."""
        totals, still_there = self.dropped, 0
        for partition in self.partitions.values():
            totals = totals.plus(partition.totals())
            still_there += partition.still_there
        return totals, still_there

    def plan_partitions(self, member: Member, plan_id: str) -> set[tuple[str, int]]:
        """(topic id, partition) of each partition that a start of ``plan_id`` touches; empty if there is no plan."""
        named = self.plan_id(plan_id)
        is_superseded = member.plan_state(named) is PlanState.SUPERSEDED
        plan = member.newest if is_superseded else self.plans.get(named) if named is not None else None
        return set() if plan is None else {(topic_id, index) for topic_id, index, _ in plan.ranges}

    def next_deadline_ms(self) -> int | None:
        """When Expire has something to do next; None: never. A deadline is over when it lies before now."""
        earliest = [ends_ms] if (ends_ms := self._session_ends.earliest_ms()) is not None else []
        earliest += [due_ms] if (due_ms := self.locks.next_ms()) is not None else []
        earliest += [self._swept_until_ms] if self.has_forgettable else []
        earliest += [0] if self.times_are_ahead else []
        return min(earliest) + 1 if earliest else None

    @property
    def has_forgettable(self) -> bool:
        """Whether the group may have members or topics to forget."""
        return bool(self.gone) or len(self.members) - len(self.sessions) > MEMBERS_KEPT

    def sweep_is_due(self, now_ms: int) -> bool:
        """Whether the sweep for members and topics to forget is due."""
        return self.has_forgettable and self._swept_until_ms < now_ms

    def may_rest(self, now_ms: int) -> bool:
        """Whether nothing is acquired or delayed and no session lives: an on-demand coordinator may leave."""
        if self.sessions:
            return False
        return not any(partition.acquired_count or partition.waits(now_ms) for partition in self.partitions.values())

    # --- changed by replay

    def replay(self, record: Record) -> None:
        """Apply a log record."""
        _REPLAY[type(record)](self, record)

    def keep_session(self, member: Member, deadline_ms: int) -> None:
        """Let the member's session live until then, or begin."""
        member.session_deadline_ms = deadline_ms
        self.sessions[member.member_id] = None
        self._session_ends.set(member.member_id, deadline_ms)

    def end_session(self, member: Member) -> None:
        """End the member's session, if it lives."""
        member.session_deadline_ms = None
        self.sessions.pop(member.member_id, None)
        self._session_ends.set(member.member_id, None)

    def loaded(self, now_ms: int) -> None:
        """Set the soft state after a load: every member that holds records has one session timeout to come back, and so
        has every ShareConsumer's lock; a lock that would last longer keeps what is left of it, as far as the log tells.
        Nothing of this is logged; times that are ahead of this owner's clock are bounded by the next Expire."""
        deadline_ms = self.deadlines_extended_until_ms = now_ms + self.config.share_session_timeout_ms
        self.assignment_is_old = True
        self.locks = LockIndex()
        self.times_are_ahead = any(ahead(partition.runs, now_ms) for partition in self.partitions.values())
        for plan in list(self.plans.values()):
            held = [
                (partition, segment)
                for partition, segments in self.carrying(plan)
                for segment in segments
                if segment.run.state in HELD
            ]
            if held:
                self.keep_session(self.members[plan.member_id], deadline_ms)
            if not plan.query:
                self._keep_locks(plan, held, deadline_ms, now_ms)
                plan.ahead_ms = max(0, plan.acquired_ms - now_ms)
        self.unheard = self.members.keys() - self.sessions.keys()
        self.altered_by = {
            key: "" for known in (self.partitions, self.deleted_partitions) for key in known if known[key].altered_after
        }

    def _keep_locks(
        self, plan: AcquiredPlan, held: Iterable[tuple[SharePartition, Segment]], deadline_ms: int, now_ms: int
    ) -> None:
        """Give the runs of a ShareConsumer locks that end with its session at the earliest, and not before the log
        says, since the config may have been altered since a lock was given. A lock that was given later than now, by
        this owner's clock, has its whole length from now on."""
        for partition, segments in groupby(held, key=itemgetter(0)):
            runs = []
            for _, (first, last, run) in segments:
                logged_ms = max(run.deadline_ms or 0, lock_deadline_ms(plan, run, self.config))
                given_ms = plan.acquired_ms if run.progress is None else run.progress.last_ms
                ends_ms = max(deadline_ms, logged_ms - max(0, given_ms - now_ms))
                runs.append((first, last, run._replace(deadline_ms=ends_ms)))
            partition.apply(runs)
            self._watch(runs)

    def snapshot(self) -> Iterator[Record]:
        """Log records that rebuild this group from an empty one."""
        return snapshot_of(self)

    # --- one method a record; those of members and plans are in modules of their own

    def _group_created(self, record: GroupCreated) -> None:
        self.incarnation, self.topic_ids = record.incarnation, record.topic_ids

    def _configs_altered(self, record: ConfigsAltered) -> None:
        self.configs = dict(record.configs)
        self.config = GroupConfig.parse(self.configs, self._bounds)

    def _topic_registered(self, record: TopicRegistered) -> None:
        self.assignment_is_old = True
        before = self.topics.get(record.topic, record.topic_id)
        if before != record.topic_id:
            self.old_topics.add(before)
        self.old_topics.discard(record.topic_id)
        self.topics[record.topic] = record.topic_id
        self.topic_names[record.topic_id] = record.topic
        self.gone.pop(record.topic_id, None)

    def _topic_deleted(self, record: TopicDeleted) -> None:
        self.assignment_is_old = True
        self.gone[record.topic_id] = record.deleted_ms

    def _partition_initialized(self, record: PartitionInitialized) -> None:
        key = SharePartitionKey(record.topic_id, record.partition)
        partition = SharePartition(key, record.start_offset)
        partition.log_start = record.log_start
        if record.end_offset is not None:
            partition.end_offset = record.end_offset
            before = RecordTotals(archived=list(record.archived))
            before.reached = partition.end_offset - record.start_offset + sum(before.archived)
            partition.restore_counts(before if record.totals is None else record.totals)
        partition.highest_count, partition.altered_after = record.highest_count, record.altered_after
        self.last_altered_after = max(self.last_altered_after, record.altered_after)
        self.partitions[key] = partition
        self.assignment_is_old = True
        self._drop_end(key)
        if (deleted := self.deleted_partitions.pop(key, None)) is not None:
            partition.highest_count, partition.altered_after = deleted.highest_count, deleted.altered_after
            partition.redeliver(deleted.end_offset)

    def _offsets_altered(self, record: OffsetsAltered) -> None:
        """Replay makes the runs: a plan's ranges and a window's runs may be very many, and none of them is kept."""
        self.assignment_is_old = True
        self.last_altered_after = max(self.last_altered_after, record.altered_after)
        for index, start_offset in record.starts:
            key = SharePartitionKey(record.topic_id, index)
            before = self.partitions.pop(key)
            if start_offset is None:
                self._drop(before)
                self.deleted_partitions[key] = PartitionDeleted(
                    topic_id=key.topic_id,
                    partition=index,
                    end_offset=before.end_offset,
                    highest_count=before.highest_count,
                    altered_after=record.altered_after,
                )
            else:
                self.partitions[key] = before.altered(start_offset, record.altered_after)
            for plan_id in before.runs.carried:
                self._drop_holder(plan_id, key)
            for plan in self.plans.values():
                plan.staged.pop(key, None)

    def _starts_altered_by(self, record: StartsAlteredBy) -> None:
        self.altered_by |= {SharePartitionKey(record.topic_id, index): record.by for index in record.partitions}

    def _partition_deleted(self, record: PartitionDeleted) -> None:
        self.deleted_partitions[SharePartitionKey(record.topic_id, record.partition)] = record
        self.last_altered_after = max(self.last_altered_after, record.altered_after)

    def _action_done(self, record: ActionDone) -> None:
        self.actions[record.action_id] = record.answer
        while len(self.actions) > ACTIONS_KEPT:
            del self.actions[next(iter(self.actions))]

    def _group_deleted(self, record: GroupDeleted) -> None:
        self.__init__(self.group_id, self._bounds)  # type: ignore[misc]  # as a group that never was

    def _drop(self, partition: SharePartition) -> None:
        """Add the counts of a share partition that the group has no more to the group's; what was still there counts as
        skipped. Replay adds them up: a record of very many share partitions would repeat what each of them has."""
        skipped = RecordTotals(skipped=partition.still_there)
        self.dropped = self.dropped.plus(partition.totals()).plus(skipped)

    def _partitions_forgotten(self, record: PartitionsForgotten) -> None:
        self.assignment_is_old = True
        ends: dict[int, tuple[int, int]] = {}
        for index in record.partitions:
            partition = self.partitions.pop(SharePartitionKey(record.topic_id, index))
            self._drop(partition)
            self.altered_by.pop(partition.key, None)
            ends[index] = partition.end_offset, partition.highest_count
        self._keep_ends(record.topic_id, ends)
        if record.whole_topic or not any(key.topic_id == record.topic_id for key in self.partitions):
            self._forget_topic(record.topic_id)

    def _forget_topic(self, topic_id: str) -> None:
        self.old_topics.discard(topic_id)
        self.gone.pop(topic_id, None)
        for key in [key for key in self.deleted_partitions if key.topic_id == topic_id]:
            del self.deleted_partitions[key]
            self.altered_by.pop(key, None)
        name = self.topic_names.pop(topic_id)
        if self.topics.get(name) == topic_id:
            del self.topics[name]

    def _topic_forgotten(self, record: TopicForgotten) -> None:
        self.forgotten_topics[record.topic_id] = record
        self._ends_kept += len(record.ends)

    def _keep_ends(self, topic_id: str, ends: Mapping[int, tuple[int, int]]) -> None:
        """Keep the ends of forgotten share partitions of the topic, and drop those of the topics that were forgotten
        first. Replay does so, since the share partitions still have them."""
        before = self.forgotten_topics.pop(topic_id, None)
        if before is not None:
            self._ends_kept -= len(before.ends)
            ends = {index: (end, highest_count) for index, end, highest_count in before.ends} | dict(ends)
        if ends:
            known = tuple((index, *end) for index, end in sorted(ends.items()))
            self._topic_forgotten(TopicForgotten(topic_id=topic_id, topic=self.topic_names[topic_id], ends=known))
        while self._ends_kept > ENDS_KEPT and len(self.forgotten_topics) > 1:
            oldest = next(iter(self.forgotten_topics))
            self._ends_kept -= len(self.forgotten_topics.pop(oldest).ends)

    def _drop_end(self, key: SharePartitionKey) -> None:
        """Drop the end of a share partition that the group has again."""
        before = self.forgotten_topics.get(key.topic_id)
        if before is None:
            return
        left = tuple(end for end in before.ends if end[0] != key.partition)
        self._ends_kept -= len(before.ends) - len(left)
        if left:
            self.forgotten_topics[key.topic_id] = msgspec.structs.replace(before, ends=left)
        else:
            del self.forgotten_topics[key.topic_id]

    def _swept(self, record: Swept) -> None:
        self._swept_until_ms = record.next_ms

    def _runs_changed(self, record: RunsChanged | LocksRenewed) -> None:
        partition = self.partitions[SharePartitionKey(record.topic_id, record.partition)]
        runs = self.locks.kept(record.runs)
        has_topic = bool(self.config.errors_deadletterqueue_topic_name)
        partition.apply(runs, dead_letters=has_topic, is_deleted=record.topic_id in self.gone)
        self._watch(runs)
        self._drop_plans_nobody_carries(partition)

    def _watch(self, runs: Iterable[tuple[int, int, Run]]) -> None:
        ends = {(run.plan_id, run.deadline_ms) for _, _, run in runs if run.deadline_ms is not None}
        for plan_id, kept_ms in ends:
            if plan_id is not None and kept_ms is not None:
                self.locks.watch(plan_id, kept_ms, self.plans)

    def _deadlines_passed(self, record: DeadlinesPassed) -> None:
        self.times_are_ahead = False
        self.locks.passed(record.now_ms, None if record.plan_ids is None else frozenset(record.plan_ids))

    def _deadlines_extended(self, record: DeadlinesExtended) -> None:
        self.deadlines_extended_until_ms = record.until_ms
        self.locks.extend(record.stalled_ms, record.until_ms if record.is_full else None)

    def _drop_plans_nobody_carries(self, partition: SharePartition) -> None:
        for plan_id in partition.runs.changed_plan_ids:
            if plan_id in partition.runs.carried:
                self._holders.setdefault(plan_id, set()).add(partition.key)
            else:
                self._drop_holder(plan_id, partition.key)
        partition.runs.changed_plan_ids.clear()

    def _drop_holder(self, plan_id: int, key: SharePartitionKey) -> None:
        holders = self._holders.get(plan_id, set())
        holders.discard(key)
        if not holders:
            self._holders.pop(plan_id, None)
            self.plans.pop(plan_id, None)

    def _log_start_moved(self, record: LogStartMoved) -> None:
        partition = self.partitions[SharePartitionKey(record.topic_id, record.partition)]
        partition.move_log_start(record.log_start, record.archived, is_deleted=record.topic_id in self.gone)
        self._drop_plans_nobody_carries(partition)

    def _group_progress_kept(self, record: GroupProgressKept) -> None:
        self.assignment_epoch = record.assignment_epoch
        self.last_plan_id, self.forgotten_epoch = record.last_plan_id, record.forgotten_epoch
        self.decided, self.rejected = record.decided, record.rejected
        if record.dropped is not None:
            self.dropped = record.dropped


_REPLAY: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    **REPLAY_MEMBERS,
    **REPLAY_PLANS,
    GroupCreated: ShareGroup._group_created,
    ConfigsAltered: ShareGroup._configs_altered,
    TopicRegistered: ShareGroup._topic_registered,
    TopicDeleted: ShareGroup._topic_deleted,
    PartitionInitialized: ShareGroup._partition_initialized,
    OffsetsAltered: ShareGroup._offsets_altered,
    StartsAlteredBy: ShareGroup._starts_altered_by,
    PartitionDeleted: ShareGroup._partition_deleted,
    GroupDeleted: ShareGroup._group_deleted,
    ActionDone: ShareGroup._action_done,
    PartitionsForgotten: ShareGroup._partitions_forgotten,
    TopicForgotten: ShareGroup._topic_forgotten,
    Swept: ShareGroup._swept,
    RunsChanged: ShareGroup._runs_changed,
    LocksRenewed: ShareGroup._runs_changed,
    DeadlinesPassed: ShareGroup._deadlines_passed,
    DeadlinesExtended: ShareGroup._deadlines_extended,
    LogStartMoved: ShareGroup._log_start_moved,
    GroupProgressKept: ShareGroup._group_progress_kept,
}
