"""Compares the plan that a query starts with the plan in Spark's log, before anything is appended.

Rule: a plan that holds offsets which are not logged is not started, because a later replay of the batch goes by the
log, and so does a sink that replaces its output of a batch. The start is refused, and changes nothing: no delivery and
no failure counts, and no trial ends. A plan may hold less than the log, for these reasons:

- A reclaim leaves records out: ``cut`` and ``quarantined`` by isolation, ``archived`` after a failed trial, ``lost`` to
  other members after the session ended, ``unsubscribed``, or ``altered`` by an administrator.
- A partition's log, or a topic, lost records (``data_loss``).
- A plan that was superseded before anybody read it comes back empty.

Delivery counts may be higher than in the log, since each reclaim raises them by one.

An answer names only what was left out since the plan was last started; answers to earlier processes named the rest. So
offsets that are missing without a reason are an error only if this process acquired the plan itself and logged what it
got: nobody else can have started the plan in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator.core.commands import StartOrReclaimPlan
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import InvalidRequest, PlanDiffersFromLog
from coordinator.protocol.messages import PartitionPlan, PlanReply
from coordinator.protocol.values import AcquiredRange, SharePartitionKey

Offsets = tuple[int, int]
"""First and last offset, both inclusive."""

_NO_END = 2**63 - 1


def check_held(group: ShareGroup, command: StartOrReclaimPlan, held: Sequence[PartitionPlan]) -> None:
    """Check that the plan in Spark's log has all offsets that carry the plan's id now, if the request has that plan.

    This looks at more than the answer to the start: a replay leaves records out when they fail, and would otherwise
    fail records that the batch never read.

    Raises:
        InvalidRequest: the logged ranges of a partition are not ascending and disjoint.
        PlanDiffersFromLog: the group's plan has a topic id, or offsets, that are not logged, or lower delivery counts.
    """
    for part in command.logged or ():
        _check_ranges(part)
    for difference in _differences(command.logged, held) if command.logged is not None else ():
        raise _differs(group, command, difference)


def _differences(logged: Sequence[PartitionPlan], held: Sequence[PartitionPlan]) -> Iterator[str]:
    topic_ids = {part.topic: part.topic_id for part in logged}
    logged_ranges = {_key(part): part.ranges for part in logged}
    for part in held:
        where, in_log = f"{part.topic}-{part.partition}", logged_ranges.get(_key(part), ())
        logged_id = topic_ids.get(part.topic, part.topic_id)
        if part.topic_id != logged_id:
            has_ids = f"has the id {logged_id} in the checkpoint, and {part.topic_id} in the group's plan"
            yield f"topic {part.topic} {has_ids}"
        if extra := _first_uncovered(_offsets(part.ranges), _offsets(in_log)):
            held_there = f"the group's plan holds {where} offsets {_text(extra)}"
            yield f"{held_there}, and the checkpoint does not (it holds {_sample(in_log)})"
        if fallen := _first_fallen_count(part.ranges, in_log):
            first, last, before, now = fallen
            counts = f"the delivery count {before} in the checkpoint, and {now} in the group's plan"
            yield f"{where} offsets {_text((first, last))} have {counts}"


def _check_ranges(part: PartitionPlan) -> None:
    end = -1
    for first, last, _ in part.ranges:
        if not end < first <= last:
            what = (
                f"The logged ranges of {part.topic}-{part.partition} are not ascending and disjoint at {first}-{last}."
            )
            raise InvalidRequest(what=what)
        end = last


def check_missing(group: ShareGroup, command: StartOrReclaimPlan, reply: PlanReply) -> None:
    """Check, in the process that acquired the plan, that each logged offset is in the answer to the start, or is left
    out for a reason.

    Raises:
        PlanDiffersFromLog: logged offsets are missing without a reason.
    """
    named = (*reply.left_out, *reply.data_loss)
    if command.logged is None or not command.acquired_here or any(not entry.topic for entry in named):
        return  # an entry without a topic counts offsets of partitions that are too many to name
    answered = {_key(part): part.ranges for part in reply.plan.partitions}
    for part in command.logged:
        key = _key(part)
        # An entry that sums up scattered offsets may mean any of them; one whose end is unknown, all from its first on.
        explained = (
            (entry.first, _NO_END if entry.reason == "end_unknown" else entry.last)
            for entry in named
            if (entry.topic_id, entry.partition) == key
        )
        if missing := _first_uncovered(_offsets(part.ranges), [*_offsets(answered.get(key, ())), *explained]):
            raise _differs(
                group,
                command,
                f"the checkpoint holds {part.topic}-{part.partition} offsets {_text(missing)}, and the group's plan "
                "neither holds them nor says why it leaves them out",
            )


def _differs(group: ShareGroup, command: StartOrReclaimPlan, difference: str) -> PlanDiffersFromLog:
    return PlanDiffersFromLog(
        group_id=group.group_id, member_id=command.member_id, plan_id=command.plan_id, difference=difference
    )


def _key(part: PartitionPlan) -> SharePartitionKey:
    return SharePartitionKey(part.topic_id, part.partition)


def _offsets(ranges: Iterable[AcquiredRange]) -> list[Offsets]:
    return [(first, last) for first, last, _ in ranges]


def _first_uncovered(ranges: Iterable[Offsets], covering: Iterable[Offsets]) -> Offsets | None:
    """The first offsets of ``ranges`` that no range of ``covering`` has."""
    covers = sorted(covering)
    index, reached = 0, -1  # the ranges before covers[index] end at ``reached`` or below
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
