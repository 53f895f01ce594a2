"""The changes of a record that the protocol (docs/trust/protocol.md) allows; the core's decisions are checked against
them before they are replayed. The check knows no model: it compares a run before and after, with the plan that held the
run and the command that changed it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.core.commands import (
    AcquireForConsumer,
    AcquirePlan,
    ArchiveDeletedTopics,
    ArchiveExpired,
    ArchiveGaps,
    CompletePlan,
    Expire,
    MarkDeadLettersWritten,
    MoveLogStarts,
    StartOrReclaimPlan,
)
from coordinator.core.log_records import LogStartMoved, RunsChanged
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import DecideRecords
from coordinator.protocol.messages import Acknowledge, LeaveGroup, MarkInProgress
from coordinator.protocol.values import SharePartitionKey

ACQUIRES = (AcquirePlan, StartOrReclaimPlan, AcquireForConsumer)
ENDS_A_DELIVERY = (StartOrReclaimPlan, LeaveGroup, Expire)
LOOKS_AT_THE_LOG = (
    MoveLogStarts,
    ArchiveDeletedTopics,
    StartOrReclaimPlan,
    AcquirePlan,
    Acknowledge,
    LeaveGroup,
    Expire,
    CompletePlan,
)
ARCHIVES_AT_ONCE = (MarkDeadLettersWritten, ArchiveGaps, Acknowledge, CompletePlan)
"""The commands that archive a record at once: its dead letter is written, or it is a gap. Nothing else leaves ARCHIVING
where dead letters are wanted."""


def check_decision(group: ShareGroup, command: Any, records: Iterable[Any]) -> None:
    """Checks every run that a decision changes against what it was before."""
    records = tuple(records)
    floors = {SharePartitionKey(r.topic_id, r.partition): r.log_start for r in records if isinstance(r, LogStartMoved)}
    if isinstance(command, StartOrReclaimPlan | CompletePlan):
        floors = {SharePartitionKey(b.topic_id, b.partition): b.log_start for b in command.bounds}
    for record in (r for r in records if isinstance(r, RunsChanged)):
        partition = group.partitions[SharePartitionKey(record.topic_id, record.partition)]
        floor = max(partition.log_start, partition.start_offset, floors.get(partition.key, 0))
        fresh = partition.end_offset
        for first, last, run in record.runs:
            known = list(partition.runs.between(first, last))
            if not known:
                expires = isinstance(command, ArchiveExpired)
                states = (RecordState.ARCHIVING, RecordState.ARCHIVED) if expires else (RecordState.ACQUIRED,)
                assert first == fresh and run.state in states, f"{first}-{last}: an offset was skipped"
                assert (run.delivery_count, run.failures, run.releases) == (0 if expires else 1, 0, 0)
                fresh = last + 1
                continue
            assert sum(s.last - s.first + 1 for s in known) == last - first + 1, f"{first}-{last} is known in part"
            for segment in known:
                check_change(group, command, segment, run, segment.last < floor)


def check_change(group: ShareGroup, command: Any, segment: Segment, now: Run, gone: bool) -> None:
    """One run that was acquired before. ``gone``: the log does not hold it any more."""
    was, where = segment.run, f"{command}: {segment} -> {now}"
    if isinstance(command, DecideRecords) and (segment.first <= command.last or not group.config.is_ordered):
        check_by_hand(group, command, was, now, gone)
        return
    assert was.state not in TERMINAL, f"what is done is done: {where}"
    plan = group.plans.get(was.plan_id or 0)
    query = plan is not None and plan.query
    wanted = bool(group.config.errors_deadletterqueue_topic_name)
    if was.state == RecordState.ARCHIVING or isinstance(command, MarkDeadLettersWritten):
        filed = Run(RecordState.ARCHIVED, was.delivery_count, disposition=was.disposition)
        assert (was.state, now) == (RecordState.ARCHIVING, filed), where
        assert isinstance(command, MarkDeadLettersWritten), f"ARCHIVING until its dead letter is filed: {where}"
        return
    if now.state == RecordState.ARCHIVING:
        assert wanted and now.disposition, where
        assert now == Run(now.state, was.delivery_count, disposition=now.disposition, reason=now.reason), where
        check_archived(group, command, was, query)
        return
    if now.state in TERMINAL:
        assert now.delivery_count == was.delivery_count, where
        if now.state == RecordState.ACKNOWLEDGED:
            assert was.plan_id is not None and isinstance(command, CompletePlan | Acknowledge), where
        elif not gone or not isinstance(command, LOOKS_AT_THE_LOG):
            check_archived(group, command, was, query)
            assert not wanted or isinstance(command, ARCHIVES_AT_ONCE), f"archived without its dead letter: {where}"
        return
    counted, failed, released = (
        now.delivery_count - was.delivery_count,
        now.failures - was.failures,
        now.releases - was.releases,
    )
    assert counted in (0, 1) and failed in (0, 1) and released in (0, 1), f"counts never fall: {where}"
    assert not counted or (now.state == RecordState.ACQUIRED and isinstance(command, ACQUIRES)), where
    if now.state == RecordState.IN_PROGRESS and now != was:
        check_in_progress(group, command, was, now)
    check_tries(group, command, was, now, plan)
    if was.quarantined:
        answered = isinstance(command, CompletePlan) and (released or (not now.quarantined and _keeps_tries(group)))
        assert (not now.quarantined) == bool(answered), f"quarantined until a batch releases it, or it is done: {where}"
    elif now.quarantined:
        assert query and now.failures and now.tries >= group.config.share_delivery_count_limit, where
        assert now.plan_id is None, f"out of its batch: {where}"


def _keeps_tries(group: ShareGroup) -> bool:
    """Whether a batch may release a record without using up a try: a query's breaker is open."""
    return any(member.breaker is not None and member.breaker.pauses > 0 for member in group.members.values())


