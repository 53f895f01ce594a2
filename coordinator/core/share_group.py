"""A share group: its members, plans and share partitions, and the one place where they change.

:meth:`ShareGroup.replay` is the only method that changes the group, live and on recovery alike; commands read the group
and return records (:mod:`coordinator.core.decide`). A snapshot is a list of the same records.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core.members import AcquiredPlan, Member, PlanRanges
from coordinator.core.record_state import RecordState
from coordinator.core.records import (
    ConfigsAltered,
    DataLost,
    DeadlinesPassed,
    EvidenceCleared,
    GroupCreated,
    LocksRenewed,
    LogStartMoved,
    MemberJoined,
    PartitionInitialized,
    PlanAcquired,
    PlanCompleted,
    PlanKept,
    PlanStaged,
    PlanTakenUp,
    ProgressKept,
    Record,
    RunsChanged,
    SessionEnded,
    SessionRenewed,
    TopicRegistered,
)
from coordinator.core.runs import Segment
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import staged_with
from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, UnknownMemberId
from coordinator.protocol.messages import LeftOut
from coordinator.protocol.values import TopicIdPartition

REJECT_WINDOW = 10_000
"""About so many decided records, the last ones, tell which part of them was rejected."""

GIVEN_UP_KEPT = 100


class ShareGroup:
    """State of one group. ``numbers`` in here are ints; on the wire they carry the group's incarnation."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.incarnation = ""
        self.topic_ids = True
        self.config = GroupConfig.parse()
        self.configs: dict[str, str] = {}
        self.topics: dict[str, str] = {}
        self.topic_names: dict[str, str] = {}
        self.partitions: dict[TopicIdPartition, SharePartition] = {}
        self.members: dict[str, Member] = {}
        self.plans: dict[int, AcquiredPlan] = {}
        self.last_number = 0
        self.untold: tuple[LeftOut, ...] = ()
        """What the logs lost of records that nobody held: the query that acquires next is told."""
        self.decided = 0
        self.rejected = 0
        """By sinks, of about the last REJECT_WINDOW records."""
        self._holders: dict[int, set[TopicIdPartition]] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __repr__(self) -> str:
        return (
            f"<ShareGroup {self.group_id} partitions={len(self.partitions)} members={len(self.members)} "
            f"last_number={self.last_number}>"
        )

    # --- looked at by commands and by the service

    @property
    def exists(self) -> bool:
        return bool(self.incarnation)

    def member(self, member_id: str, member_epoch: int) -> Member:
        """The member, if its session lives and this is its epoch: UnknownMemberId, FencedMemberEpoch."""
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

    def number(self, text: str) -> int:
        """The number of a plan named on the wire; 0 for none; ForeignPlan if it is not of this incarnation."""
        if not text:
            return 0
        incarnation, _, number = text.rpartition(".")
        if incarnation != self.incarnation or not number.isdigit():
            raise ForeignPlan(number=text, group_id=self.group_id, incarnation=self.incarnation)
        return int(number)

    def number_text(self, number: int) -> str:
        return f"{self.incarnation}.{number}" if number else ""

    def carrying(self, plan: AcquiredPlan) -> Iterator[tuple[SharePartition, list[Segment]]]:
        """By partition, the segments that still carry the plan's number, in the plan's order."""
        for topic_id, index, ranges in plan.ranges:
            partition = self.partitions.get(TopicIdPartition(topic_id, index))
            if partition is not None and (segments := partition.carrying(plan.number, ranges)):
                yield partition, segments

    def initialized(self, topic_id: str, partition: int) -> bool:
        return TopicIdPartition(topic_id, partition) in self.partitions

    def plan_topic_ids(self, member: Member, number: str) -> set[tuple[str, int]]:
        """Share partitions of the live plan that taking up this number is about; empty if there is none."""
        named = self.number(number)
        plan = member.newest if member.gave_up(named) else self.plans.get(named)
        return set() if plan is None else {(topic_id, index) for topic_id, index, _ in plan.ranges}

    def next_deadline_ms(self) -> int | None:
        """When Expire has something to do next, at the earliest (deadlines are over when they lie before now)."""
        sessions = [m.session_deadline_ms for m in self.members.values() if m.session_deadline_ms is not None]
        earliest = sessions + ([self._deadlines[0][0]] if self._deadlines else [])
        return min(earliest) + 1 if earliest else None

    def due_numbers(self, now_ms: int) -> set[int]:
        """Acquisitions with a lock deadline before ``now_ms``."""
        due, heap, look = set(), self._deadlines, [0]
        while look:
            index = look.pop()
            if index < len(heap) and heap[index][0] < now_ms:
                due.add(heap[index][1])
                look += [2 * index + 1, 2 * index + 2]
        return due

    def may_rest(self, now_ms: int) -> bool:
        """Nothing is held or delayed and no session lives: an on-demand coordinator may leave."""
        if any(member.active for member in self.members.values()):
            return False
        return not any(partition.acquired_count or partition.waits(now_ms) for partition in self.partitions.values())

    # --- changed by replay

    def replay(self, record: Record) -> None:
        """Apply a record: the only thing that changes the group."""
        _REPLAY[type(record)](self, record)

    def loaded(self, now_ms: int) -> None:
        """After a load every holder has one session timeout to come back."""
        deadline_ms = now_ms + self.config.share_session_timeout_ms
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
            if not plan.query:
                for partition, (first, last, run) in held:
                    partition.apply([(first, last, run._replace(deadline_ms=deadline_ms))])
                self._watch(plan.number, deadline_ms)

    def snapshot(self) -> Iterator[Record]:
        """Records that rebuild this group from an empty one; live plans and numbers among them."""
        if not self.exists:
            return
        yield GroupCreated(incarnation=self.incarnation, topic_ids=self.topic_ids)
        if self.configs:
            yield ConfigsAltered(configs=dict(self.configs))
        for topic, topic_id in self.topics.items():
            yield TopicRegistered(topic=topic, topic_id=topic_id)
        for member in self.members.values():
            yield _member_record(member)
        yield ProgressKept(number=self.last_number, decided=self.decided, rejected=self.rejected)
        for plan in self._kept_plans():
            yield self._plan_record(plan)
        yield from self._staged_records()
        for member in self.members.values():
            yield ProgressKept(
                number=member.completed,
                member_id=member.member_id,
                evidence=member.evidence,
                decides=member.decides,
                query_id=member.query_id,
            )
        for key, partition in self.partitions.items():
            yield from _partition_records(key, partition)
        if self.untold:
            yield DataLost(number=0, member_id="", lost=self.untold)

    def _staged_records(self) -> Iterator[PlanStaged]:
        for plan in self.plans.values():
            if plan.staged:
                partitions = tuple((*key, tuple(runs)) for key, runs in plan.staged.items())
                yield PlanStaged(number=plan.number, member_id=plan.member_id, partitions=partitions)

    def _kept_plans(self) -> list[AcquiredPlan]:
        newest = [m.newest for m in self.members.values() if m.newest is not None]
        return sorted({p.number: p for p in [*self.plans.values(), *newest]}.values(), key=lambda p: p.number)

    def _plan_record(self, plan: AcquiredPlan) -> PlanKept:
        return PlanKept(
            number=plan.number,
            member_id=plan.member_id,
            member_epoch=plan.member_epoch,
            acquired_ms=plan.acquired_ms,
            trial=plan.trial,
            used=plan.used,
            vouches=plan.vouches,
            newest=self.members[plan.member_id].newest is plan,
            carried=plan.number in self.plans,
            data_loss=plan.data_loss,
            untold=plan.untold,
            left_out=plan.left_out,
            ranges=plan.ranges,
            reclaims=plan.reclaims,
            gave_up=plan.gave_up,
            spoke=plan.spoke,
        )

    # --- one method a record

    def _group_created(self, record: GroupCreated) -> None:
        self.incarnation, self.topic_ids = record.incarnation, record.topic_ids

    def _configs_altered(self, record: ConfigsAltered) -> None:
        self.configs = dict(record.configs)
        self.config = GroupConfig.parse(self.configs)

    def _topic_registered(self, record: TopicRegistered) -> None:
        self.topics[record.topic] = record.topic_id
        self.topic_names[record.topic_id] = record.topic

    def _partition_initialized(self, record: PartitionInitialized) -> None:
        key = TopicIdPartition(record.topic_id, record.partition)
        partition = SharePartition(key, record.start_offset)
        partition.log_start, partition.archived_total = record.log_start, record.archived_total
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

    def _session_ended(self, record: SessionEnded) -> None:
        self.members[record.member_id].session_deadline_ms = None

    def _runs_changed(self, record: RunsChanged | LocksRenewed) -> None:
        partition = self.partitions[TopicIdPartition(record.topic_id, record.partition)]
        partition.apply(record.runs)
        deadlines = {(run.acquisition, run.deadline_ms) for _, _, run in record.runs if run.deadline_ms is not None}
        for number, deadline_ms in deadlines:
            if number is not None:
                self._watch(number, deadline_ms)
        self._drop_plans_nobody_carries(partition)

    def _watch(self, number: int, deadline_ms: int) -> None:
        while self._deadlines and self._deadlines[0][1] not in self.plans and self._deadlines[0][1] != number:
            heapq.heappop(self._deadlines)
        heapq.heappush(self._deadlines, (deadline_ms, number))

    def _deadlines_passed(self, record: DeadlinesPassed) -> None:
        while self._deadlines and self._deadlines[0][0] < record.now_ms:
            heapq.heappop(self._deadlines)

    def _drop_plans_nobody_carries(self, partition: SharePartition) -> None:
        for number in partition.runs.changed_numbers:
            holders = self._holders.setdefault(number, set())
            if number in partition.runs.carried:
                holders.add(partition.key)
                continue
            holders.discard(partition.key)
            if not holders:
                del self._holders[number]
                self.plans.pop(number, None)
        partition.runs.changed_numbers.clear()

    def _plan_acquired(self, record: PlanAcquired) -> None:
        member = self.members[record.member_id]
        plan = _plan_of(record, member)
        self.plans[record.number] = plan
        self.last_number = max(self.last_number, record.number)
        if member.query:
            given_up = member.pending
            plan.untold = record.untold
            if given_up is not None:
                plan.untold = (*given_up.untold, *given_up.data_loss, *record.untold)
                plan.gave_up = (*given_up.gave_up, given_up.number)[-GIVEN_UP_KEPT:]
            self.untold = tuple(lost for lost in self.untold if lost not in record.untold)
            member.newest = plan

    def _plan_taken_up(self, record: PlanTakenUp) -> None:
        member = self.members[record.member_id]
        plan = member.newest
        assert plan is not None
        if plan.number != record.number:
            plan = member.newest = replace(plan, number=record.number, trial=False, gave_up=(), spoke=(), staged={})
        plan.reclaims += plan.member_epoch != record.member_epoch
        plan.member_epoch, plan.used = record.member_epoch, record.used
        plan.vouches = record.used
        plan.data_loss, plan.untold, plan.left_out = record.data_loss, record.untold, record.left_out
        plan.ranges = self._still_held(plan)

    def _still_held(self, plan: AcquiredPlan) -> PlanRanges:
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
        member = self.members[record.member_id]
        member.decides, member.query_id = True, record.query_id or member.query_id
        plan = self.plans.get(record.number)
        if plan is not None and record.attempt is not None and record.attempt not in plan.spoke:
            plan.spoke = (*plan.spoke, record.attempt)[-2:]
        for topic_id, index, runs in record.partitions if plan is not None else ():
            assert plan is not None
            key = TopicIdPartition(topic_id, index)
            plan.staged[key] = staged_with(plan.staged.get(key, []), list(runs))
        self.decided += record.decided
        self.rejected += record.rejected
        while self.decided > REJECT_WINDOW:
            self.decided, self.rejected = self.decided // 2, self.rejected // 2

    def _plan_completed(self, record: PlanCompleted) -> None:
        member = self.members[record.member_id]
        member.completed = record.number
        assert member.newest is not None
        member.newest.staged = {}
        member.evidence = member.evidence or (record.records > 0 and member.newest.vouches)

    def _evidence_cleared(self, record: EvidenceCleared) -> None:
        for member in self.members.values():
            if record.member_id in (None, member.member_id):
                member.evidence = False
                if record.member_id is None and member.newest is not None:
                    member.newest.vouches = False

    def _log_start_moved(self, record: LogStartMoved) -> None:
        partition = self.partitions[TopicIdPartition(record.topic_id, record.partition)]
        partition.move_log_start(record.log_start)
        self._drop_plans_nobody_carries(partition)

    def _data_lost(self, record: DataLost) -> None:
        if not record.number:
            self.untold = _joined((*self.untold, *record.lost))
            return
        plan = self.members[record.member_id].newest
        assert plan is not None and plan.number == record.number
        plan.untold = (*plan.untold, *record.lost)

    def _plan_kept(self, record: PlanKept) -> None:
        member = self.members[record.member_id]
        plan = _plan_of(record, member)
        plan.used, plan.vouches = record.used, record.vouches
        plan.data_loss, plan.untold, plan.left_out = record.data_loss, record.untold, record.left_out
        plan.gave_up, plan.reclaims, plan.spoke = record.gave_up, record.reclaims, record.spoke
        if record.carried:
            self.plans[record.number] = plan
        if record.newest:
            member.newest = plan

    def _progress_kept(self, record: ProgressKept) -> None:
        if record.member_id is None:
            self.last_number = max(self.last_number, record.number)
            self.decided, self.rejected = record.decided, record.rejected
        else:
            member = self.members[record.member_id]
            member.completed, member.evidence = record.number, record.evidence
            member.decides, member.query_id = record.decides, record.query_id


