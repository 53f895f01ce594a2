"""Counts what a decision does to a group's records, for the coordinator's metrics.

Take the counts before the decision is replayed, and add them up once it is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    AssignPartitions,
    CompletePlan,
    Decision,
    Expire,
    MarkDeadLettersWritten,
    StartOrReclaimPlan,
)
from coordinator.core.log_records import AssignmentMade, PlanAcquired, PlanStarted, Record, RunsChanged, SessionEnded
from coordinator.core.record_state import RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import ReleaseMember
from coordinator.protocol.messages import Acknowledge, LeaveGroup, PlanReply, Request
from coordinator.protocol.values import AcknowledgeType, Disposition, SharePartitionKey

QUERY, SHARE_CONSUMER = "query", "share consumer"
_WRITTEN_BY_A_SINK = (RecordState.ARCHIVED, Disposition.REJECTED)
_ACK_TYPES = {"accepted": "accept", "released": "release", "rejected": "reject", "deferred": "defer"}


class Count(NamedTuple):
    """Add ``number`` to the counter ``name``. ``labels``: the values of its labels after the group's id. The counters,
    with these labels in parentheses, are:

    acquired (member type): records that were acquired. redelivered: those that had been acquired before.
    acknowledged (ack type): records by the outcome that their holder gave them.
    held (member id, acquired at, acknowledged at, in milliseconds): acquisitions that were acknowledged.
    lock_timeouts (topic, partition): records whose lock ended, or the session of whose holder ended.
    sessions_ended (how): sessions that ended: "left", "timed out", or "released" by an administrator.
    reclaims: plans that a later process reclaimed. left_out (reason): records that such a plan goes on without.
    removed (topic, partition): records that Kafka removed before they were done.
    dead_letters: records whose dead letter the coordinator or a sink has written.
    rebalances: new assignments of partitions to ShareConsumers.
    """

    name: str
    labels: tuple[str, ...]
    number: int


def counts_of(group: ShareGroup, command: Request[Any], decision: Decision[Any], now_ms: int) -> Iterable[Count]:
    """The counts of this decision; none if the command is not counted."""
    count = _COUNTS.get(type(command))
    return () if count is None else count(group, command, decision, now_ms)


def _acquired(group: ShareGroup, command: Request[Any], decision: Decision[Any], now_ms: int) -> Iterator[Count]:
    plan = next((record for record in decision.records if isinstance(record, PlanAcquired)), None)
    if plan is None:
        return
    held = [
        (last - first + 1, run.delivery_count)
        for _, first, last, run in _changes(decision.records)
        if run.state == RecordState.ACQUIRED
    ]
    kind = QUERY if isinstance(command, AcquirePlan) else SHARE_CONSUMER
    yield Count("acquired", (kind,), sum(number for number, _ in held))
    yield Count("redelivered", (), sum(number for number, deliveries in held if deliveries > 1))


def _acknowledged(group: ShareGroup, command: Acknowledge, decision: Decision[Any], now_ms: int) -> Iterator[Count]:
    oldest_ms = now_ms
    for acks in command.partitions:
        if f"{acks.topic_id}:{acks.partition}" in decision.reply.errors:
            continue
        partition = group.partitions[SharePartitionKey(acks.topic_id, acks.partition)]
        for batch in acks.batches:
            share = (batch.last - batch.first + 1) // len(batch.types)
            for kind in batch.types:
                yield Count("acknowledged", (AcknowledgeType(kind).name.lower(),), share)
            found = partition.runs.at(batch.first)
            plan = group.plan_of(found.run) if found is not None else None
            oldest_ms = min(oldest_ms, now_ms if plan is None else plan.acquired_ms)
    yield _held(command.member_id, oldest_ms, now_ms)


def _completed(group: ShareGroup, command: CompletePlan, decision: Decision[Any], now_ms: int) -> Iterator[Count]:
    for outcome, number in decision.reply.outcomes.items():
        yield Count("acknowledged", (_ACK_TYPES[outcome],), number)
    plan = group.members[command.member_id].newest
    if decision.reply.outcomes and plan is not None:
        yield _held(command.member_id, plan.acquired_ms, now_ms)
    if group.config.errors_deadletterqueue_topic_name:  # what was rejected is ARCHIVING, unless a sink wrote it
        states = ((run.state, run.disposition, last - first + 1) for _, first, last, run in _changes(decision.records))
        written = (number for state, why, number in states if (state, why) == _WRITTEN_BY_A_SINK)
        yield Count("dead_letters", (), sum(written))


def _held(member_id: str, acquired_ms: int, now_ms: int) -> Count:
    return Count("held", (member_id, str(acquired_ms), str(now_ms)), 1)


def _started(
    group: ShareGroup, command: StartOrReclaimPlan, decision: Decision[PlanReply], now_ms: int
) -> Iterator[Count]:
    started = next((record for record in decision.records if isinstance(record, PlanStarted)), None)
    if started is None:
        return  # a repeated request: the answer to it was counted
    plan = group.members[command.member_id].newest
    if plan is not None and started.reclaims > plan.reclaims:
        yield Count("reclaims", (), 1)
    for entry in (*decision.reply.left_out, *decision.reply.data_loss):
        yield Count("left_out", (entry.reason,), entry.count)


def _ended(group: ShareGroup, command: Request[Any], decision: Decision[Any], now_ms: int) -> Iterator[Count]:
    left = isinstance(command, LeaveGroup)
    sessions = sum(isinstance(record, SessionEnded) for record in decision.records)
    yield Count("sessions_ended", ("left" if left else "timed out",), sessions)
    if left:
        return
    for key, first, last, run in _changes(decision.records):
        stays = run.state == RecordState.IN_PROGRESS  # for the grace time
        if not stays and (run.state != RecordState.ARCHIVED or run.disposition):
            yield Count("lock_timeouts", (group.topic_names[key.topic_id], str(key.partition)), last - first + 1)


def _released(group: ShareGroup, command: ReleaseMember, decision: Decision[Any], now_ms: int) -> Iterator[Count]:
    ended = sum(isinstance(record, SessionEnded) for record in decision.records)
    yield Count("sessions_ended", ("released",), ended)


def _dead_letters(
    group: ShareGroup, command: MarkDeadLettersWritten, decision: Decision[Any], now_ms: int
) -> Iterator[Count]:
    if command.are_written:
        yield Count("dead_letters", (), sum(last - first + 1 for _, first, last, _ in _changes(decision.records)))


def _rebalanced(group: ShareGroup, command: AssignPartitions, decision: Decision[Any], now_ms: int) -> Iterator[Count]:
    yield Count("rebalances", (), sum(isinstance(record, AssignmentMade) for record in decision.records))


def _changes(records: Iterable[Record]) -> Iterator[tuple[SharePartitionKey, int, int, Any]]:
    for record in records:
        if isinstance(record, RunsChanged):
            for first, last, run in record.runs:
                yield SharePartitionKey(record.topic_id, record.partition), first, last, run


_COUNTS: dict[type[Request[Any]], Callable[[ShareGroup, Any, Decision[Any], int], Iterable[Count]]] = {
    AcquirePlan: _acquired,
    AcquireForConsumer: _acquired,
    Acknowledge: _acknowledged,
    CompletePlan: _completed,
    StartOrReclaimPlan: _started,
    Expire: _ended,
    LeaveGroup: _ended,
    ReleaseMember: _released,
    MarkDeadLettersWritten: _dead_letters,
    AssignPartitions: _rebalanced,
}
