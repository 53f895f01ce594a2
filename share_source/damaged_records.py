"""A replayed plan without the records that can't be read: found and rejected by the driver, before tasks read the plan.

An executor that finds a damaged batch fails its task, as Spark's Kafka source does, and can't tell the coordinator,
which it may not reach. So the process that replays the batch reads it first, and has exactly those records rejected
(docs/adr/0042). Rule: the rejection is durable before any task reads, so that no such record is ever accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from coordinator.client.session import MemberSession
from coordinator.protocol.damaged_batch import Damage
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import PartitionPlan, StageOutcomes
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_source.range_cursor import Key
from share_source.range_reader import ReadTask, pass_through

logger = logging.getLogger(__name__)

Damaged = dict[Key, list[Damage]]

MOST_OFFSETS = 100_000
MOST_BYTES = 256 << 20
"""Offsets of a replayed plan that the driver looks through at most, and the bytes after which it stops: some seconds. A
larger plan that fails again is acquired in slices, which are smaller."""
MOST_S = 60.0
"""Seconds after which the driver stops looking. What was found by then is rejected; the tasks say what is wrong with
the rest, and the next replay looks again. To find the end of one damaged batch takes some 20 questions to a broker, of
milliseconds each, or of 10 s where it does not answer."""
_TIMEOUT_MS = 10_000
"""Milliseconds without a record after which the driver stops reading: the tasks then say what is wrong."""


def damaged_offsets(task: ReadTask) -> Damaged:
    """The offsets of the task that can't be read, as far as MOST_BYTES and MOST_S go. None where the task is not a
    replay, or holds more than MOST_OFFSETS offsets, or where the driver can't read: the tasks will say why."""
    counts = [held.delivery_count for part in task.partitions for held in part.ranges]
    if max(counts, default=0) < 2 or sum(part.records for part in task.partitions) > MOST_OFFSETS:
        return {}
    timeout_ms = min(task.poll_timeout_ms, _TIMEOUT_MS)
    try:
        task = replace(task, fail_on_data_loss=False, fail_on_damage=False, poll_timeout_ms=timeout_ms)
        return pass_through(task, MOST_BYTES, MOST_S)
    except ShareGroupError as error:
        logger.warning("the replayed batch was not looked through for damaged records: %s", error)
        return {}


def reject_damaged(session: MemberSession, partitions: Iterable[PartitionPlan], damaged: Damaged) -> None:
    """Have the coordinator reject these offsets when the plan completes, each with the reason, and log them.

    Raises:
        ShareGroupError: the coordinator refuses, by name.
    """
    rows = []
    for part in partitions:
        for damage in damaged.get((part.topic, part.partition), ()):
            count = next(held.delivery_count for held in part.ranges if held.last >= damage.first)
            reason = f"the record can't be read: {damage.reason}"
            outcome = int(AcknowledgeType.REJECT)
            rows.append((part.topic_id, part.partition, damage.first, damage.last, count, outcome, None, False, reason))
            logger.warning(
                "share group %s: the record(s) of %s-%d with the offsets %d to %d can't be read, and are given up as "
                "rejected: %s",
                *(session.group_id, part.topic, part.partition, damage.first, damage.last, damage.reason),
            )
    request = StageOutcomes(
        group_id=session.group_id,
        replaces=True,  # nothing was written: what the query's sinks say counts
        rows=len(rows),
        fail_on_stale=True,
    )
    columns = zip(*rows, strict=True)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    session.call_with_rows(request, table)


def without(partitions: Iterable[PartitionPlan], damaged: Damaged) -> tuple[PartitionPlan, ...]:
    """The partitions without the damaged offsets."""
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
    """The parts of a range below ``first`` and above ``last``."""
    below = held._replace(last=min(held.last, first - 1))
    above = held._replace(first=max(held.first, last + 1))
    return [
        part
        for part in ((below, above) if first <= held.last and last >= held.first else (held,))
        if part.first <= part.last
    ]
