"""The next state of records whose delivery ended in a lost lock, a replay, a failed trial or a release.

A ShareConsumer's record is AVAILABLE again, or given up at the limit of tries, as in Kafka. A query's record is never
given up for failures alone: at the limit it is quarantined, and delivered alone (docs/trust/protocol.md, "Failures and
isolation"). A record that is given up is ARCHIVING until its dead letter is written, or ARCHIVED at once in a group
without a dead letter topic. The reasons for that are, apart from a reject: too many releases, too many deliveries that
no sink decided, a failed trial, or too many lost locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core import isolation
from coordinator.core.changes import Changes, archived, moved
from coordinator.core.isolation import (
    CLEARS_EVIDENCE,
    IN_BATCHES,
    IsolationEvent,
    Stage,
    failure_event,
    release_event,
    solo_backoff_ms,
    stage_of,
)
from coordinator.core.left_out import LeftOutRange, bounded
from coordinator.core.log_records import DataLost, LogStartMoved, Record, RunsChanged
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import Event, RecordState
from coordinator.core.release_backoff import NO_DELAY, Delay
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.core.staging import Verdict, pieces
from coordinator.protocol.messages import GivenUp
from coordinator.protocol.values import GIVES_BACK, AcknowledgeType, Disposition, SharePartitionKey

SAMPLE = 20
"""A report counts all records that were given up, and names up to this many ranges of offsets."""

_DISPOSITIONS = frozenset({Disposition.DELIVERY_LIMIT, Disposition.UNDECIDED, Disposition.EXPIRED, Disposition.TTL})
_ARCHIVED = RecordState.ARCHIVED
_STATES = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVED})


def consumer_lost_lock(run: Run, config: GroupConfig) -> Run:
    """The run after a ShareConsumer's lock ran out, which is a failure. The run keeps its plan id, but its former
    holder can no longer acknowledge it (RecordNotHeld), as in Kafka."""
    failed = run._replace(failures=run.failures + 1, deadline_ms=None)
    if failed.consumer_tries >= config.share_delivery_count_limit:
        return archived(failed, Event.LIMIT, config, Disposition.EXPIRED)
    return moved(failed, Event.LOSE_LOCK)


def released(run: Run, config: GroupConfig, delay: Delay = NO_DELAY) -> Run:
    """The run after the ShareConsumer that holds it released it. That is a try, and counts as a failure if the run was
    IN_PROGRESS, since work on it had begun (KAFKA-20458). At the limit of tries the run is given up, as in Kafka. Else
    it is not acquired before ``delay`` ends."""
    failed = run.state == RecordState.IN_PROGRESS
    given = run._replace(failures=run.failures + failed, releases=run.releases + (not failed), deadline_ms=None)
    if given.consumer_tries >= config.share_delivery_count_limit:
        return archived(given, Event.LIMIT, config, Disposition.DELIVERY_LIMIT)
    return moved(given, Event.RELEASE, plan_id=None, **delay._asdict())


def given_back(run: Run) -> Run:
    """The run after its holder gave it back: a ShareConsumer could not read it, or a sink deferred it. That is no try,
    since no program has worked on the records."""
    return moved(run, Event.RELEASE, plan_id=None, deadline_ms=None)


def query_released(
    run: Run,
    config: GroupConfig,
    delay: Delay,
    disposition: Disposition,
    *,
    reason: str = "",
    keeps_tries: bool = False,
) -> Run:
    """The run after a completed batch released it. Only the number of its releases can give it up, with ``disposition``
    and ``reason``; with ``keeps_tries`` this release does not count. A quarantined run has been processed, and is
    quarantined no longer. If the run's lock was lost before, its try was counted then."""
    if run.state == RecordState.AVAILABLE:
        if delay.not_before_ms is None:
            delay = Delay(run.not_before_ms, run.delay_ms)
        return moved(run, Event.RELEASE, plan_id=None, **delay._asdict())
    given = run if keeps_tries else run._replace(releases=run.releases + 1)
    limit = config.share_delivery_count_limit
    if (
        run.quarantined
        and isolation.TRANSITIONS[stage_of(run, limit), release_event(run.failures, limit)] in IN_BATCHES
    ):
        given = given._replace(quarantined=False, failed_alone_ms=None, last_tried_ms=None)
    if given.releases >= limit and not keeps_tries:
        return archived(given, Event.LIMIT, config, disposition, reason)
    return moved(given, Event.RELEASE, plan_id=None, **delay._asdict())


