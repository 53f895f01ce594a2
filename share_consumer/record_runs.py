"""The records of one acquisition as runs: neighbouring offsets of one partition with one delivery count. Pure.

Rule: everything but the message itself is kept once for a run, so that a record costs no time of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, repeat
from math import inf
from typing import NamedTuple

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError

from coordinator.kafka.damaged_batch import Damage
from coordinator.protocol.messages import AckBatch, PartitionAcks, PartitionPlan
from coordinator.protocol.values import AcknowledgeType
from share_consumer.message import Message
from share_source.executor.range_cursor import Key, Run
from share_source.executor.record_batches import content_bytes


class HeldRange(NamedTuple):
    """Offsets ``first`` to ``last``, with one delivery count, without a record."""

    first: int
    last: int
    delivery_count: int


class Unread(NamedTuple):
    """A range that was acquired and has no record: a gap (GAP), or offsets that could not be read (RELEASE)."""

    key: Key
    topic_id: str
    range: HeldRange
    kind: AcknowledgeType


class RecordRun:
    """Neighbouring records of one partition with one delivery count. ``outcome``: what becomes of them unless the
    program decides; not ACCEPT for unreadable records, whose messages are errors. ``unlocked``: the locks have ended.
    ``source``: the run that this run is the first part of. ``at``: the index of the first message in the list."""

    __slots__ = (
        *("_at", "_messages", "delivery_count", "first", "key", "last", "outcome", "source", "topic_id", "unlocked"),
    )

    def __init__(
        self,
        key: Key,
        topic_id: str,
        first: int,
        delivery_count: int,
        messages: list[Message],
        at: int = 0,
        outcome: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        self.outcome = outcome
        self.key, self.topic_id, self.delivery_count = key, topic_id, delivery_count
        self.first, self.last = first, first + len(messages) - at - 1
        self.unlocked = False
        self.source: RecordRun | None = None
        self._messages, self._at = messages, at

    def __repr__(self) -> str:
        return f"<RecordRun {self.key[0]}-{self.key[1]} {self.first}-{self.last}>"

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def messages(self) -> list[Message]:
        return self._messages[self._at : self._at + len(self)]

    def add(self, messages: list[Message]) -> None:
        """Append the records that follow. Call it before any :meth:`part`."""
        self._messages += messages
        self.last += len(messages)

    def part(self, most: int) -> RecordRun:
        """Returns the first ``most`` records as a run of their own, without copying the messages."""
        part = RecordRun(
            self.key, self.topic_id, self.first, self.delivery_count, self._messages, self._at, self.outcome
        )
        part.last = min(self.last, self.first + most - 1)
        part.unlocked, part.source = self.unlocked, self
        return part

    def skip_to(self, offset: int) -> None:
        """Begin the run at this offset, if it begins earlier."""
        if offset > self.first:
            self._at += offset - self.first
            self.first = offset


def batch(
    first: int, last: int, delivery_count: int, kind: AcknowledgeType, reason: str = "", delay_ms: int | None = None
) -> AckBatch:
    """Returns the acknowledgement that gives the offsets ``first`` to ``last`` one outcome."""
    types = (int(kind),)
    return AckBatch(
        first=first, last=last, delivery_count=delivery_count, types=types, reason=reason, delay_ms=delay_ms
    )


def split(
    partitions: Iterable[PartitionPlan], left: Mapping[Key, int]
) -> tuple[tuple[PartitionPlan, ...], tuple[PartitionPlan, ...]]:
    """Cut the partitions at the offsets in ``left``. Returns what was read, and what is left to read."""
    partitions = tuple(partitions)
    return (
        tuple(part for p in partitions if (part := _within(p, 0, left.get((p.topic, p.partition), inf))).ranges),
        tuple(part for p in partitions if (part := _within(p, left.get((p.topic, p.partition), inf), inf)).ranges),
    )


def _within(plan: PartitionPlan, begin: float, end: float) -> PartitionPlan:
    if not begin and end == inf:
        return plan
    cut = (
        held._replace(first=int(max(held.first, begin)), last=int(min(held.last, end - 1)))
        for held in plan.ranges
        if held.first < end and begin <= held.last
    )
    return msgspec.structs.replace(plan, ranges=tuple(cut))


def acks_of(partitions: Iterable[PartitionPlan], kind: AcknowledgeType) -> tuple[PartitionAcks, ...]:
    """Returns acknowledgements that give all offsets of these partitions one outcome."""
    return tuple(
        PartitionAcks(topic_id=p.topic_id, partition=p.partition, batches=tuple(batch(*at, kind) for at in p.ranges))
        for p in partitions
    )


def acks_of_runs(runs: Iterable[RecordRun], kind: AcknowledgeType) -> tuple[PartitionAcks, ...]:
    """Returns acknowledgements that give all records of these runs one outcome."""
    by_partition: dict[tuple[str, int], list[AckBatch]] = {}
    for run in runs:
        batches = by_partition.setdefault((run.topic_id, run.key[1]), [])
        batches.append(batch(run.first, run.last, run.delivery_count, kind))
    return tuple(
        PartitionAcks(topic_id=topic_id, partition=partition, batches=tuple(batches))
        for (topic_id, partition), batches in by_partition.items()
    )


class RunCollector:
    """Collects what the range reader reads, as the runs of a ShareConsumer. ``nbytes``: of the keys and values of what
    was built; the compiled reader counts headers as well."""

    needs_timestamps = False

    def __init__(self, partitions: Iterable[PartitionPlan]) -> None:
        self._partitions = {(p.topic, p.partition): p for p in partitions}
        self._runs: dict[Key, list[RecordRun]] = {key: [] for key in self._partitions}
        self.nbytes = 0

    def __len__(self) -> int:
        return sum(len(run) for runs in self._runs.values() for run in runs)

    @property
    def room(self) -> int:
        """No limit: the reader calls :meth:`build` only if there is no room."""
        return 1 << 30

    def add(self, key: Key, messages: list[confluent_kafka.Message], runs: list[Run], timestamps: list[int]) -> None:
        at = 0
        self.nbytes += content_bytes(messages)
        for delivery_count, count in runs:
            read = messages if count == len(messages) else messages[at : at + count]
            at += count
            for first, neighbours in _neighbours(read):
                self.add_run(key, first, delivery_count, list(map(Message, neighbours, repeat(delivery_count))))

    def add_run(self, key: Key, first: int, delivery_count: int, messages: list[Message]) -> None:
        runs = self._runs[key]
        if runs and (runs[-1].last, runs[-1].delivery_count) == (first - 1, delivery_count):
            runs[-1].add(messages)
        else:
            runs.append(RecordRun(key, self._partitions[key].topic_id, first, delivery_count, messages))

    def add_damaged(self, damaged: Mapping[Key, list[Damage]]) -> None:
        """Call it after all :meth:`add`. Add error messages, whose values are the errors' texts, for the records of
        damaged batches. As in confluent's class, a record is released if its batch can't be decompressed, and rejected
        otherwise."""
        for key, of_key in damaged.items():
            plan = self._partitions[key]
            for first, last, code, reason in of_key:
                count = next(held.delivery_count for held in plan.ranges if held.last >= first)
                is_release = code == KafkaError._BAD_COMPRESSION
                outcome = AcknowledgeType.RELEASE if is_release else AcknowledgeType.REJECT
                value, error = reason.encode(), KafkaError(code, reason)
                messages = [
                    Message(confluent_kafka.Message(*key, offset, None, value, None, error), count)
                    for offset in range(first, last + 1)
                ]
                self._runs[key].append(RecordRun(key, plan.topic_id, first, count, messages, outcome=outcome))
            self._runs[key].sort(key=lambda run: run.first)

    def build(self) -> None:
        """Does nothing: the records stay in the collection."""

    def runs(self) -> list[RecordRun]:
        return [run for runs in self._runs.values() for run in runs]

    def unread(self, read: Iterable[PartitionPlan], lost: dict[Key, list[tuple[int, int]]]) -> list[Unread]:
        """Returns the offsets of ``read`` without a record: the ``lost`` ones, and gaps."""
        found = []
        for plan in read:
            key = (plan.topic, plan.partition)
            for missing in _missing(plan.ranges, self._runs[key]):
                for part, is_lost in _split(missing, lost.get(key, [])):
                    kind = AcknowledgeType.RELEASE if is_lost else AcknowledgeType.GAP
                    found.append(Unread(key, plan.topic_id, part, kind))
        return found


def _neighbours(messages: list[confluent_kafka.Message]) -> Iterator[tuple[int, list[confluent_kafka.Message]]]:
    """Yields each part without a hole, with its first offset."""
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None and last is not None
    if last - first + 1 == len(messages):
        yield first, messages
        return
    for _, part in groupby(enumerate(messages), key=lambda e: (e[1].offset() or 0) - e[0]):
        neighbours = [message for _, message in part]
        yield neighbours[0].offset() or 0, neighbours


def _missing(ranges: Iterable[tuple[int, int, int]], runs: list[RecordRun]) -> Iterator[HeldRange]:
    """Yields the parts of the ranges that no run covers; both ascend."""
    at = 0
    for first, last, count in ranges:
        begin = first
        while at < len(runs) and runs[at].first <= last:
            if runs[at].first > begin:
                yield HeldRange(begin, runs[at].first - 1, count)
            begin = max(begin, runs[at].last + 1)
            if runs[at].last > last:
                break
            at += 1
        if begin <= last:
            yield HeldRange(begin, last, count)


def _split(missing: HeldRange, lost: list[tuple[int, int]]) -> Iterator[tuple[HeldRange, bool]]:
    """Yields the range in parts, and whether each part is lost."""
    begin, last, count = missing
    for low, high in sorted(lost):
        low, high = max(low, begin), min(high, last)
        if low > high:
            continue
        if begin < low:
            yield HeldRange(begin, low - 1, count), False
        yield HeldRange(low, high, count), True
        begin = high + 1
    if begin <= last:
        yield HeldRange(begin, last, count), False
