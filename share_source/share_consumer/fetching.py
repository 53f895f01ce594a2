"""Acquires records at the coordinator, and reads them from the brokers with the source's kept consumers.

Rule: between their acquisition and the poll that returns them, records are held for that poll: their locks are renewed
(:mod:`share_source.share_consumer.renewal`), so that slow brokers, or a program that polls late, use up no delivery.
Records that can't be read are released, and never accepted. After a failed read the next acquisition waits, longer each
time: a member that can't read must not use up the deliveries of records that others can read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import Message

from coordinator.client.session import MemberSession
from coordinator.protocol.errors import FencedMemberEpoch, ShareGroupError
from coordinator.protocol.messages import (
    Acknowledge,
    AcquiredReply,
    AcquireRecords,
    PartitionPlan,
)
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_source.offset_ranges import PartitionRanges
from share_source.range_cursor import Key, Run
from share_source.range_reader import ReadTask, read_records
from share_source.share_consumer.acknowledgements import acknowledged, all_failed
from share_source.share_consumer.in_flight import Delivered, HeldRange, Sending, acks_of
from share_source.share_consumer.membership import Membership
from share_source.share_consumer.options import ConsumerOptions

logger = logging.getLogger(__name__)

Answered = Callable[[dict[Key, str]], object]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Seconds before the acquisition after a failed read. They double with each failure: credentials that have expired
rarely come back within seconds."""


@dataclass(slots=True)
class Fetched:
    """The answer to one question for records. ``error``: why there are no records. ``until_s``: when their locks end
    unless they are renewed, in monotonic seconds."""

    delivered: list[Delivered] = field(default_factory=list)
    error: BaseException | None = None
    until_s: float = 0.0
    lock_timeout_ms: int = 0

    @property
    def records(self) -> int:
        return sum(len(each.messages) for each in self.delivered)


class HeldForPoll:
    """Acquired records that no poll has returned yet, for the renewal of their locks. Replaced as a whole, so that a
    thread that reads it needs no lock."""

    def __init__(self) -> None:
        self.partitions: tuple[PartitionPlan, ...] = ()


class Fetcher:
    """Asks for the records of one consumer, one question at a time."""

    def __init__(self, options: ConsumerOptions, membership: Membership, acquired: Callable[[int], None]) -> None:
        """``acquired`` is told how long the locks of acquired records last, in milliseconds."""
        self._options = options
        self._acquired = acquired
        self._membership = membership
        self._after = ""
        self._pause_s = 0.0
        self._closed = threading.Event()
        self.held = HeldForPoll()

    def fetch(self, topics: tuple[str, ...], sending: Sending, wait_ms: int, answered: Answered) -> Fetched:
        """Send the acknowledgements; acquire and read records of these topics, for which it waits that long.
        ``answered`` is told the errors of the acknowledgements, by partition, before the records are read."""
        fetched = Fetched()
        answer = _Answer(sending, answered)
        try:
            self._fetch(topics, answer, wait_ms, fetched)
        except BaseException as error:  # noqa: BLE001 - a callback's of the program too: the poll raises it
            answer.tell(all_failed(sending, error))
            self.give_back()
            fetched.delivered, fetched.error = [], error
        return fetched

    def close(self) -> None:
        """End the pause after a failed read; nothing is acquired after it."""
        self._closed.set()

    def _fetch(self, topics: tuple[str, ...], answer: _Answer, wait_ms: int, fetched: Fetched) -> None:
        try:
            session = self._membership.session(topics)
        except ShareGroupError:
            if answer.sending and self._membership.joined is not None:  # the session of the topics before has them
                answer.tell(acknowledged(self._membership, answer.sending))
            raise
        if self._pause_s:
            if answer.sending:
                answer.tell(acknowledged(self._membership, answer.sending))
            if self._closed.wait(self._pause_s):
                return
        began_s = time.monotonic()
        reply = self._acquire(session, topics, answer.untold, wait_ms)
        answer.tell(answer.sending.errors(reply.errors))
        self._after = reply.plan_id or self._after
        if reply.partitions:
            fetched.lock_timeout_ms = reply.lock_timeout_ms
            fetched.until_s = began_s + reply.lock_timeout_ms / 1000
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self._read(reply, reply.isolation_level or session.isolation_level, fetched)
            self._pause_s = 0.0

    def _acquire(
        self, session: MemberSession, topics: tuple[str, ...], sending: Sending, wait_ms: int
    ) -> AcquiredReply:
        fields = {
            "max_records": self._options.max_poll_records,
            "wait_ms": wait_ms,
            "after": self._after,
            "acquire_mode": self._options.acquire_mode,
            "acknowledgements": sending.partitions,
        }
        try:
            return session.call(AcquireRecords, **fields)
        except FencedMemberEpoch:  # by this member's own later join
            return self._membership.session(topics).call(AcquireRecords, **fields)

    def give_back(self) -> None:
        """Release the records that are held for a poll that will not come."""
        partitions, self.held.partitions = self.held.partitions, ()
        if partitions:
            self._release(partitions)

    def _read(self, reply: AcquiredReply, isolation_level: str, fetched: Fetched) -> None:
        self.held.partitions = reply.partitions
        self._acquired(reply.lock_timeout_ms)
        collector = _Collector(reply.partitions)
        task = ReadTask(
            partitions=tuple(PartitionRanges(p.topic, p.partition, p.ranges, p.topic_id) for p in reply.partitions),
            kafka_config=self._options.client_config,
            isolation_level=isolation_level,
            fail_on_data_loss=False,
            poll_timeout_ms=self._options.outage_timeout_ms,
        )
        fetched.delivered = collector.delivered(read_records(task, collector))

    def _release(self, partitions: Iterable[PartitionPlan]) -> None:
        """Give back records that can't be read here, at no try; perhaps another member can read them."""
        try:
            self._membership.call(Acknowledge, partitions=acks_of(partitions, AcknowledgeType.RELEASE), unread=True)
        except Exception as error:  # noqa: BLE001 - their locks end
            logger.warning("records that could not be read are not released: %s", error)


