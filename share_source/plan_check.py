"""Compares the coordinator's answer to ``partitions()`` with the plan in Spark's log, before any record is read. Pure.

Rules: the coordinator answers nothing that is not logged, since a later replay of the batch, and a sink that replaces
its output of a batch, go by the log. It may answer less, and delivery counts may be higher:

- a reclaim leaves records out: ``cut`` and ``quarantined`` by isolation, ``archived`` after a failed trial, ``lost`` to
  other members after the session ended, ``unsubscribed``;
- the log of a partition, or a topic, lost records (``data_loss``);
- a plan that was superseded before anybody read it comes back empty;
- each reclaim raises the delivery counts by one.

An answer names what it leaves out, but only what was left out since the plan was started last: the answers to earlier
processes named the rest. So offsets that are missing without a reason are an error only where this process acquired
the plan itself and logged what it got, since nobody else can have started the plan in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator.protocol.messages import LeftOut, PartitionPlan, PlanReply
from coordinator.protocol.values import AcquiredRange, SharePartitionKey
from share_source.errors import PlanDiffersFromLog
from share_source.plan_offset import PlanOffset

Offsets = tuple[int, int]
"""First and last offset, both inclusive."""

_NO_END = 2**63 - 1


def check_plan(offset: PlanOffset, reply: PlanReply, *, acquired_here: bool) -> None:
    """Check that the answer to StartPlan is a part of the logged plan. ``acquired_here``: this process acquired the
    plan, and ``offset`` is what it answered to Spark.

    Raises:
        PlanDiffersFromLog: the answer has a topic id, or offsets, that are not logged; delivery counts fell; or
            offsets are missing without a reason.
        UnreadableOffset: the logged ranges were not written by this source.
    """
    difference = _difference(offset.partitions(), reply, acquired_here=acquired_here)
    if difference:
        raise PlanDiffersFromLog(
            group_id=offset.group_id, member_id=offset.member_id, plan_id=offset.plan_id, difference=difference
        )


def _difference(logged: Sequence[PartitionPlan], reply: PlanReply, *, acquired_here: bool) -> str:
    """The first difference, in words; empty if there is none."""
    topic_ids = {part.topic: part.topic_id for part in logged}
    logged_ranges = {_key(part): part.ranges for part in logged}
    for part in reply.plan.partitions:
        if part.topic_id != topic_ids.get(part.topic, part.topic_id):
            return (
                f"topic {part.topic} has the id {topic_ids[part.topic]} in the checkpoint, and {part.topic_id} in the "
                "coordinator's answer"
            )
        in_log = logged_ranges.get(_key(part), ())
        if extra := _first_uncovered(_offsets(part.ranges), _offsets(in_log)):
            return (
                f"the coordinator answers {part.topic}-{part.partition} offsets {_text(extra)}, and the checkpoint "
                f"does not hold them (it holds {_sample(in_log)})"
            )
        if fallen := _first_fallen_count(part.ranges, in_log):
            first, last, before, now = fallen
            return (
                f"{part.topic}-{part.partition} offsets {_text((first, last))} have the delivery count {before} in the "
                f"checkpoint, and {now} in the coordinator's answer"
            )
    return _missing(logged, reply) if acquired_here else ""


def _missing(logged: Sequence[PartitionPlan], reply: PlanReply) -> str:
    named = (*reply.left_out, *reply.data_loss)
    if any(not entry.topic for entry in named):
        return ""  # so many partitions lost records that the answer does not name them all
    answered = {_key(part): part.ranges for part in reply.plan.partitions}
    for part in logged:
        key = _key(part)
        explained = (_left_out_offsets(entry) for entry in named if (entry.topic_id, entry.partition) == key)
        if missing := _first_uncovered(_offsets(part.ranges), [*_offsets(answered.get(key, ())), *explained]):
            return (
                f"the checkpoint holds {part.topic}-{part.partition} offsets {_text(missing)}, and the coordinator "
                "neither answers them nor says why it leaves them out"
            )
    return ""


def _key(part: PartitionPlan) -> SharePartitionKey:
    return SharePartitionKey(part.topic_id, part.partition)


def _offsets(ranges: Iterable[AcquiredRange]) -> list[Offsets]:
    return [(first, last) for first, last, _ in ranges]


def _left_out_offsets(entry: LeftOut) -> Offsets:
    """All offsets that the entry may mean: one that sums up scattered offsets does not say which they are."""
    return entry.first, _NO_END if entry.reason == "end_unknown" else entry.last


def _first_uncovered(ranges: Iterable[Offsets], covering: Iterable[Offsets]) -> Offsets | None:
    """The first offsets of ``ranges`` that no range of ``covering`` has."""
    covers = sorted(covering)
    index, reached = 0, -1  # covers[:index] end at ``reached`` at most
    for first, last in sorted(ranges):
        while first <= last:
            while index < len(covers) and covers[index][0] <= first:
                reached = max(reached, covers[index][1])
                index += 1
            if reached < first:
                return first, last if index == len(covers) else min(last, covers[index][0] - 1)
            first = reached + 1
    return None


def _first_fallen_count(
    answered: Iterable[AcquiredRange], logged: Iterable[AcquiredRange]
) -> tuple[int, int, int, int] | None:
    """The first offsets whose delivery count is lower in the answer: (first, last, logged count, answered count)."""
    of_log = sorted(logged)
    index = 0
    for first, last, now in sorted(answered):
        while index < len(of_log) and of_log[index].last < first:
            index += 1
        at = index
        while at < len(of_log) and of_log[at].first <= last:
            if now < of_log[at].delivery_count:
                return max(first, of_log[at].first), min(last, of_log[at].last), of_log[at].delivery_count, now
            at += 1
    return None


def _text(offsets: Offsets) -> str:
    return f"{offsets[0]} to {offsets[1]}"


def _sample(ranges: Sequence[AcquiredRange]) -> str:
    """The first ranges, for an error's text."""
    if not ranges:
        return "nothing of this partition"
    return ", ".join(_text((first, last)) for first, last, _ in ranges[:3]) + (" and more" if len(ranges) > 3 else "")
