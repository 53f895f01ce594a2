"""A share group: its members, plans and share partitions, and the one place where they change.

:meth:`ShareGroup.replay` changes the group, live and on recovery alike; commands read the group and return log records
(:mod:`coordinator.core.decide`). Replay copies what a command decided. Where replay derives a value instead, the method
says why. A snapshot is a list of the same records.

Sessions, the deadlines of locks and sessions, ``deadlines_extended_until_ms`` and what the last sweep found are *soft
state*: their records are not durable, and a new owner begins without them. :meth:`ShareGroup.loaded` sets them after a
load, outside of the log: every holder has one session timeout to come back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core.group_snapshot import snapshot_of
from coordinator.core.left_out import LeftOutRange, bounded
from coordinator.core.members import AcquiredPlan, Member, PlanRanges, plan_from, with_ranges
from coordinator.core.plan_state import PlanState
from coordinator.core.record_state import RecordState
from coordinator.core.records import (
    ConfigsAltered,
    DataLost,
    DeadlinesExtended,
    DeadlinesPassed,
    EvidenceCleared,
    EvidenceUsed,
    GroupCreated,
    GroupProgressKept,
    LocksRenewed,
    LogStartMoved,
    MemberJoined,
    MemberProgressKept,
    MemberSeen,
    MembersForgotten,
    PartitionInitialized,
    PartitionsForgotten,
    PlanAcquired,
    PlanCompleted,
    PlanKept,
    PlanStaged,
    PlanStarted,
    RangesAdded,
    Record,
    RunsChanged,
    SessionEnded,
    SessionRenewed,
    Swept,
    TopicDeleted,
    TopicRegistered,
)
from coordinator.core.runs import Segment
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import staged_with
from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, UnknownMemberId
from coordinator.protocol.values import SharePartitionKey

MEMBERS_KEPT = 1_000
"""Members without a session that are kept for ever, so that a small group's queries may rest as long as they like."""