def check_by_hand(group: ShareGroup, command: DecideRecords, was: Run, now: Run, gone: bool) -> None:
    """An administrator's decision: what is free may be given up, what is in flight may begin anew; no count falls."""
    where = f"{command}: {was} -> {now}"
    assert was.state not in TERMINAL and was.state != RecordState.ARCHIVING, f"what is done is done: {where}"
    if command.decision == "archive":
        assert was.state == RecordState.AVAILABLE, f"a record that a member holds is not given up by hand: {where}"
        state = RecordState.ARCHIVING if group.config.errors_deadletterqueue_topic_name else RecordState.ARCHIVED
        assert (now.state, now.delivery_count, now.plan_id) == (state, was.delivery_count, None), where
    elif gone and was.state in HELD:
        assert now == Run(RecordState.ARCHIVED, was.delivery_count), f"nobody gets it again: {where}"
    else:
        plan_id = None if was.quarantined else was.plan_id
        assert now == Run(RecordState.AVAILABLE, was.delivery_count, plan_id=plan_id, reason=command.reason), where


def check_tries(group: ShareGroup, command: Any, was: Run, now: Run, plan: AcquiredPlan | None) -> None:
    """Which deliveries count as failed, and which as released. In an ordered group, what goes back since an earlier
    record does counts as neither."""
    failed, released = now.failures - was.failures, now.releases - was.releases
    query, where = plan is not None and plan.query, f"{command}: {was} -> {now}"
    if failed or released:
        assert was.state in HELD and plan is not None, f"nobody held it: {where}"
        assert not (failed and released), where
    is_given_back = group.config.is_ordered and now.plan_id is None and not (failed or released)
    if was.state == RecordState.IN_PROGRESS and now.state == RecordState.AVAILABLE and not is_given_back:
        assert failed, f"work that had begun and came to nothing is a failure: {where}"
    elif failed:
        assert isinstance(command, ENDS_A_DELIVERY), where
        assert plan is not None and (plan.started or not query), f"a plan that nobody read costs no try: {where}"
    if released:
        by_sink = isinstance(command, CompletePlan) and query
        assert by_sink or isinstance(command, Acknowledge) or (isinstance(command, LeaveGroup) and not query), where


def check_in_progress(group: ShareGroup, command: Any, was: Run, now: Run) -> None:
    """A signal of the holder, or its holder's end, after which no lock lasts longer."""
    plan = group.plans[was.plan_id or 0]
    assert not plan.query and now.progress is not None and now.deadline_ms is not None
    assert now._replace(state=was.state, progress=was.progress, deadline_ms=was.deadline_ms) == was
    longest_ms = plan.acquired_ms + group.config.group_share_in_progress_max_lock_extension_ms
    if isinstance(command, MarkInProgress):
        assert was.state in HELD and command.member_id == plan.member_id, f"{command}: {was} -> {now}"
        assert now.deadline_ms <= longest_ms, f"held for too long: {command}: {was} -> {now}"
    else:
        assert isinstance(command, LeaveGroup | Expire)
        assert was.deadline_ms is not None
        assert now.deadline_ms <= group.locks.deadline_ms(was.deadline_ms), f"{command}: {was} -> {now}"


def check_archived(group: ShareGroup, command: Any, was: Run, query: bool) -> None:
    """By its holder or its sink, by Kafka's limit for ShareConsumers, or by a failed trial; a query's failures alone
    never do."""
    plan = group.plans.get(was.plan_id or 0)
    if isinstance(command, ArchiveGaps | ArchiveExpired):
        assert was.state == RecordState.AVAILABLE
    elif isinstance(command, Acknowledge):
        assert was.state in HELD
    elif isinstance(command, CompletePlan):
        assert plan is not None and query, f"a sink decided nothing of it: {was}"
        at_limit = was.releases + 1 >= group.config.share_delivery_count_limit
        assert plan.staged or command.gaps or at_limit, f"archived though no sink said so: {was}"
    elif query:
        assert plan is not None
        assert plan.trial and plan.started and was.quarantined, f"archived without a trial: {was}"
        assert isinstance(command, ENDS_A_DELIVERY)
    else:
        assert was.state in HELD and isinstance(command, LeaveGroup | Expire)
        assert was.tries - was.query_failures + 1 >= group.config.share_delivery_count_limit, (
            f"archived below the limit: {was}"
        )
