"""Removes unreadable records from a replayed plan: the driver finds and rejects them before tasks read the plan.

An executor that finds a damaged record batch fails its task, as Spark's Kafka source does. It can't tell the
coordinator, because it may have no connection to it. So the process that replays the query's batch reads the records
first, and has exactly the damaged ones rejected (docs/adr/0042). Rule: the rejection is durable before any task reads,
so such a record is never accepted."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from coordinator.client.session import MemberSession
from coordinator.kafka.damaged_batch import Damage
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import PartitionPlan, StageOutcomes
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_source.executor.range_cursor import Key
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import pass_through

logger = logging.getLogger(__name__)

Damaged = dict[Key, list[Damage]]

MOST_OFFSETS = 100_000
MOST_BYTES = 256 << 20
"""The driver scans replayed plans of up to MOST_OFFSETS offsets, and stops after this many bytes, which takes some
seconds. A larger plan that fails again is acquired in slices, which are smaller."""
MOST_S = 60.0
"""The driver stops scanning after this many seconds, and rejects what it found. The tasks report the rest, and the next
replay scans again. It takes some 20 requests to find the end of one damaged batch: milliseconds each, or 10 s where a
broker does not answer."""
_TIMEOUT_MS = 10_000
"""The driver stops scanning after this many milliseconds without a record. The tasks then report the error."""


def damaged_offsets(task: ReadTask) -> Damaged:
    """Returns the task's unreadable offsets, found within MOST_BYTES and MOST_S. Empty if the task is no replay, has
    more than MOST_OFFSETS offsets, or can't be read: the tasks then report why."""
    counts = [held.delivery_count for part in task.partitions for held in part.ranges]
    if max(counts, default=0) < 2 or sum(part.records for part in task.partitions) > MOST_OFFSETS:
        return {}
    timeout_ms = min(task.poll_timeout_ms, _TIMEOUT_MS)
    try:
        task = replace(task, fail_on_data_loss=False, fail_on_damage=False, poll_timeout_ms=timeout_ms)
        return pass_through(task, MOST_BYTES, MOST_S)
    except ShareGroupError as error:
        logger.warning("the replayed batch was not scanned for damaged records: %s", error)
        return {}


def reject_damaged(session: MemberSession, partitions: Iterable[PartitionPlan], damaged: Damaged) -> None:
    """Log these offsets, and have the coordinator reject each of them, with its reason, when the plan completes. Raises
    ShareGroupError if the coordinator refuses."""
    rows = []
    for part in partitions:
        for damage in damaged.get((part.topic, part.partition), ()):
            count = next(held.delivery_count for held in part.ranges if held.last >= damage.first)
            reason = f"the record can't be read: {damage.reason}"
            outcome = int(AcknowledgeType.REJECT)
            rows.append((part.topic_id, part.partition, damage.first, damage.last, count, outcome, None, False, reason))
            logger.warning(
                "share group %s: the record(s) of %s-%d with the offsets %d to %d can't be read, and are rejected: %s",
                *(session.group_id, part.topic, part.partition, damage.first, damage.last, damage.reason),
            )
    request = StageOutcomes(group_id=session.group_id, unreadable=True, rows=len(rows), fail_on_stale=True)
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    session.call_with_rows(request, table)


def without(partitions: Iterable[PartitionPlan], damaged: Damaged) -> tuple[PartitionPlan, ...]:
    """Returns the partitions without the damaged offsets."""
    kept = []
    for part in partitions:
        ranges = part.ranges
        for first, last, _, _ in damaged.get((part.topic, part.partition), ()):
            ranges = tuple(left for held in ranges for left in _outside(held, first, last))
        if ranges:
            kept.append(
                PartitionPlan(topic=part.topic, topic_id=part.topic_id, partition=part.partition, ranges=ranges)
            )
    return tuple(kept)


def _outside(held: AcquiredRange, first: int, last: int) -> list[AcquiredRange]:
    below = held._replace(last=min(held.last, first - 1))
    above = held._replace(first=max(held.first, last + 1))
    parts = (below, above) if first <= held.last and last >= held.first else (held,)
    return [part for part in parts if part.first <= part.last]
