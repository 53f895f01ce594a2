"""Acquires records at the coordinator, and reads them from the brokers with the source's kept consumers.

Rule: the locks of acquired records are renewed until a poll returns the records (:mod:`share_consumer.ahead`), so slow
brokers, or a program that polls late, use up no delivery. Records that can't be read are released, never accepted.
After a failed read the next acquisition waits, twice as long each time: a member that can't read must not use up
deliveries of records that others can read. If only some partitions can't be read, the other records are delivered, and
the next acquisitions leave those partitions out (:mod:`share_consumer.silent_partitions`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coordinator.client.session import Identity, MemberSession
from coordinator.protocol.errors import FencedMemberEpoch, ShareGroupError
from coordinator.protocol.messages import Acknowledge, AcquiredReply, AcquireRecords, PartitionAcks, PartitionPlan
from coordinator.protocol.repeated_lines import LogOnce, Outage
from share_consumer.acknowledgements import acknowledged, all_failed
from share_consumer.ahead import Acquired, Ahead
from share_consumer.membership import Membership
from share_consumer.options import ConsumerOptions
from share_consumer.reading import read_records
from share_consumer.record_runs import RunCollector, split
from share_consumer.sending import Sending
from share_consumer.silent_partitions import SilentPartitions
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_cursor import Key
from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import is_native
from share_source.held_back import tell_held_back

logger = logging.getLogger(__name__)

Answered = Callable[[dict[Key, str]], object]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""The first acquisition after a failed read waits FIRST_PAUSE_S seconds. The wait doubles with each further failure, up
to LONGEST_PAUSE_S: expired credentials rarely come back within seconds."""

PART_S = 0.25
"""After this many seconds of reading, the next poll gets the records read so far, and the poll after it gets the rest.
It is shorter than a poll of one second, and longer than nearly every read."""

WHAT_WAITS = "; other records are delivered; these are released without counting a try, and are asked for again later"
LAST_ANSWER_S = 2.0
"""A consumer that leaves waits up to this many seconds for the reply to its last request, which itself waits up to 1 s
for records. Without this wait, records that no program has seen would lose a try."""


