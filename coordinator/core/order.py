"""Order by partition (share.order=partition; docs/learn/order.md). Acquisitions of all groups call these functions; in
a group without an order they leave nothing out and give nothing back.

Rules:

- One holder: nothing is acquired from a share partition of which a member holds a record.
- Prefix: records are acquired from the start offset on, in offset order, up to the first that has to wait. A record
  that waits for its dead letter counts as done.
- An acquisition ends all earlier plans in its share partition: a query that comes back to one of them finds nothing
  there.
- A record that leaves a plan without being done takes all later records of its share partition along.
- Members that found every share partition held get their part of the ones that are free next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice, takewhile

from coordinator.core.failed_deliveries import given_back
from coordinator.core.log_records import MemberWaits
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.record_state import HELD, RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey

WAITS_MS = 10_000
"""A member that found every share partition held counts as waiting for this many milliseconds."""
MOST_HELD = 5
"""A member that waits is told the holders of up to this many share partitions."""
Log = tuple[SharePartition, int]
"""A share partition, and the exclusive end of its log now."""
Held = dict[SharePartitionKey, list[Segment]]
"""Segments by share partition, ascending, in the state in which the acquiring member holds them."""


def free(group: ShareGroup, member: Member, logs: list[Log], now_ms: int, available_ms: int) -> list[Log]:
    """The logs from which the member may acquire: in an ordered group those of which nobody holds a record. While other
    members wait, the member leaves them their share of those free logs that have work for them: the ones with the
    smaller backlogs. ``available_ms``: records that were released later are not for this member."""
    if not group.config.is_ordered:
        return logs
    unheld = [log for log in logs if not log[0].acquired_count]
    others = [each for each in group.waiting.values() if each.until_ms > now_ms and each.member_id != member.member_id]
    if not others:
        return unheld
    with_work = [log for log in unheld if has_work(group, *log, now_ms, available_ms)]
    waiting, wanted = _wanted(group, others, {partition.key for partition, _ in with_work})
    shared = [log for log in with_work if log[0].key in wanted]
    most = -(-len(shared) // (1 + waiting))
    largest = nlargest(most, shared, key=lambda log: log[1] - log[0].start_offset)
    left = wanted - {partition.key for partition, _ in largest}
    return [log for log in unheld if log[0].key not in left]


def has_work(group: ShareGroup, partition: SharePartition, end: int, now_ms: int, available_ms: int) -> bool:
    """Whether a record of the log may be acquired now, as far as no other member and no limit is in the way."""
    if end > partition.end_offset and may_take_fresh(group, partition, 0):
        return True
    if next(returned(group, partition, end, available_ms), None) is not None:
        return True
    alone = delivered_alone(group, partition)
    return any(first < end and (run.not_before_ms or 0) <= now_ms for first, _, run in alone)


def _wanted(
    group: ShareGroup, others: Iterable[MemberWaits], keys: set[SharePartitionKey]
) -> tuple[int, set[SharePartitionKey]]:
    """How many of these members wait for a share partition of ``keys``, and which of them they may acquire from."""
    waiting, wanted, topic_ids = 0, set[SharePartitionKey](), set[str]()
    topics = {key.topic_id for key in keys}
    for each in others:
        if group.members[each.member_id].is_assigned:
            assigned = keys & group.assignment.get(each.member_id, frozenset())
            wanted |= assigned
            waiting += bool(assigned)
        else:
            topic_ids |= topics.intersection(each.topic_ids)
            waiting += not topics.isdisjoint(each.topic_ids)
    return waiting, wanted | {key for key in keys if key.topic_id in topic_ids}


def held_by_others(group: ShareGroup, member: Member, logs: Iterable[Log]) -> list[SharePartition]:
    """The share partitions of these logs for which the member waits, if it could acquire nothing: in an ordered group
    those that others hold. Empty if it holds records itself."""
    held = [partition for partition, _ in logs if partition.acquired_count] if group.config.is_ordered else []
    return held if held and not group.held_by(member) else []


def waits(group: ShareGroup, member: Member, held: list[SharePartition], now_ms: int) -> tuple[MemberWaits, ...]:
    """The log record which says that the member waits for the partitions ``held``. Empty if there are no such
    partitions, or if the group knows of the wait."""
    known = group.waiting.get(member.member_id)
    if not held or (known is not None and known.until_ms > now_ms + WAITS_MS // 2):
        return ()
    topic_ids, until_ms = {partition.key.topic_id for partition in held}, now_ms + WAITS_MS
    return (MemberWaits(member_id=member.member_id, topic_ids=tuple(sorted(topic_ids)), until_ms=until_ms),)


def holders(group: ShareGroup, held: Iterable[SharePartition]) -> tuple[str, ...]:
    """The members that hold records of the first MOST_HELD of these share partitions, by id, in words."""
    plans = (holding_plan(group, partition) for partition in islice(held, MOST_HELD))
    member_ids = {plan.member_id for plan in plans if plan is not None}
    return tuple(f"{member_id} ({group.members[member_id].client})" for member_id in sorted(member_ids))


def holding_plan(group: ShareGroup, partition: SharePartition) -> AcquiredPlan | None:
    """The plan that holds records of a share partition of an ordered group: the last that was acquired. None if nobody
    holds any."""
    return group.plans.get(max(partition.runs.carried)) if partition.acquired_count else None


def returned(group: ShareGroup, partition: SharePartition, end: int, now_ms: int) -> Iterator[Segment]:
    """Yield the records that came back and may be acquired with others now, in offset order, from the start offset to
    ``end``. In an ordered group nothing is yielded beyond a record that has to wait."""
    runs: Iterable[Segment] = partition.runs.available(now_ms)
    if group.config.is_ordered:
        runs = takewhile(lambda segment: _is_due(segment.run, now_ms), partition.runs.all_available())
    for first, last, run in runs:
        first, last = max(first, partition.start_offset), min(last, end - 1)
        if first <= last:
            yield Segment(first, last, run)


def _is_due(run: Run, now_ms: int) -> bool:
    return not run.quarantined and (run.not_before_ms or 0) <= now_ms


def due_after(group: ShareGroup, partition: SharePartition, now_ms: int) -> int | None:
    """The earliest time after ``now_ms`` at which a record of the partition that waits may be acquired; None: no record
    waits. In an ordered group only the first record that is not done counts, and only while nobody holds a record."""
    due_ms = partition.runs.due_after(now_ms)
    if due_ms is None or not group.config.is_ordered:
        return due_ms
    front = None if partition.acquired_count else next(partition.runs.all_available(), None)
    front_ms = 0 if front is None else front.run.not_before_ms or 0
    return front_ms if front_ms > now_ms else None


def delivered_alone(group: ShareGroup, partition: SharePartition) -> Iterator[Segment]:
    """Yield the AVAILABLE runs whose records are delivered only alone, the least recently tried first. In an ordered
    group that is at most the first record that is not done."""
    if not group.config.is_ordered:
        yield from partition.runs.quarantined()
    elif partition.runs.has_quarantined:
        first = next(partition.runs.all_available())
        if first.run.quarantined:
            yield first._replace(first=max(first.first, partition.start_offset))


def may_take_fresh(group: ShareGroup, partition: SharePartition, taken: int) -> bool:
    """Whether fresh records of the partition may be acquired, after ``taken`` records that came back: in an ordered
    group these must be all."""
    return not group.config.is_ordered or partition.runs.counts[RecordState.AVAILABLE] == taken


def earlier_plans_ended(group: ShareGroup, held: Held) -> Held:
    """Returns ``held``. In an ordered group also the later runs of these share partitions that carry a plan id, with
    the id removed."""
    if not group.config.is_ordered:
        return held
    return {
        key: [*segments, *_without_plans(group.partitions[key], segments[-1].last + 1)]
        for key, segments in held.items()
    }


def _without_plans(partition: SharePartition, first: int) -> Iterator[Segment]:
    if partition.runs.carried and first < partition.end_offset:
        for segment in partition.runs.between(first, partition.end_offset - 1):
            if segment.run.plan_id is not None:
                yield segment._replace(run=segment.run._replace(plan_id=None))


def held_after(group: ShareGroup, partition: SharePartition, offset: int) -> Iterator[Segment]:
    """Yield the records after ``offset`` that a member holds, as they are once the member has given them back: a
    record before them waits. In a group without order there are none to give back."""
    if group.config.is_ordered and offset + 1 < partition.end_offset:
        for segment in partition.runs.between(offset + 1, partition.end_offset - 1):
            if segment.run.state in HELD:
                yield segment._replace(run=given_back(segment.run))
