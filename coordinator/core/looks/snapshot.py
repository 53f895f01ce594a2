"""A snapshot: the records that rebuild a group as it is, in place of its log; of a large group in steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from coordinator.core.due_times import LockIndex
from coordinator.core.log_records import (
    ActionDone,
    ConfigsAltered,
    DataLost,
    GroupCreated,
    GroupProgressKept,
    MemberJoined,
    MemberProgressKept,
    PartitionInitialized,
    PlanKept,
    PlanStaged,
    QueryEnded,
    Record,
    RunsChanged,
    TopicDeleted,
    TopicRegistered,
)
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_counts import RecordTotals
from coordinator.core.record_state import RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import Disposition, SharePartitionKey

Kept = TypeVar("Kept", bound=msgspec.Struct)


class GroupCut:
    """The group as it is now; it may change while the records of its snapshot are made. Making a cut copies references
    alone, which takes some hundredths of a second for a million runs."""

    def __init__(self, group: ShareGroup) -> None:
        self._locks = group.locks.frozen()
        self._before = list(_before_partitions(group)) if group.exists else []
        dead_letters = bool(group.config.errors_deadletterqueue_topic_name)
        self._partitions = [_PartitionCut(key, p, dead_letters=dead_letters) for key, p in group.partitions.items()]
        self._after: list[Record] = [*group.deleted_partitions.values()]
        self._after += [ActionDone(action_id=each, answer=answer) for each, answer in group.actions.items()]
        if group.unreported_losses:
            self._after.append(DataLost(lost=group.unreported_losses))

    def __repr__(self) -> str:
        return f"<GroupCut partitions={len(self._partitions)}>"

    def steps(self, most_runs: int = sys.maxsize) -> Iterator[list[Record]]:
        """Yield lists of records, which together rebuild this group from an empty one. Making a list scans up to
        ``most_runs`` runs; a list may be empty."""
        yield self._before
        for partition in self._partitions:
            yield from partition.steps(self._locks, most_runs)
        yield self._after


def snapshot_of(group: ShareGroup) -> Iterator[Record]:
    """Yield the records that rebuild this group from an empty one."""
    for records in GroupCut(group).steps():
        yield from records


def _before_partitions(group: ShareGroup) -> Iterator[Record]:
    yield GroupCreated(incarnation=group.incarnation, topic_ids=group.topic_ids)
    if group.configs:
        yield ConfigsAltered(configs=dict(group.configs))
    # Older ids of a name come first, so that the newest one stays the name's.
    for topic_id in sorted(group.topic_names, key=lambda topic_id: topic_id not in group.old_topics):
        yield TopicRegistered(topic=group.topic_names[topic_id], topic_id=topic_id)
    for topic_id, deleted_ms in sorted(group.gone.items()):
        yield TopicDeleted(topic_id=topic_id, deleted_ms=deleted_ms)
    yield from group.forgotten_topics.values()
    for member in group.members.values():
        yield _record_of(MemberJoined, member)
    yield _record_of(GroupProgressKept, group, dropped=None if group.dropped == RecordTotals() else group.dropped)
    for plan in _kept_plans(group):
        yield _plan_record(group, plan)
    yield from _staged_records(group)
    for member in group.members.values():
        yield _record_of(MemberProgressKept, member, completed=member.completed or 0)
        if member.ending is not None:
            yield QueryEnded(member_id=member.member_id, ending=member.ending)


def _record_of(record: type[Kept], source: object, **others: Any) -> Kept:
    """A log record with the attributes of ``source`` that its fields name; fields in ``others`` have the value
    there."""
    alike = {name: getattr(source, name) for name in record.__struct_fields__ if name not in others}
    return record(**alike, **others)


def _staged_records(group: ShareGroup) -> Iterator[PlanStaged]:
    for plan in group.plans.values():
        if plan.staged:
            partitions = tuple((*key, tuple(runs)) for key, runs in plan.staged.items())
            yield PlanStaged(plan_id=plan.plan_id, member_id=plan.member_id, partitions=partitions)


def _kept_plans(group: ShareGroup) -> list[AcquiredPlan]:
    newest = [m.newest for m in group.members.values() if m.newest is not None]
    return sorted({p.plan_id: p for p in [*group.plans.values(), *newest]}.values(), key=lambda p: p.plan_id)


def _plan_record(group: ShareGroup, plan: AcquiredPlan) -> PlanKept:
    newest = group.members[plan.member_id].newest is plan
    return _record_of(PlanKept, plan, newest=newest, carried=plan.plan_id in group.plans)


class _PartitionCut:
    """A share partition as it is now."""

    def __init__(self, key: SharePartitionKey, partition: SharePartition, *, dead_letters: bool) -> None:
        """``dead_letters``: whether the group has a dead letter topic. Without one, a replay counts ARCHIVED runs as
        archived without a dead letter."""
        self._dead_letters = dead_letters
        self._runs = partition.runs.frozen()
        self._totals = partition.totals()
        self._of_runs = RecordTotals(archived=[0] * len(Disposition), without_dead_letter=[0] * len(Disposition))
        self._of_runs.accepted = -partition.runs.counts[RecordState.ACKNOWLEDGED]
        self._has_archived_runs = partition.runs.counts[RecordState.ARCHIVED] > 0
        self._head = _record_of(PartitionInitialized, partition, **key._asdict(), archived=(), totals=None)

    def steps(self, locks: LockIndex, most_runs: int) -> Iterator[list[Record]]:
        if self._has_archived_runs:  # the replay of these runs counts them again, so they are subtracted here
            for runs in self._runs.steps(most_runs):
                for first, last, run in runs:
                    if run.state == RecordState.ARCHIVED:
                        self._of_runs.archived[run.disposition] -= last - first + 1
                        if run.disposition and not self._dead_letters:
                            self._of_runs.without_dead_letter[run.disposition] -= last - first + 1
                yield []
        yield [msgspec.structs.replace(self._head, totals=self._totals.plus(self._of_runs))]
        for runs in self._runs.steps(most_runs):
            yield [RunsChanged(topic_id=self._head.topic_id, partition=self._head.partition, runs=locks.shown(runs))]
