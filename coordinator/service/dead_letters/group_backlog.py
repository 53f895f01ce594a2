"""The records of a group that wait for their dead letters: a transaction that reads them, and one that archives them.

Rule: no I/O in this module. A read returns a part of the backlog in a fixed order, so that one pass reaches every
record once, even if some records stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import DeadLettersWritten, MarkDeadLettersWritten
from coordinator.core.looks.view import reads_topic
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import Disposition, OffsetRange, SharePartitionKey
from coordinator.service.brokers.log_gaps import ranges_of
from coordinator.service.runtime.transaction import Transaction, TransactionSteps, ask, looking

MOST_RUNS = 10_000
"""One read returns up to this many runs: reads take the event loop's time, and other groups wait meanwhile."""
MOST_RECORDS = 20_000
"""One read returns up to this many records: each is a dead letter in memory, and takes the event loop's time."""

BacklogCursor = tuple[SharePartitionKey, int]
"""The position in a backlog: a share partition, and an offset in it."""
BEGINNING: BacklogCursor = (SharePartitionKey("", -1), -1)


class Due(NamedTuple):
    """Records of a share partition with the same disposition, reason and delivery count."""

    topic: str
    offsets: OffsetRange
    delivery_count: int
    disposition: Disposition
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Records that wait, in order of share partition and offset. ``reached``: where the next read begins; None at the
    end. ``reads_dead_letters``: whether the group reads its dead letter topic now."""

    incarnation: str
    config: GroupConfig
    topic_ids: bool
    reads_dead_letters: bool
    due: tuple[Due, ...]
    reached: BacklogCursor | None


def look(begin: BacklogCursor, wanted: Callable[[int], bool]) -> Transaction[Backlog | None]:
    """A transaction that reads the backlog from ``begin`` on, of the partitions whose index is ``wanted``. Its result
    is None if the group does not exist."""

    def part(group: ShareGroup) -> Backlog | None:
        if not group.exists:
            return None
        due, reached = _part(_waiting(group, begin, wanted))
        return Backlog(
            incarnation=group.incarnation,
            config=group.config,
            topic_ids=group.topic_ids,
            reads_dead_letters=reads_topic(group, group.config.errors_deadletterqueue_topic_name),
            due=due,
            reached=reached,
        )

    return looking(part)


def mark_written(
    incarnation: str, letters: Iterable[DeadLettersWritten], *, are_written: bool = True
) -> Transaction[None]:
    """A transaction that archives these records: their dead letters are written, or (``are_written`` false) never will
    be. It does nothing in another incarnation of the group."""
    command = MarkDeadLettersWritten(written=tuple(letters), are_written=are_written)

    def transaction(group: ShareGroup) -> TransactionSteps[None]:
        if group.incarnation == incarnation and command.written:
            yield from ask(command)

    return transaction


def coalesced(records: Iterable[tuple[Due, int]]) -> list[DeadLettersWritten]:
    """Returns the records as ranges, in their order."""
    keyed = (((due.offsets.key, due.delivery_count), offset) for due, offset in records)
    return [
        DeadLettersWritten(offsets=OffsetRange(*key, first, last), delivery_count=delivery_count)
        for (key, delivery_count), first, last in ranges_of(keyed)
    ]


def _waiting(group: ShareGroup, begin: BacklogCursor, wanted: Callable[[int], bool]) -> Iterator[Due]:
    key, offset = begin
    for partition in sorted(group.partitions.values(), key=lambda p: p.key):
        if partition.key >= key and partition.archiving_count and wanted(partition.key.partition):
            topic = group.topic_names[partition.key.topic_id]
            yield from _of(topic, partition, offset if partition.key == key else -1)


def _of(topic: str, partition: SharePartition, offset: int) -> Iterator[Due]:
    for first, last, run in partition.runs.archiving_from(offset):
        yield Due(
            topic,
            OffsetRange(*partition.key, max(first, offset), last),
            run.delivery_count,
            run.disposition,
            run.reason,
        )


def _part(waiting: Iterator[Due]) -> tuple[tuple[Due, ...], BacklogCursor | None]:
    taken: list[Due] = []
    left = MOST_RECORDS
    for due in waiting:
        offsets = due.offsets._replace(last=min(due.offsets.last, due.offsets.first + left - 1))
        taken.append(due._replace(offsets=offsets))
        left -= offsets.size
        if not left or len(taken) == MOST_RUNS:
            return tuple(taken), (offsets.key, offsets.last + 1)
    return tuple(taken), None
