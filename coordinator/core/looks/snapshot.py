"""A snapshot: the records that rebuild a group as it is, in place of its log; of a large group in steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator

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
    Record,
    RunsChanged,
    TopicDeleted,
    TopicRegistered,
)
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.record_counts import RecordTotals
from coordinator.core.record_state import RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import Disposition, SharePartitionKey


class GroupCut:
    """The group as it is now: it may change while the records of its snapshot are made. To take a cut copies references
    alone, some hundredths of a second for a million runs."""

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
        """Lists of records, which together rebuild this group from an empty one; each scans ``most_runs`` runs. A list
        may be empty."""
        yield self._before
        for partition in self._partitions:
            yield from partition.steps(self._locks, most_runs)
        yield self._after


def snapshot_of(group: ShareGroup) -> Iterator[Record]:
    """Records that rebuild this group from an empty one; live plans and numbers among them."""
    for records in GroupCut(group).steps():
        yield from records


def _before_partitions(group: ShareGroup) -> Iterator[Record]:
    yield GroupCreated(incarnation=group.incarnation, topic_ids=group.topic_ids)
    if group.configs:
        yield ConfigsAltered(configs=dict(group.configs))
    # Older ids of a name first: share partitions and plans of a topic that is gone are still known by it.
    for topic_id in sorted(group.topic_names, key=lambda topic_id: topic_id not in group.old_topics):
        yield TopicRegistered(topic=group.topic_names[topic_id], topic_id=topic_id)
    for topic_id, deleted_ms in sorted(group.gone.items()):
        yield TopicDeleted(topic_id=topic_id, deleted_ms=deleted_ms)
    yield from group.forgotten_topics.values()
    for member in group.members.values():
        yield _member_record(member)
    yield GroupProgressKept(
        last_plan_id=group.last_plan_id,
        decided=group.decided,
        rejected=group.rejected,
        forgotten_epoch=group.forgotten_epoch,
        assignment_epoch=group.assignment_epoch,
        dropped=None if group.dropped == RecordTotals() else group.dropped,
    )
    for plan in _kept_plans(group):
        yield _plan_record(group, plan)
    yield from _staged_records(group)
    for member in group.members.values():
        yield MemberProgressKept(
            member_id=member.member_id,
            completed=member.completed or 0,
            evidence=member.evidence,
            decides=member.decides,
            query_id=member.query_id,
            query_name=member.query_name,
            checkpoint=member.checkpoint,
            acquisitions=member.acquisitions,
            breaker=member.breaker,
        )


def _staged_records(group: ShareGroup) -> Iterator[PlanStaged]:
    for plan in group.plans.values():
        if plan.staged:
            partitions = tuple((*key, tuple(runs)) for key, runs in plan.staged.items())
            yield PlanStaged(plan_id=plan.plan_id, member_id=plan.member_id, partitions=partitions)


def _kept_plans(group: ShareGroup) -> list[AcquiredPlan]:
    newest = [m.newest for m in group.members.values() if m.newest is not None]
    return sorted({p.plan_id: p for p in [*group.plans.values(), *newest]}.values(), key=lambda p: p.plan_id)


def _plan_record(group: ShareGroup, plan: AcquiredPlan) -> PlanKept:
    return PlanKept(
        plan_id=plan.plan_id,
        member_id=plan.member_id,
        member_epoch=plan.member_epoch,
        acquired_ms=plan.acquired_ms,
        trial=plan.trial,
        started=plan.started,
        counts_as_evidence=plan.counts_as_evidence,
        newest=group.members[plan.member_id].newest is plan,
        carried=plan.plan_id in group.plans,
        data_loss=plan.data_loss,
        unreported_losses=plan.unreported_losses,
        left_out=plan.left_out,
        ranges=plan.ranges,
        reclaims=plan.reclaims,
        superseded_plans=plan.superseded_plans,
        explicit=plan.explicit,
        explicit_attempts=plan.explicit_attempts,
        replaces=plan.replaces,
        fail_on_data_loss=plan.fail_on_data_loss,
    )


def _member_record(member: Member) -> MemberJoined:
    return MemberJoined(**{name: getattr(member, name) for name in MemberJoined.__struct_fields__})


class _PartitionCut:
    """A share partition as it is now."""

    def __init__(self, key: SharePartitionKey, partition: SharePartition, *, dead_letters: bool) -> None:
        """``dead_letters``: the group has a dead letter topic: a replay of ARCHIVED runs counts none without one."""
        self._dead_letters = dead_letters
        self._runs = partition.runs.frozen()
        self._totals = partition.totals()
        self._of_runs = RecordTotals(archived=[0] * len(Disposition), without_dead_letter=[0] * len(Disposition))
        self._of_runs.accepted = -partition.runs.counts[RecordState.ACKNOWLEDGED]
        self._has_archived_runs = partition.runs.counts[RecordState.ARCHIVED] > 0
        self._head = PartitionInitialized(
            topic_id=key.topic_id,
            partition=key.partition,
            start_offset=partition.start_offset,
            log_start=partition.log_start,
            end_offset=partition.end_offset,
            highest_count=partition.highest_count,
            altered_after=partition.altered_after,
        )

    def steps(self, locks: LockIndex, most_runs: int) -> Iterator[list[Record]]:
        if self._has_archived_runs:  # these are counted when the runs are replayed
            for runs in self._runs.steps(most_runs):
                for first, last, run in runs:
                    if run.state == RecordState.ARCHIVED:
                        self._of_runs.archived[run.disposition] -= last - first + 1
                        if run.disposition and not self._dead_letters:
                            self._of_runs.without_dead_letter[run.disposition] -= last - first + 1
                yield []
        yield [msgspec.structs.replace(self._head, totals=self._totals.plus(self._of_runs))]
        for runs in self._runs.steps(most_runs):
            yield [
                RunsChanged(topic_id=self._head.topic_id, partition=self._head.partition, runs=locks.shown(runs)),
            ]