class ShareGroup:
    """The state of one group. Plan ids are ints here; on the wire they carry the group's incarnation."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.incarnation = ""
        self.topic_ids = True
        self.config = GroupConfig.parse()
        self.configs: dict[str, str] = {}
        self.topics: dict[str, str] = {}
        self.topic_names: dict[str, str] = {}
        self.gone: set[str] = set()
        """Ids of deleted topics, whose records are archived but for those that a member holds."""
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
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
        """Soft state: the ids of members whose session lives, in the order in which the sessions began."""
        self.forgotten_epoch = 0
        """The highest epoch of members that were forgotten: new members get higher ones."""
        self.old_topics: set[str] = set()
        """Ids of topics that do not exist any more and still have share partitions here."""
        self.forgettable_topics: frozenset[str] = frozenset()
        """Soft state: those of ``old_topics`` that the last sweep found, and the next one may forget."""
        self._swept_until_ms = 0
        self._holders: dict[int, set[SharePartitionKey]] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return (
            f"<ShareGroup {self.group_id} partitions={len(self.partitions)} members={len(self.members)} "
            f"last_plan_id={self.last_plan_id}>"
        )

    # --- looked at by commands and by the service

    @property
    def exists(self) -> bool:
        return bool(self.incarnation)

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

    def plan_id(self, text: str) -> int:
        """The plan id of a plan named on the wire; 0 for an empty text.

        Raises:
            ForeignPlan: the plan is of another incarnation of the group.
        """
        if not text:
            return 0
        incarnation, _, plan_id = text.rpartition(".")
        if incarnation != self.incarnation or not plan_id.isdigit():
            raise ForeignPlan(plan_id=text, group_id=self.group_id, incarnation=self.incarnation)
        return int(plan_id)

    def plan_id_text(self, plan_id: int) -> str:
        return f"{self.incarnation}.{plan_id}" if plan_id else ""

    def carrying(self, plan: AcquiredPlan) -> Iterator[tuple[SharePartition, list[Segment]]]:
        """By partition, the segments that still carry the plan's id, in the plan's order."""
        for topic_id, index, ranges in plan.ranges:
            partition = self.partitions.get(SharePartitionKey(topic_id, index))
            if partition is not None and (segments := partition.carrying(plan.plan_id, ranges)):
                yield partition, segments

    def is_current(self, topic_id: str) -> bool:
        """Whether the topic exists, as far as the group knows: it was neither deleted nor deleted and created anew."""
        return self.topics.get(self.topic_names.get(topic_id, "")) == topic_id and topic_id not in self.gone

    def initialized(self, topic_id: str, partition: int) -> bool:
        return SharePartitionKey(topic_id, partition) in self.partitions

    def plan_topic_ids(self, member: Member, plan_id: str) -> set[tuple[str, int]]:
        """(topic id, partition) of the plan that a start of ``plan_id`` touches; empty if the group has none."""
        named = self.plan_id(plan_id)
        is_superseded = member.plan_state(named) is PlanState.SUPERSEDED
        plan = member.newest if is_superseded else self.plans.get(named)
        return set() if plan is None else {(topic_id, index) for topic_id, index, _ in plan.ranges}

    def next_deadline_ms(self) -> int | None:
        """When Expire has something to do next; None: never. A deadline is over when it lies before now."""
        deadlines = (self.members[member_id].session_deadline_ms for member_id in self.sessions)
        earliest = [deadline_ms for deadline_ms in deadlines if deadline_ms is not None]
        earliest += [self._deadlines[0][0]] if self._deadlines else []
        earliest += [self._swept_until_ms] if self.has_forgettable else []
        return min(earliest) + 1 if earliest else None

    @property
    def has_forgettable(self) -> bool:
        """Whether the group may have members or partitions to forget."""
        return bool(self.old_topics) or len(self.members) - len(self.sessions) > MEMBERS_KEPT

    def sweep_is_due(self, now_ms: int) -> bool:
        """Whether the sweep for members and partitions to forget is due."""
        return self.has_forgettable and self._swept_until_ms < now_ms

    def due_plan_ids(self, now_ms: int) -> set[int]:
        """The ids of plans with a lock deadline before ``now_ms``."""
        due, heap, look = set(), self._deadlines, [0]
        while look:
            index = look.pop()
            if index < len(heap) and heap[index][0] < now_ms:
                due.add(heap[index][1])
                look += [2 * index + 1, 2 * index + 2]
        return due

    def may_rest(self, now_ms: int) -> bool:
        """Whether nothing is acquired or delayed and no session lives: an on-demand coordinator may leave."""
        if self.sessions:
            return False
        return not any(partition.acquired_count or partition.waits(now_ms) for partition in self.partitions.values())

    # --- changed by replay

    def replay(self, record: Record) -> None:
        """Apply a log record."""
        _REPLAY[type(record)](self, record)

    def loaded(self, now_ms: int) -> None:
        """Set the soft state after a load: every member that holds records has one session timeout to come back, and so
        has every ShareConsumer's lock. Nothing of this is logged."""
        deadline_ms = self.deadlines_extended_until_ms = now_ms + self.config.share_session_timeout_ms
        self._deadlines = []
        for plan in list(self.plans.values()):
            held = [
                (partition, segment)
                for partition, segments in self.carrying(plan)
                for segment in segments
                if segment.run.state == RecordState.ACQUIRED
            ]
            if held:
                self.members[plan.member_id].session_deadline_ms = deadline_ms
                self.sessions[plan.member_id] = None
            if not plan.query:
                for partition, (first, last, run) in held:
                    partition.apply([(first, last, run._replace(deadline_ms=deadline_ms))])
                self._watch(plan.plan_id, deadline_ms)

    def snapshot(self) -> Iterator[Record]:
        """Log records that rebuild this group from an empty one."""
        return snapshot_of(self)

    # --- one method a record

    def _group_created(self, record: GroupCreated) -> None:
        self.incarnation, self.topic_ids = record.incarnation, record.topic_ids

    def _configs_altered(self, record: ConfigsAltered) -> None:
        self.configs = dict(record.configs)
        self.config = GroupConfig.parse(self.configs)

    def _topic_registered(self, record: TopicRegistered) -> None:
        before = self.topics.get(record.topic, record.topic_id)
        if before != record.topic_id:
            self.old_topics.add(before)
        self.old_topics.discard(record.topic_id)
        self.topics[record.topic] = record.topic_id
        self.topic_names[record.topic_id] = record.topic
        self.gone.discard(record.topic_id)

    def _topic_deleted(self, record: TopicDeleted) -> None:
        self.gone.add(record.topic_id)

    def _partition_initialized(self, record: PartitionInitialized) -> None:
        key = SharePartitionKey(record.topic_id, record.partition)
        partition = SharePartition(key, record.start_offset)
        partition.log_start = record.log_start
        for disposition, count in enumerate(record.archived):
            partition.archived[disposition] = count
        if record.end_offset is not None:
            partition.end_offset = record.end_offset
        self.partitions[key] = partition

    def _member_joined(self, record: MemberJoined) -> None:
        member = self.members.get(record.member_id)
        if member is None:
            member = self.members[record.member_id] = Member(record.member_id, 0, "", record.query)
        for name in record.__struct_fields__:
            setattr(member, name, getattr(record, name))

    def _session_renewed(self, record: SessionRenewed) -> None:
        self.members[record.member_id].session_deadline_ms = record.deadline_ms
        self.sessions[record.member_id] = None

    def _session_ended(self, record: SessionEnded) -> None:
        self.members[record.member_id].session_deadline_ms = None
        self.sessions.pop(record.member_id, None)

    def _member_seen(self, record: MemberSeen) -> None:
        self.members[record.member_id].seen_ms = record.seen_ms

    def _members_forgotten(self, record: MembersForgotten) -> None:
        for member_id in record.member_ids:
            del self.members[member_id]
        self.forgotten_epoch = record.forgotten_epoch
        if record.unreported_losses is not None:
            self.unreported_losses = record.unreported_losses

    def _partitions_forgotten(self, record: PartitionsForgotten) -> None:
        for index in record.partitions:
            del self.partitions[SharePartitionKey(record.topic_id, index)]
        if not any(key.topic_id == record.topic_id for key in self.partitions):
            self.old_topics.discard(record.topic_id)
            self.gone.discard(record.topic_id)
            del self.topic_names[record.topic_id]

    def _swept(self, record: Swept) -> None:
        self._swept_until_ms, self.forgettable_topics = record.next_ms, frozenset(record.old_topics)

    def _runs_changed(self, record: RunsChanged | LocksRenewed) -> None:
        partition = self.partitions[SharePartitionKey(record.topic_id, record.partition)]
        partition.apply(record.runs)
        deadlines = {(run.plan_id, run.deadline_ms) for _, _, run in record.runs if run.deadline_ms is not None}
        for plan_id, deadline_ms in deadlines:
            if plan_id is not None:
                self._watch(plan_id, deadline_ms)
        self._drop_plans_nobody_carries(partition)

    def _watch(self, plan_id: int, deadline_ms: int) -> None:
        while self._deadlines and self._deadlines[0][1] not in self.plans and self._deadlines[0][1] != plan_id:
            heapq.heappop(self._deadlines)
        heapq.heappush(self._deadlines, (deadline_ms, plan_id))

    def _deadlines_passed(self, record: DeadlinesPassed) -> None:
        while self._deadlines and self._deadlines[0][0] < record.now_ms:
            heapq.heappop(self._deadlines)

    def _deadlines_extended(self, record: DeadlinesExtended) -> None:
        self.deadlines_extended_until_ms = record.until_ms

    def _drop_plans_nobody_carries(self, partition: SharePartition) -> None:
        for plan_id in partition.runs.changed_plan_ids:
            holders = self._holders.setdefault(plan_id, set())
            if plan_id in partition.runs.carried:
                holders.add(partition.key)
                continue
            holders.discard(partition.key)
            if not holders:
                del self._holders[plan_id]
                self.plans.pop(plan_id, None)
        partition.runs.changed_plan_ids.clear()

    def _plan_acquired(self, record: PlanAcquired) -> None:
        member = self.members[record.member_id]
        plan = plan_from(record, member)
        plan.explicit, plan.superseded_plans = record.explicit, record.superseded_plans
        plan.unreported_losses = record.unreported_losses
        if record.ranges:
            self.plans[record.plan_id] = plan
        self.last_plan_id = record.plan_id
        member.seen_ms = max(member.seen_ms, record.acquired_ms)
        if member.query:
            self._drop_reported_losses(record.reported_topic_ids)
            member.newest = plan

    def _drop_reported_losses(self, topic_ids: tuple[str, ...]) -> None:
        self.unreported_losses = tuple(lost for lost in self.unreported_losses if lost.topic_id not in topic_ids)

    def _ranges_added(self, record: RangesAdded) -> None:
        newest = self.members[record.member_id].newest
        plan = newest if newest is not None and newest.plan_id == record.plan_id else self.plans[record.plan_id]
        plan.ranges = with_ranges(plan.ranges, record.ranges)

    def _plan_started(self, record: PlanStarted) -> None:
        self._drop_reported_losses(record.reported_topic_ids)
        member = self.members[record.member_id]
        plan = member.newest
        assert plan is not None
        if record.replaced_plan_id is not None:
            plan = member.newest = replace(
                plan, plan_id=record.plan_id, trial=False, superseded_plans=(), explicit_attempts=(), staged={}
            )
        plan.member_epoch, plan.started, plan.reclaims = record.member_epoch, record.started, record.reclaims
        plan.counts_as_evidence = record.started
        plan.explicit, plan.replaces = record.explicit, record.replaces
        plan.data_loss, plan.left_out = record.data_loss, record.left_out
        plan.unreported_losses = record.unreported_losses
        plan.ranges = self._still_held(plan)

    def _still_held(self, plan: AcquiredPlan) -> PlanRanges:
        """The plan's ranges that still carry its plan id. Replay computes them from the runs, which are logged: a plan
        may have 10,000 ranges, and a record that repeated them would be larger than all the others of a start."""
        held = []
        for partition, segments in self.carrying(plan):
            ranges: list[tuple[int, int]] = []
            for first, last, _ in segments:
                if ranges and ranges[-1][1] == first - 1:
                    first = ranges.pop()[0]
                ranges.append((first, last))
            held.append((partition.key.topic_id, partition.key.partition, tuple(ranges)))
        return tuple(held)

    def _plan_staged(self, record: PlanStaged) -> None:
        """Replay merges the outcomes with those staged before: the record holds a sink's own outcomes only, since all
        that is staged of a plan may be larger by far than what one commit adds."""
        member = self.members[record.member_id]
        member.decides = True
        if record.query_id is not None:
            member.query_id = record.query_id
        if record.reject_window is not None:
            self.decided, self.rejected = record.reject_window
        plan = self.plans.get(record.plan_id)
        if plan is None:
            return
        if record.explicit is not None:
            plan.explicit = record.explicit
        if record.replaces is not None:
            plan.replaces = record.replaces
        if record.explicit_attempts is not None:
            plan.explicit_attempts = record.explicit_attempts
        for topic_id, index, runs in record.partitions:
            key = SharePartitionKey(topic_id, index)
            plan.staged[key] = staged_with(plan.staged.get(key, []), list(runs))

    def _plan_completed(self, record: PlanCompleted) -> None:
        member = self.members[record.member_id]
        member.completed, member.evidence = record.plan_id, record.evidence
        assert member.newest is not None
        # Only the plan id of a completed plan is needed.
        member.newest.staged, member.newest.ranges, member.newest.left_out = {}, (), ()
        member.newest.data_loss, member.newest.superseded_plans = (), ()

    def _evidence_cleared(self, record: EvidenceCleared) -> None:
        for member in self.members.values():
            member.evidence = False
            if member.newest is not None:
                member.newest.counts_as_evidence = False

    def _evidence_used(self, record: EvidenceUsed) -> None:
        self.members[record.member_id].evidence = False

    def _log_start_moved(self, record: LogStartMoved) -> None:
        partition = self.partitions[SharePartitionKey(record.topic_id, record.partition)]
        partition.move_log_start(record.log_start)
        self._drop_plans_nobody_carries(partition)

    def _data_lost(self, record: DataLost) -> None:
        if record.plan_id is None or record.member_id is None:
            self.unreported_losses = bounded((*self.unreported_losses, *record.lost))
            return
        plan = self.members[record.member_id].newest
        assert plan is not None and plan.plan_id == record.plan_id
        plan.unreported_losses = bounded((*plan.unreported_losses, *record.lost))

    def _plan_kept(self, record: PlanKept) -> None:
        member = self.members[record.member_id]
        plan = plan_from(record, member)
        plan.started, plan.counts_as_evidence = record.started, record.counts_as_evidence
        plan.data_loss, plan.unreported_losses, plan.left_out = (
            record.data_loss,
            record.unreported_losses,
            record.left_out,
        )
        plan.superseded_plans, plan.reclaims = record.superseded_plans, record.reclaims
        plan.explicit, plan.explicit_attempts, plan.replaces = (
            record.explicit,
            record.explicit_attempts,
            record.replaces,
        )
        if record.carried:
            self.plans[record.plan_id] = plan
        if record.newest:
            member.newest = plan

    def _group_progress_kept(self, record: GroupProgressKept) -> None:
        self.last_plan_id, self.forgotten_epoch = record.last_plan_id, record.forgotten_epoch
        self.decided, self.rejected = record.decided, record.rejected

    def _member_progress_kept(self, record: MemberProgressKept) -> None:
        member = self.members[record.member_id]
        member.completed, member.evidence = record.completed, record.evidence
        member.decides, member.query_id = record.decides, record.query_id