def query_lost_lock(run: Run, plan: AcquiredPlan, config: GroupConfig, now_ms: int) -> Run:
    """The run after the session of the query that holds it ended. Unless it is quarantined or given up now, it keeps
    its plan id, so that the query may come back to it. If the plan was not started, nothing has failed."""
    if not plan.started:
        return moved(run, Event.LOSE_LOCK)
    failed = run._replace(failures=run.failures + 1, query_failures=run.query_failures + 1)
    return _isolated(run, failed, plan, config, now_ms, session_ended=True) or moved(failed, Event.LOSE_LOCK)


def replayed(run: Run, failed: Run, plan: AcquiredPlan, config: GroupConfig, now_ms: int) -> Run | None:
    """Returns the run after a later process came back to the started plan, if the run leaves the batch now; None if it
    stays in the batch. ``failed``: the run with the failure counted."""
    return _isolated(run, failed, plan, config, now_ms, session_ended=False)


def _isolated(
    run: Run, failed: Run, plan: AcquiredPlan, config: GroupConfig, now_ms: int, *, session_ended: bool
) -> Run | None:
    """Returns the run in its next stage of isolation; None if it stays in batches in that stage."""
    limit = config.share_delivery_count_limit
    before = stage_of(run, limit, on_trial=plan.trial)
    event = failure_event(before, failed, limit, alone=plan.records == 1, session_ended=session_ended)
    stage = isolation.TRANSITIONS[before, event]
    if stage in IN_BATCHES:
        return None
    if stage is Stage.GIVEN_UP:
        return archived(failed, Event.FAIL_TRIAL, config, Disposition.DELIVERY_LIMIT)
    if event is IsolationEvent.LOSE_LOCK:
        return moved(failed, Event.LOSE_LOCK, trials_lost=1)
    failed_alone_ms = (run.failed_alone_ms or now_ms) if stage is Stage.FAILED_ALONE else None
    after = moved(failed, Event.QUARANTINE, plan_id=None, quarantined=True, failed_alone_ms=failed_alone_ms)
    if before in IN_BATCHES:
        return after
    backoff_ms = solo_backoff_ms(failed.failures, limit)
    return after._replace(last_tried_ms=now_ms, not_before_ms=now_ms + backoff_ms, delay_ms=backoff_ms)


def clears_evidence(before: Run, after: Run, config: GroupConfig) -> bool:
    """Whether this change clears all evidence of the group: the record was quarantined, or failed alone for the first
    time. An outage may have begun, so batches that completed before prove nothing any more."""
    limit = config.share_delivery_count_limit
    return (stage_of(before, limit), stage_of(after, limit)) in CLEARS_EVIDENCE


def data_lost(
    group: ShareGroup, segments: Iterable[tuple[SharePartitionKey, Segment]], uncounted: Iterable[LeftOutRange] = ()
) -> list[DataLost]:
    """Log records of what the logs lost, each with a bounded list: one for each query's pending plan that held some of
    ``segments``, and one for the group, with segments that no pending plan held, and ``uncounted``. A group without
    queries has nobody to report the latter to, and gets no record of its own. ``segments`` must be ascending in each
    share partition."""
    of_group = list(uncounted)
    by_plan: dict[int, dict[SharePartitionKey, list[Segment]]] = {}
    for key, segment in segments:
        plan = group.plan_of(segment.run)
        if plan is not None and plan is group.members[plan.member_id].pending:
            by_plan.setdefault(plan.plan_id, {}).setdefault(key, []).append(segment)
        else:
            of_group.append(left_out_entry(group, key, segment.first, segment.last, "data_loss"))
    records = [_lost_by_plan(group, group.plans[plan_id], lost) for plan_id, lost in by_plan.items()]
    if of_group and any(member.query for member in group.members.values()):
        records.append(DataLost(lost=bounded(of_group)))
    return records


def _lost_by_plan(group: ShareGroup, plan: AcquiredPlan, lost: dict[SharePartitionKey, list[Segment]]) -> DataLost:
    """The log record of what a pending plan lost. No sink's row can be staged on these records any more, so they are
    judged now, as if the batch completed."""
    is_lost: dict[tuple[Run, Verdict | None], bool] = {}
    entries: list[LeftOutRange] = []
    if_completed: list[LeftOutRange] = []
    for key, segments in lost.items():
        entries += [left_out_entry(group, key, first, last, "data_loss") for first, last, _ in segments]
        for first, last, run, verdict in pieces(segments, plan.staged.get(key, [])):
            if (run, verdict) not in is_lost:
                is_lost[run, verdict] = _is_lost(group, plan, run, verdict)
            if is_lost[run, verdict]:
                if_completed.append(left_out_entry(group, key, first, last, "data_loss"))
    return DataLost(
        plan_id=plan.plan_id,
        member_id=plan.member_id,
        lost=bounded(entries),
        lost_if_completed=bounded(if_completed),
    )