class _Answer:
    """The answer to the acknowledgements of one question, which is told once."""

    def __init__(self, sending: Sending, answered: Answered) -> None:
        self.sending, self._answered = sending, answered
        self.untold = sending

    def tell(self, errors: dict[Key, str]) -> None:
        """Tell the errors by partition, unless an answer was told before."""
        answered, self._answered = self._answered, _ignored
        self.untold = Sending()
        answered(errors)


def _ignored(errors: dict[Key, str]) -> None:
    """Ignore a later answer."""


class _Collector:
    """Collects what the range reader reads, as the messages of a ShareConsumer."""

    room = 1 << 30

    def __init__(self, partitions: Iterable[PartitionPlan]) -> None:
        self._partitions = {(p.topic, p.partition): p for p in partitions}
        self._delivered = {
            (p.topic, p.partition): Delivered(p.topic, p.partition, p.topic_id) for p in self._partitions.values()
        }

    def __len__(self) -> int:
        return sum(len(each.messages) for each in self._delivered.values())

    def add(self, key: Key, messages: list[Message], runs: list[Run], timestamps: list[int]) -> None:
        """Records of one partition, in order, and their runs of delivery counts."""
        into = self._delivered[key]
        at = 0
        for delivery_count, count in runs:
            into.messages += [_with_count(message, delivery_count) for message in messages[at : at + count]]
            into.counts += [delivery_count] * count
            at += count

    def build(self) -> None:
        """Nothing is built: the records stay in the collection."""

    def delivered(self, lost: dict[Key, list[tuple[int, int]]]) -> list[Delivered]:
        """The records that were read, with the offsets of the ranges that have none."""
        for key, each in self._delivered.items():
            ranges = self._partitions[key].ranges
            if sum(last - first + 1 for first, last, _ in ranges) > len(each.messages):
                _note_missing(each, ranges, lost.get(key, []))
        return list(self._delivered.values())


def _note_missing(delivered: Delivered, ranges: Iterable[AcquiredRange], lost: list[tuple[int, int]]) -> None:
    """Note the offsets without a message: gaps, or lost ones."""
    present = {message.offset() for message in delivered.messages}
    for first, last, count in ranges:
        for offset in range(first, last + 1):
            if offset in present:
                continue
            is_lost = any(begin <= offset <= end for begin, end in lost)
            _extend(delivered.lost if is_lost else delivered.gaps, offset, count)


def _extend(ranges: list[HeldRange], offset: int, count: int) -> None:
    if ranges and ranges[-1].last == offset - 1 and ranges[-1].delivery_count == count:
        ranges[-1] = ranges[-1]._replace(last=offset)
    else:
        ranges.append(HeldRange(offset, offset, count))


def _with_count(message: Message, delivery_count: int) -> Message:
    """The message with its delivery count, which only the constructor sets."""
    leader_epoch = message.leader_epoch()
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.headers(),
        None,
        message.timestamp(),
        leader_epoch=-1 if leader_epoch is None else leader_epoch,
        delivery_count=delivery_count,
    )