_REPLAY: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    GroupCreated: ShareGroup._group_created,
    ConfigsAltered: ShareGroup._configs_altered,
    TopicRegistered: ShareGroup._topic_registered,
    TopicDeleted: ShareGroup._topic_deleted,
    PartitionInitialized: ShareGroup._partition_initialized,
    MemberJoined: ShareGroup._member_joined,
    MemberSeen: ShareGroup._member_seen,
    MembersForgotten: ShareGroup._members_forgotten,
    PartitionsForgotten: ShareGroup._partitions_forgotten,
    Swept: ShareGroup._swept,
    SessionRenewed: ShareGroup._session_renewed,
    SessionEnded: ShareGroup._session_ended,
    RunsChanged: ShareGroup._runs_changed,
    LocksRenewed: ShareGroup._runs_changed,
    DeadlinesPassed: ShareGroup._deadlines_passed,
    DeadlinesExtended: ShareGroup._deadlines_extended,
    PlanAcquired: ShareGroup._plan_acquired,
    RangesAdded: ShareGroup._ranges_added,
    PlanStarted: ShareGroup._plan_started,
    PlanStaged: ShareGroup._plan_staged,
    PlanCompleted: ShareGroup._plan_completed,
    EvidenceCleared: ShareGroup._evidence_cleared,
    EvidenceUsed: ShareGroup._evidence_used,
    LogStartMoved: ShareGroup._log_start_moved,
    DataLost: ShareGroup._data_lost,
    PlanKept: ShareGroup._plan_kept,
    GroupProgressKept: ShareGroup._group_progress_kept,
    MemberProgressKept: ShareGroup._member_progress_kept,
}
