"""What becomes of records when a delivery ends without an outcome: a lost lock, a replay, a failed trial.

A ShareConsumer's record is AVAILABLE again, or given up at the limit, as in Kafka. A query's record is never given up
for a failure alone: at the limit it is set aside, to be delivered alone (docs/protocol.md, "Failures and isolation").
What is given up is ARCHIVING until its dead letter is filed, or ARCHIVED at once in a group that has no dead letter
queue.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core.changes import archived, moved
from coordinator.core.isolation import solo_backoff_ms
from coordinator.core.left_out import LeftOutRange, bounded
from coordinator.core.members import AcquiredPlan
from coordinator.core.record_state import Event, RecordState
from coordinator.core.records import DataLost
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import Disposition, SharePartitionKey


def consumer_lost_lock(run: Run, config: GroupConfig) -> Run:
    """A ShareConsumer's lock ran out: one failed delivery; its plan_id stays, in case its holder comes back."""
    failed = run._replace(failures=run.failures + 1, deadline_ms=None)
    if failed.tries >= config.share_delivery_count_limit:
        return archived(failed, Event.LIMIT, config, Disposition.EXPIRED)
    return moved(failed, Event.LOSE_LOCK)


def released(run: Run, config: GroupConfig, not_before_ms: int | None = None) -> Run:
    """Given back by the ShareConsumer that holds it: a try, no failure; nobody may come back to it. With
    ``not_before_ms`` it is not acquired again earlier. At the limit of tries it is given up, as in Kafka."""
    given = run._replace(releases=run.releases + 1, deadline_ms=None)
    if given.tries >= config.share_delivery_count_limit:
        return archived(given, Event.LIMIT, config, Disposition.DELIVERY_LIMIT)
    return moved(given, Event.RELEASE, plan_id=None, not_before_ms=not_before_ms)


def query_released(run: Run, config: GroupConfig, not_before_ms: int | None, disposition: Disposition) -> Run:
    """Given back by a completed batch. Its releases alone give it up, with ``disposition``; one that was set aside has
    been answered for, and is set aside no longer. One whose lock was lost meanwhile had its try counted then."""
    if run.state == RecordState.AVAILABLE:
        return moved(run, Event.RELEASE, plan_id=None, not_before_ms=not_before_ms or run.not_before_ms)
    given = run._replace(releases=run.releases + 1, quarantined_ms=None, last_tried_ms=None)
    if given.releases >= config.share_delivery_count_limit:
        return archived(given, Event.LIMIT, config, disposition)
    return moved(given, Event.RELEASE, plan_id=None, not_before_ms=not_before_ms)


def query_lost_lock(run: Run, plan: AcquiredPlan, config: GroupConfig, now_ms: int) -> Run:
    """A query's session ended in mid-batch. The plan_id stays unless the record is set aside now. A trial is judged
    when its query comes back: the batch may have been committed. But a second trial that ends so has failed: two
    queries that stay away for longer than a session would else hand a bad record to and fro for ever."""
    failed = run._replace(failures=run.failures + plan.started)
    if run.quarantined_ms is None and at_limit(failed, config):
        return quarantined(failed, plan, now_ms)
    if run.quarantined_ms is not None and plan.started:
        if not plan.trial:
            return failed_alone(failed, config, now_ms)
        if run.trials_lost:
            return trial_failed(failed, config)
        failed = failed._replace(trials_lost=1)
    return moved(failed, Event.LOSE_LOCK)


def trial_failed(run: Run, config: GroupConfig) -> Run:
    """It failed alone, and others did not: it is given up."""
    return archived(run, Event.FAIL_TRIAL, config, Disposition.DELIVERY_LIMIT)


def quarantined(run: Run, plan: AcquiredPlan, now_ms: int) -> Run:
    """Out of its batch, to be delivered alone from now on. A record that failed among others may be a good one, and
    has yet to fail alone before it may go on trial."""
    return moved(run, Event.SET_ASIDE, plan_id=None, quarantined_ms=now_ms if plan.records == 1 else 0)


def is_news(before: Run, after: Run) -> bool:
    """Whether the group sets this record aside now, or sees it fail alone for the first time: what completed before is
    no evidence any more, since an outage may have begun."""
    return after.quarantined_ms is not None and (
        before.quarantined_ms is None or before.quarantined_ms < after.quarantined_ms
    )


def at_limit(run: Run, config: GroupConfig) -> bool:
    """Its tries are used up, and a failure is among them."""
    return run.failures > 0 and run.tries >= config.share_delivery_count_limit


def failed_alone(run: Run, config: GroupConfig, now_ms: int) -> Run:
    """A record that was set aside failed alone, not on trial: it stays aside, with backoff."""
    return moved(
        run,
        Event.SET_ASIDE,
        plan_id=None,
        quarantined_ms=run.quarantined_ms or now_ms,
        last_tried_ms=now_ms,
        not_before_ms=now_ms + solo_backoff_ms(run.failures, config.share_delivery_count_limit),
    )


def data_lost(
    group: ShareGroup, segments: Iterable[tuple[SharePartitionKey, Segment]], uncounted: Iterable[LeftOutRange] = ()
) -> list[DataLost]:
    """What pending plans of queries lose with records that are archived because the log no longer holds them, and what
    the group does with those that nobody held (plan_id 0; with ``uncounted``), where it has queries to tell it.
    Bounded, however scattered they are."""
    by_number: dict[int, list[LeftOutRange]] = {}
    for key, (first, last, run) in segments:
        plan = group.plans.get(run.plan_id) if run.plan_id is not None else None
        pending = plan is not None and plan is group.members[plan.member_id].pending
        out = left_out_entry(group, key, first, last, "data_loss")
        by_number.setdefault(plan.plan_id if plan is not None and pending else 0, []).append(out)
    for out in uncounted:
        by_number.setdefault(0, []).append(out)
    if not any(member.query for member in group.members.values()):
        by_number.pop(0, None)
    return [
        DataLost(plan_id=plan_id, member_id=group.plans[plan_id].member_id if plan_id else "", lost=bounded(lost))
        for plan_id, lost in by_number.items()
    ]


def left_out_entry(group: ShareGroup, key: SharePartitionKey, first: int, last: int, reason: str) -> LeftOutRange:
    """All offsets from first to last of a share partition, as an entry."""
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
    """What was never acquired of a log whose end nobody has seen."""
    end = partition.end_offset
    return msgspec.structs.replace(left_out_entry(group, partition.key, end, end, "end_unknown"), count=0)