def _joined(lost: tuple[LeftOut, ...]) -> tuple[LeftOut, ...]:
    """Neighbours as one: a log that loses its oldest records again and again makes one entry."""
    found: list[LeftOut] = []
    for out in sorted(lost, key=lambda o: (o.topic, o.partition, o.first)):
        last = found[-1] if found else None
        if last is not None and (last.topic, last.partition, last.last + 1) == (out.topic, out.partition, out.first):
            found[-1] = msgspec.structs.replace(last, last=out.last)
        else:
            found.append(out)
    return tuple(found)


def _plan_of(record: PlanAcquired | PlanKept, member: Member) -> AcquiredPlan:
    return AcquiredPlan(
        record.number,
        record.member_id,
        record.member_epoch,
        record.acquired_ms,
        record.ranges,
        member.query,
        trial=record.trial,
    )


def _member_record(member: Member) -> MemberJoined:
    return MemberJoined(**{name: getattr(member, name) for name in MemberJoined.__struct_fields__})


def _partition_records(key: TopicIdPartition, partition: SharePartition) -> Iterator[Record]:
    yield PartitionInitialized(
        topic_id=key.topic_id,
        partition=key.partition,
        start_offset=partition.start_offset,
        log_start=partition.log_start,
        archived_total=partition.archived_total - partition.runs.counts[RecordState.ARCHIVED],
        end_offset=partition.end_offset,
    )
    runs = tuple((segment.first, segment.last, segment.run) for segment in partition.runs)
    if runs:
        yield RunsChanged(topic_id=key.topic_id, partition=key.partition, runs=runs)


_REPLAY: dict[type[Any], Callable[[ShareGroup, Any], None]] = {
    GroupCreated: ShareGroup._group_created,
    ConfigsAltered: ShareGroup._configs_altered,
    TopicRegistered: ShareGroup._topic_registered,
    PartitionInitialized: ShareGroup._partition_initialized,
    MemberJoined: ShareGroup._member_joined,
    SessionRenewed: ShareGroup._session_renewed,
    SessionEnded: ShareGroup._session_ended,
    RunsChanged: ShareGroup._runs_changed,
    LocksRenewed: ShareGroup._runs_changed,
    DeadlinesPassed: ShareGroup._deadlines_passed,
    PlanAcquired: ShareGroup._plan_acquired,
    PlanTakenUp: ShareGroup._plan_taken_up,
    PlanStaged: ShareGroup._plan_staged,
    PlanCompleted: ShareGroup._plan_completed,
    EvidenceCleared: ShareGroup._evidence_cleared,
    LogStartMoved: ShareGroup._log_start_moved,
    DataLost: ShareGroup._data_lost,
    PlanKept: ShareGroup._plan_kept,
    ProgressKept: ShareGroup._progress_kept,
}
