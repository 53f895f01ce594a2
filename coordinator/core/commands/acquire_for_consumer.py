"""A ShareConsumer acquires (KIP-932, ShareFetch; KIP-1206, the two acquire modes).

Kafka's rule for records that keep failing holds here, with an AVAILABLE run in the place of Kafka's cached batch: from
the threshold on, the run is halved at each delivery, and a record on its last try is alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from coordinator.core.commands import AcquireForConsumer, Decision
from coordinator.core.commands.acquisition import (
    MAX_RANGES,
    held_back,
    held_by,
    is_turn_of_one_alone,
    plan_of,
    ranges_of,
    room,
    rotated,
    run_records,
)
from coordinator.core.flow import flow_of, flowing, in_the_way
from coordinator.core.isolation import isolation_threshold
from coordinator.core.log_records import PlanAcquired
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.order import (
    Log,
    delivered_alone,
    free,
    held_by_others,
    holders,
    may_take_fresh,
    returned,
    waits,
)
from coordinator.core.record_state import HELD
from coordinator.core.runs import FRESH, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.messages import AcquiredReply
from coordinator.protocol.values import SharePartitionKey


def acquire_records(group: ShareGroup, command: AcquireForConsumer, now_ms: int) -> Decision[AcquiredReply]:
    """Acquire up to ``max_records`` records, in up to MAX_RANGES ranges, of the partitions that are assigned to the
    member, under a lock of share.record.lock.duration.ms from now. Of each partition, records that came back are first.
    Each acquisition begins with another partition, so that one with a backlog does not keep the member from the others.
    If the consumer has not seen the answer to an earlier request, it gets the same records again.

    With ``ahead`` the consumer's program still works on other records. Then nothing is acquired if a record is due that
    is to be delivered apart from others: a crash of the program would count as a failure of that record as well."""
    member = group.member(command.member_id, command.member_epoch)
    if command.after is not None and (unseen := _unseen(group, command)) is not None:
        return Decision((), _again(group, unseen, now_ms))
    taken: dict[SharePartitionKey, list[Segment]] = {}
    subscribed = _rotated(group, member, command)
    of_member, flow = flowing(group, subscribed), flow_of(group, now_ms)
    if flow.limited_by:
        _, limited_by, retry_ms = in_the_way(group, flow, subscribed, of_member, now_ms, now_ms)
        return Decision((), AcquiredReply(limited_by=limited_by, retry_ms=retry_ms))
    logs = free(group, member, of_member, now_ms, now_ms)
    if waiting := held_back(partition for partition, _ in of_member):
        return Decision((), AcquiredReply(held_back=waiting))
    left, ranges = min(command.max_records, flow.most or command.max_records), MAX_RANGES
    soft = (command.acquire_mode or group.config.share_acquire_mode) == "batch_optimized" and flow.most is None
    alone = _one_alone(group, logs, now_ms) if is_turn_of_one_alone(member) else None
    if alone is not None and command.ahead:
        return Decision((), AcquiredReply())
    if alone is not None:
        return acquired_decision(group, member.member_id, member.member_epoch, {alone[0]: [alone[1]]}, now_ms)
    for partition, end in logs:
        if left <= 0 or ranges <= 0:
            break
        fetch = PartitionFetch(group, partition, end, left, now_ms, soft=soft, max_ranges=ranges, ahead=command.ahead)
        fetch.take()
        if fetch.needs_a_poll:
            return Decision((), AcquiredReply())
        if fetch.taken:
            taken[partition.key] = fetch.taken
            left -= fetch.records
            ranges -= len(fetch.taken)
    if not taken:
        held = held_by_others(group, member, of_member)
        limited_by = in_the_way(group, flow, subscribed, of_member, now_ms, now_ms).limited_by
        reply = AcquiredReply(holders=holders(group, held), limited_by=limited_by)
        return Decision(waits(group, member, held, now_ms), reply)
    return acquired_decision(group, member.member_id, member.member_epoch, taken, now_ms)


def _rotated(group: ShareGroup, member: Member, command: AcquireForConsumer) -> list[Log]:
    of_member = [
        (partition, of.end)
        for of in command.bounds
        if (partition := group.partitions.get(SharePartitionKey(of.topic_id, of.partition))) is not None
        and (command.beyond or may_acquire(group, member, partition.key))
    ]
    return rotated(of_member, member, [partition for partition, _ in of_member])


def _one_alone(group: ShareGroup, logs: Iterable[Log], now_ms: int) -> tuple[SharePartitionKey, Segment] | None:
    """The least recently tried record of these logs that is delivered alone and may be acquired now; None if there is
    none. The caller asks for it in turns, since in a stream that never rests it would never be the only record."""
    found = [
        (partition.key, segment)
        for partition, end in logs
        if (segment := _alone_in(group, partition, end, now_ms)) is not None
    ]
    return min(found, key=lambda each: each[1].run.last_tried_ms or 0, default=None)


def _alone_in(group: ShareGroup, partition: SharePartition, end: int, now_ms: int) -> Segment | None:
    """The partition's least recently tried record that is delivered alone and may be acquired now."""
    for segment in delivered_alone(group, partition):
        is_due = (segment.run.not_before_ms or 0) <= now_ms
        if is_due and segment.first < end and room(group, partition, 0) > 0:
            return segment._replace(last=segment.first)
    return None