def _is_lost(group: ShareGroup, plan: AcquiredPlan, run: Run, verdict: Verdict | None) -> bool:
    """Whether a record that is gone would be in no output if its batch completed now."""
    counting = plan.counting(run, verdict)
    outcome = plan.outcome(run, counting)
    dead_letter = verdict is not None and verdict.dead_letter
    return not is_done(group, outcome, dead_letter=dead_letter) or plan.is_unread(run, counting, outcome)


def is_done(group: ShareGroup, outcome: int, *, dead_letter: bool) -> bool:
    """Whether this outcome leaves nothing to be done: the record is not given back, and a rejected record has its dead
    letter, if the group writes any. ``dead_letter``: it is written."""
    if outcome == AcknowledgeType.REJECT:
        return dead_letter or not group.config.errors_deadletterqueue_topic_name
    return outcome not in GIVES_BACK


def removed_records(group: ShareGroup, segments: Iterable[tuple[SharePartitionKey, Segment]]) -> list[Record]:
    """Log records that archive what Kafka removed, and count it as removed. Segments at or above the log start that the
    group knows count as well, but do not move it: that would archive what other plans hold there."""
    changes = Changes()
    above: Counter[SharePartitionKey] = Counter()
    for key, (first, last, run) in segments:
        changes.put(key, first, last, moved(run, Event.LOG_START))
        above[key] += max(0, last - max(first, group.partitions[key].log_start) + 1)
    records: list[Record] = []
    for changed in changes.records():
        records.append(changed)
        key = SharePartitionKey(changed.topic_id, changed.partition)
        if above[key]:
            log_start = group.partitions[key].log_start
            records.append(LogStartMoved(**key._asdict(), log_start=log_start, archived=above[key]))
    return records


def left_out_entry(group: ShareGroup, key: SharePartitionKey, first: int, last: int, reason: str) -> LeftOutRange:
    """The entry for all offsets from ``first`` to ``last`` of a share partition."""
    return LeftOutRange(
        topic=group.topic_names[key.topic_id],
        topic_id=key.topic_id,
        partition=key.partition,
        first=first,
        last=last,
        count=last - first + 1,
        reason=reason,
    )


def end_unknown(group: ShareGroup, partition: SharePartition) -> LeftOutRange:
    """The entry for the records of a log that were never acquired, if the service has not seen the log's end."""
    end = partition.end_offset
    return msgspec.structs.replace(left_out_entry(group, partition.key, end, end, "end_unknown"), count=0)


def removed(group: ShareGroup, records: Iterable[Record]) -> list[LeftOutRange]:
    """The records that Kafka removed before they were done, according to these log records, as a bounded list. Call
    this before the log records are replayed."""
    found: list[LeftOutRange] = []
    runs: dict[SharePartitionKey, list[tuple[int, int]]] = {}
    for record in records:
        if not isinstance(record, RunsChanged | LogStartMoved):
            continue
        key = SharePartitionKey(record.topic_id, record.partition)
        if (partition := group.partitions.get(key)) is None:
            continue
        if isinstance(record, LogStartMoved):
            ranges = runs.pop(key, []) if record.archived else []
            if partition.end_offset < record.log_start:
                ranges = [*ranges, (partition.end_offset, record.log_start - 1)]
            found += [left_out_entry(group, key, first, last, "data_loss") for first, last in ranges]
            continue
        gone = [(first, last) for first, last, run in record.runs if run.state == _ARCHIVED and not run.disposition]
        runs[key] = [each for each in gone if each[1] >= partition.log_start]
        below = [each for each in gone if each[1] < partition.log_start]
        found += [left_out_entry(group, key, first, last, "data_loss") for first, last in below]
    return list(bounded(found)) if found else []


def given_up(group: ShareGroup, records: Iterable[Record]) -> tuple[GivenUp, ...]:
    """The records that these log records give up, one entry for each disposition. Call this before the log records are
    replayed: a record that is ARCHIVING by then was given up earlier, and its dead letter is written now."""
    counts: dict[Disposition, int] = {}
    samples: dict[Disposition, list[tuple[str, int, int, int]]] = {}
    for record in records:
        if not isinstance(record, RunsChanged):
            continue
        partition = group.partitions[SharePartitionKey(record.topic_id, record.partition)]
        for first, last, run in record.runs:
            if run.disposition not in _DISPOSITIONS or run.state not in _STATES:
                continue
            before = partition.runs.at(first)
            if before is not None and before.run.state in _STATES:
                continue
            counts[run.disposition] = counts.get(run.disposition, 0) + last - first + 1
            sample = samples.setdefault(run.disposition, [])
            if len(sample) < SAMPLE:
                sample.append((group.topic_names[record.topic_id], record.partition, first, last))
    return tuple(
        GivenUp(disposition=kind.name.lower(), count=count, sample=tuple(samples[kind]))
        for kind, count in counts.items()
    )