@dataclass(slots=True)
class FetchAnswer:
    """The reply to one request for records. ``acquired`` None: no records came; ``error``: why. ``records``: how many
    were acquired and read, of ``nbytes`` in all; ``took_s``: seconds to acquire and read them, of which ``read_s`` to
    read them. ``is_part``: the reply has only a part of an acquisition. ``ordered``: the group of the acquired records
    is ordered."""

    acquired: Acquired | None = None
    error: BaseException | None = None
    lock_timeout_ms: int = 0
    records: int = 0
    nbytes: int = 0
    took_s: float = 0.0
    read_s: float = 0.0
    is_part: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for records: of which topics, up to how many, and how long to wait for them. ``ahead``: no poll waits
    for these records yet."""

    topics: tuple[str, ...]
    records: int
    wait_ms: int = 0
    ahead: bool = False


class Fetcher:
    """Requests the records of one consumer, one request at a time. ``ahead`` gets the records; ``acquired`` is called
    with the length of their locks, in milliseconds."""

    def __init__(
        self, options: ConsumerOptions, membership: Membership, ahead: Ahead, acquired: Callable[[int], None]
    ) -> None:
        self._options = options
        self._outage_timeout_ms = options.outage_timeout_ms
        self._ahead, self._acquired = ahead, acquired
        self._membership, self._metrics = membership, membership.metrics
        self._after = ""
        self._level, self._ordered = "", False
        self._pause_s = 0.0
        outage = Outage(logger, f"share group {options.group_id}, the brokers of some partitions", WHAT_WAITS)
        self._silent = SilentPartitions(outage)
        self._once = LogOnce(logger)
        self._closed = threading.Event()
        self._acquiring = threading.Lock()

    def fetch(self, wanted: Wanted, sending: Sending, answered: Answered) -> FetchAnswer:
        """Send the acknowledgements, then acquire and read the wanted records. ``answered`` is called with the errors
        of the acknowledgements, by partition, before the records are read."""
        fetched = FetchAnswer()
        answer = _Answer(sending, answered)
        try:
            self._fetch(wanted, answer, fetched)
        except BaseException as error:  # noqa: BLE001 - a callback's of the program too: the poll raises it
            answer.tell(all_failed(sending, error))
            if fetched.acquired is not None:
                self.release(self._ahead.forget(fetched.acquired))
            fetched.acquired, fetched.records, fetched.error = None, 0, error
        return fetched

    def close(self) -> None:
        """Send no more requests, and end the pause after a failed read."""
        self._closed.set()

    def wait_for_answer(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the reply to the request under way. Then the records are in ``ahead``, unread."""
        if self._acquiring.acquire(timeout=seconds):
            self._acquiring.release()

    def _fetch(self, wanted: Wanted, answer: _Answer, fetched: FetchAnswer) -> None:
        try:
            session = self._membership.session(wanted.topics)
        except ShareGroupError:
            if answer.sending and self._membership.joined is not None:  # the session of the topics before has them
                answer.tell(acknowledged(self._membership, answer.sending))
            raise
        if self._pause_s or self._ahead.has_rest:
            if answer.sending:
                answer.tell(acknowledged(self._membership, answer.sending))
            if self._pause_s and self._closed.wait(self._pause_s):
                return
        if self._read_rest(fetched):
            return
        began_s = time.monotonic()
        with self._acquiring:
            if self._closed.is_set():  # the consumer may have left: only its outcomes are sent
                if answer.unreported:
                    answer.tell(acknowledged(self._membership, answer.unreported))
                return
            reply = self._acquire(session, wanted, answer, fetched)
        if fetched.acquired is not None:
            self._acquired(reply.lock_timeout_ms)
            self._level, self._ordered = reply.isolation_level or session.isolation_level, reply.ordered
            self._read_all(fetched.acquired, fetched)
            fetched.took_s = time.monotonic() - began_s
        self._count(time.monotonic() - began_s, fetched)

    def _read_rest(self, fetched: FetchAnswer) -> bool:
        if self._closed.is_set():
            return False
        rest = self._ahead.begin_rest(time.monotonic(), self._membership.joins)
        if rest is None:
            return False
        fetched.acquired, fetched.is_part = rest, True
        fetched.lock_timeout_ms = int(rest.lock_s * 1000)
        self._read_all(rest, fetched)
        fetched.took_s = fetched.read_s
        self._count(fetched.read_s, fetched)
        return True

    def _count(self, seconds: float, fetched: FetchAnswer) -> None:
        records = sum(map(len, fetched.acquired.runs)) if fetched.acquired is not None else 0
        self._metrics.fetched(seconds, records, fetched.nbytes)

    def _read_all(self, acquired: Acquired, fetched: FetchAnswer) -> None:
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        fetched.ordered, began_s = self._ordered, time.monotonic()
        fetched.records, fetched.nbytes = self._read(acquired)
        fetched.read_s = time.monotonic() - began_s
        fetched.is_part |= self._ahead.has_rest
        self._pause_s = 0.0

    def _acquire(self, session: MemberSession, wanted: Wanted, answer: _Answer, fetched: FetchAnswer) -> AcquiredReply:
        joins, began_s = self._membership.joins, time.monotonic()
        reply = self._reply(session, wanted, answer.unreported)
        answer.tell(answer.sending.errors(reply.errors))
        self._after = reply.plan_id or self._after
        group_id, acquired = self._options.group_id, bool(reply.partitions)
        tell_held_back(self._once, "the ShareConsumer", group_id, reply, acquired=acquired)
        if reply.partitions:
            lock_s = reply.lock_timeout_ms / 1000
            fetched.acquired = Acquired(reply.partitions, began_s, time.monotonic(), lock_s, joins)
            fetched.lock_timeout_ms = reply.lock_timeout_ms
            self._ahead.begin(fetched.acquired)
        return reply

    def _reply(self, session: MemberSession, wanted: Wanted, sending: Sending) -> AcquiredReply:
        after, acknowledgements = self._after, sending.partitions
        without = self._silent.now(time.monotonic())

        def question(who: Identity) -> AcquireRecords:
            return AcquireRecords(
                **who,
                max_records=wanted.records,
                wait_ms=wanted.wait_ms,
                ahead=wanted.ahead,
                after=after,
                acquire_mode=self._options.acquire_mode,
                without=without,
                acknowledgements=acknowledgements,
            )

        try:
            return session.call(question)
        except FencedMemberEpoch:  # by this member's own later join
            return self._membership.session(wanted.topics).call(question)

    def _read(self, acquired: Acquired) -> tuple[int, int]:
        """Read the acquisition, or what arrives of it within PART_S. Returns the number of offsets read, without those
        given up, and the bytes of their records."""
        native = is_native()
        plans = acquired.partitions
        collector = collector_of(plans, native)
        task = ReadTask(
            partitions=tuple(PartitionRanges(p.topic, p.partition, p.ranges, p.topic_id) for p in plans),
            kafka_config=self._options.client_config,
            isolation_level=self._level,
            fail_on_data_loss=False,
            fail_on_damage=False,
            poll_timeout_ms=self._outage_timeout_ms,
        )
        patience_s = self._silent.patience_s(plans)
        not_read = read_records(task, collector, native=native, patience_s=patience_s, part_s=PART_S)
        collector.add_damaged(not_read.damaged)
        read, left = split(plans, not_read.left)
        acquired.read(collector.runs(), collector.unread(read, not_read.released))
        if left:
            self._ahead.split(acquired, read, left)
        for plan in read:
            if (plan.topic, plan.partition) in not_read.given_up:
                self._silent.gave_up(plan, time.monotonic(), patience_s)
            else:
                self._silent.read(plan)
        given_up = (last - first + 1 for offsets in not_read.given_up.values() for first, last in offsets)
        offsets = sum(last - first + 1 for plan in read for first, last, _ in plan.ranges)
        return offsets - sum(given_up), collector.nbytes

    def give_back(self, waited: tuple[PartitionAcks, ...] = ()) -> None:
        """Release the records that no poll has returned; their delivery does not count as a try. ``waited``:
        acknowledgements that release records taken out of ``ahead`` earlier."""
        self.release((*waited, *self._ahead.clear()))

    def leave(self) -> None:
        """Call ``close`` first. Release the records that no poll has returned, and those that the last request still
        acquires; their delivery does not count as a try."""
        self.wait_for_answer(LAST_ANSWER_S)
        self.give_back()

    def release(self, partitions: tuple[PartitionAcks, ...]) -> None:
        """Release records that no poll has returned; their delivery does not count as a try, since another member may
        be able to read them."""
        if not partitions:
            return
        try:
            self._membership.call(lambda who: Acknowledge(**who, partitions=partitions, unread=True))
        except Exception as error:  # noqa: BLE001 - their locks end
            logger.warning("could not release prefetched records; their locks will expire: %s", error)


def collector_of(partitions: Iterable[PartitionPlan], native: bool) -> RunCollector:
    """Returns a collector for the compiled reader, or for Python's."""
    if not native:
        return RunCollector(partitions)
    from share_consumer.native_messages import NativeCollector

    return NativeCollector(partitions)


class _Answer:
    """Reports the reply to the acknowledgements of one request, once."""

    def __init__(self, sending: Sending, answered: Answered) -> None:
        self.sending, self._answered = sending, answered
        self.unreported = sending

    def tell(self, errors: dict[Key, str]) -> None:
        answered, self._answered = self._answered, _ignored
        self.unreported = Sending()
        answered(errors)


def _ignored(errors: dict[Key, str]) -> None:
    """Takes a second report."""