def may_acquire(group: ShareGroup, member: Member, key: SharePartitionKey) -> bool:
    """Whether the member may acquire from the partition. Records that it holds there it may acknowledge in any case."""
    return not member.is_assigned or key in group.assignment.get(member.member_id, ())


def acquired_decision(
    group: ShareGroup, member_id: str, member_epoch: int, taken: dict[SharePartitionKey, list[Segment]], now_ms: int
) -> Decision[AcquiredReply]:
    """The decision by which the member acquires these segments, under one plan id and one lock deadline."""
    plan_id = group.last_plan_id + 1
    deadline_ms = now_ms + group.config.share_record_lock_duration_ms
    held = held_by(plan_id, taken, now_ms, deadline_ms)
    plan = PlanAcquired(
        plan_id=plan_id,
        member_id=member_id,
        member_epoch=member_epoch,
        acquired_ms=now_ms,
        ranges=ranges_of(held),
    )
    reply = AcquiredReply(
        plan_id=group.plan_id_text(plan_id),
        partitions=plan_of(group, held.items()),
        lock_timeout_ms=group.config.share_record_lock_duration_ms,
    )
    return Decision((plan, *run_records(group, held)), reply)


def _unseen(group: ShareGroup, command: AcquireForConsumer) -> AcquiredPlan | None:
    """The oldest plan of the member that is newer than the plan it names as the last one seen. A plan id of another
    incarnation counts as older than all."""
    incarnation, _, number = (command.after or "").rpartition(".")
    seen = int(number) if incarnation == group.incarnation and number.isdecimal() else 0
    later = [p for p in group.plans.values() if p.plan_id > seen and p.member_id == command.member_id]
    return min(later, key=attrgetter("plan_id"), default=None)


def _again(group: ShareGroup, plan: AcquiredPlan, now_ms: int) -> AcquiredReply:
    """The answer that acquired the plan, with what the member still holds, and the time that is left of the locks."""
    held = [
        (partition.key, [s for s in segments if s.run.state in HELD]) for partition, segments in group.carrying(plan)
    ]
    ends = {s.run.deadline_ms for _, segments in held for s in segments if s.run.deadline_ms is not None}
    deadlines = map(group.locks.deadline_ms, ends)
    return AcquiredReply(
        plan_id=group.plan_id_text(plan.plan_id),
        partitions=plan_of(group, ((key, segments) for key, segments in held if segments)),
        lock_timeout_ms=max(min(deadlines, default=now_ms) - now_ms, 0),
    )


@dataclass(slots=True)
class PartitionFetch:
    """The acquisition of one request in one partition. ``soft``: a run that came back is not cut to meet
    ``max_records``. ``ahead``: the member's program still works on other records. ``needs_a_poll``: a record that is to
    be delivered apart from others was not taken, since the request is ``ahead``."""

    group: ShareGroup
    partition: SharePartition
    end: int
    max_records: int
    now_ms: int
    soft: bool
    max_ranges: int = MAX_RANGES
    ahead: bool = False
    needs_a_poll: bool = False
    taken: list[Segment] = field(default_factory=list)
    records: int = 0

    @property
    def _room(self) -> int:
        return room(self.group, self.partition, self.records)

    def take(self) -> None:
        if self._take_returned():
            self._take_fresh()
        if not self.taken and not self.ahead:
            alone = _alone_in(self.group, self.partition, self.end, self.now_ms)
            if alone is not None:
                self._take(alone)

    def _take_returned(self) -> bool:
        """Take records that came back. Returns False if the request may take no more: the limit is reached, or a run
        was throttled."""
        returned = self._returned()
        if not returned:
            return True
        limit = self.group.config.share_delivery_count_limit
        threshold = isolation_threshold(limit)
        left, room = self.max_records, self._room
        for segment in returned:
            if left <= 0 or room <= 0 or len(self.taken) >= self.max_ranges:
                return False
            first, last, run = segment
            throttled = run.consumer_tries >= threshold
            self.needs_a_poll = throttled and self.ahead
            if throttled and (self.taken or self.ahead):
                return False
            most = room if self.soft else min(left, room)
            if throttled:
                alone = limit > 2 and run.consumer_tries >= limit - 1
                most = min(most, 1 if alone else max(1, (last - first + 1) >> (run.consumer_tries - threshold + 1)))
            if last - first >= most:
                segment = Segment(first, first + most - 1, run)
            records = self._take(segment)
            left, room = left - records, room - records
            if throttled:
                return False
        return len(self.taken) < self.max_ranges

    def _returned(self) -> list[Segment]:
        """The first segments that came back, one more than may be taken: a request scans no more runs."""
        most = min(self.max_records, self.max_ranges) + 1
        return list(islice(returned(self.group, self.partition, self.end, self.now_ms), most))

    def _take_fresh(self) -> None:
        first = self.partition.end_offset
        size = min(self.end - first, self._room, self.max_records - self.records)
        if size > 0 and may_take_fresh(self.group, self.partition, self.records):
            self._take(Segment(first, first + size - 1, FRESH))

    def _take(self, segment: Segment) -> int:
        self.taken.append(segment)
        records = segment.last - segment.first + 1
        self.records += records
        return records
