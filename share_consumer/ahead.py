"""The records that a ShareConsumer has acquired and that no poll has returned yet.

Rule: a record is returned only under a lock that is known to be the consumer's. If the lock has ended, or its renewal
was refused, the record is dropped. After a lapse of the session, the lock is renewed before a poll returns the record.
Thread-safe: one thread reads, one renews, and the program's thread takes records."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from coordinator.protocol.messages import PartitionAcks, PartitionPlan
from coordinator.protocol.values import AcknowledgeType
from share_consumer.membership import Joins
from share_consumer.record_runs import RecordRun, Unread, acks_of, acks_of_runs, batch, split
from share_consumer.renewal import Renewal
from share_source.executor.range_cursor import Key

LAST_OFFSET = 2**63 - 1
LEFT_OF_THE_LOCK = 0.9
"""A record's lock is renewed before a poll returns the record if less than this share of the lock's time is left."""


class Acquired:
    """The unreturned records of one acquisition, or of a part of it, acquired between ``began_s`` and ``answered_s``.
    ``until_s``: when the locks end unless they are renewed; all times are monotonic seconds. ``joins``: the session in
    which the locks were last known to be the member's."""

    def __init__(
        self, partitions: tuple[PartitionPlan, ...], began_s: float, answered_s: float, lock_s: float, joins: Joins
    ) -> None:
        self.answered_s, self.lock_s, self.joins = answered_s, lock_s, joins
        self.until_s = began_s + lock_s
        self.runs: deque[RecordRun] = deque()
        self.unread: list[Unread] = []
        self.partitions = partitions
        self._is_taken_in = False
        self._lost: list[PartitionAcks] = []

    def read(self, runs: Iterable[RecordRun], unread: list[Unread]) -> None:
        self.runs.extend(runs)
        self.unread = unread

    def take_in(self) -> list[Unread]:
        """From now on polls may return the records. Returns the offsets without a record, for the next request."""
        self._is_taken_in = True
        unread, self.unread = self.unread, []
        self.drop(self._lost)
        lost = {(acks.topic_id, acks.partition) for acks in self._lost}
        return [each for each in unread if (each.topic_id, each.key[1]) not in lost]

    def split(self, read: tuple[PartitionPlan, ...], left: tuple[PartitionPlan, ...]) -> Acquired:
        """Move the unread partitions into a new acquisition with the same locks, and return it."""
        rest = Acquired(left, self.until_s - self.lock_s, self.answered_s, self.lock_s, self.joins)
        rest._lost = list(self._lost)
        self.partitions = read
        return rest

    def ends_in_order(self, unread: Iterable[Unread]) -> dict[Key, int]:
        """Returns, by partition, the first offset that an ordered group must deliver again: it was not read, or it
        follows a batch that can't be decompressed, which is released."""
        not_read = [(each.key, each.range.first) for each in unread if each.kind == AcknowledgeType.RELEASE]
        released = [(run.key, run.last + 1) for run in self.runs if run.outcome == AcknowledgeType.RELEASE]
        return dict(sorted([*not_read, *released], reverse=True))  # the lowest of a partition comes last, and stays

    def cut(self, ends: Mapping[Key, int]) -> tuple[PartitionAcks, ...]:
        """Drop the records from these offsets on. Returns the acknowledgements that release them."""
        self.partitions, later = split(self.partitions, ends)
        released = acks_of(later, AcknowledgeType.RELEASE)
        self.drop(released)
        return released

    def acks(self, kind: AcknowledgeType) -> tuple[PartitionAcks, ...]:
        return acks_of_runs(self.runs, kind) if self._is_taken_in else acks_of(self.partitions, kind)

    def renewed(self, renewal: Renewal, lost: list[PartitionAcks]) -> None:
        """Apply the reply to a renewal: the locks last until ``renewal.until_s``, and the records in the refused ranges
        ``lost`` are dropped."""
        if self.answered_s > renewal.began_s:
            return  # the renewal may not have named it
        self._lost += lost
        if self._is_taken_in:
            self.drop(self._lost)
        self.until_s, self.joins = max(self.until_s, renewal.lasts_until_s(self.partitions)), renewal.joins

    def drop_later(self, gone: PartitionAcks) -> None:
        """Drop what was given back, also of what is not read yet."""
        self._lost.append(gone)
        if self._is_taken_in:
            self.drop(self._lost)

    def drop(self, gone: Iterable[PartitionAcks]) -> None:
        """Drop the records of these ranges. A run can be shortened at its front only. So a run is dropped as a whole
        where a range covers some of its records, but not the first one."""
        for acks in gone:
            for lost in acks.batches:
                for run in self.runs:
                    if (run.topic_id, run.key[1]) != (acks.topic_id, acks.partition):
                        continue
                    if run.first <= lost.last and lost.first <= run.last:
                        run.skip_to(min(lost.last, run.last) + 1 if lost.first <= run.first else run.last + 1)
        self.runs = deque(run for run in self.runs if len(run))


class Ahead:
    """The acquisitions of one consumer, in order."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._reading: Acquired | None = None
        self._rest: Acquired | None = None
        self._waiting: deque[Acquired] = deque()

    @property
    def records(self) -> int:
        with self._changing:
            return sum(len(run) for each in self._waiting for run in each.runs)

    def begin(self, acquired: Acquired) -> None:
        with self._changing:
            self._reading = acquired

    @property
    def has_rest(self) -> bool:
        """Whether an acquisition was read only in part. Its rest is read before anything else is acquired."""
        return self._rest is not None

    def split(self, acquired: Acquired, read: tuple[PartitionPlan, ...], left: tuple[PartitionPlan, ...]) -> None:
        """Record that only a part was read. The rest is read next, and its locks are renewed, unless the whole
        acquisition was released meanwhile."""
        with self._changing:
            if self._reading is acquired:
                self._rest = acquired.split(read, left)

    def begin_rest(self, now_s: float, joins: Joins) -> Acquired | None:
        """Returns the rest of an acquisition to read; None if its locks may have ended."""
        with self._changing:
            rest, self._rest = self._rest, None
            if rest is not None and now_s < rest.until_s and rest.joins == joins:
                self._reading = rest
                return rest
            return None

    def take_in(self, acquired: Acquired, now_s: float) -> list[Unread]:
        """Polls may return the acquisition's records now. Returns offsets without one; none if its locks have ended."""
        with self._changing:
            self._reading = None
            unread = acquired.take_in()
            if acquired not in self._waiting:
                for each in self._waiting:  # a later delivery of a record: its earlier lock is over
                    each.drop(acquired.acks(AcknowledgeType.RENEW))
                self._waiting.append(acquired)
            return unread if now_s < acquired.until_s else []

    def needs_renewal(self, now_s: float, joins: Joins, lives_until_s: float) -> bool:
        """Whether the locks of the next records must be renewed before a poll returns the records, since the locks are
        old, or since the session may have lapsed."""
        with self._changing:
            return any(
                each.joins != joins or now_s >= min(lives_until_s, each.until_s - LEFT_OF_THE_LOCK * each.lock_s)
                for each in self._waiting
                if each.runs
            )

    def look(self, most: int, now_s: float, joins: Joins) -> list[RecordRun]:
        """Returns up to ``most`` of the next records, as parts of runs; call :meth:`remove` to take them. Drops records
        that may no longer be the consumer's."""
        with self._changing:
            self._waiting = deque(e for e in self._waiting if e.runs and now_s < e.until_s and e.joins == joins)
            return list(_parts((run for each in self._waiting for run in each.runs), most))

    def remove(self, parts: Iterable[RecordRun]) -> None:
        with self._changing:
            for part in parts:
                if part.source is not None:
                    part.source.skip_to(part.last + 1)
            while self._waiting:
                runs = self._waiting[0].runs
                while runs and not len(runs[0]):
                    runs.popleft()
                if runs:
                    return
                self._waiting.popleft()

    def renewals(self) -> tuple[PartitionAcks, ...]:
        with self._changing:
            return tuple(acks for each in self._all() for acks in each.acks(AcknowledgeType.RENEW))

    def renewed(self, renewal: Renewal, lost: list[PartitionAcks]) -> None:
        with self._changing:
            for each in self._all():
                each.renewed(renewal, lost)

    def given_back(self, topic_id: str, partition: int, offset: int) -> None:
        """Drop the records after ``offset``: in an ordered group its release gives them back."""
        later = batch(offset + 1, LAST_OFFSET, 0, AcknowledgeType.RELEASE)
        gone = PartitionAcks(topic_id=topic_id, partition=partition, batches=(later,))
        with self._changing:
            for each in self._all():
                each.drop_later(gone)

    def cut(self, acquired: Acquired, ends: Mapping[Key, int]) -> tuple[PartitionAcks, ...]:
        """Drop the acquisition's records from these offsets on, also in what is not read yet. Returns the
        acknowledgements that release them."""
        with self._changing:
            released = acquired.cut(ends)
            if self._rest is not None:
                released += self._rest.cut(ends)
                self._rest = self._rest if self._rest.partitions else None
            return released

    def forget(self, acquired: Acquired) -> tuple[PartitionAcks, ...]:
        with self._changing:
            self._reading = None
            return acquired.acks(AcknowledgeType.RELEASE)

    def clear_waiting(self) -> tuple[PartitionAcks, ...]:
        with self._changing:
            waiting, self._waiting = self._waiting, deque()
            return tuple(acks for each in waiting for acks in each.acks(AcknowledgeType.RELEASE))

    def clear(self) -> tuple[PartitionAcks, ...]:
        with self._changing:
            released = tuple(acks for each in self._all() for acks in each.acks(AcknowledgeType.RELEASE))
            self._reading = self._rest = None
            self._waiting.clear()
            return released

    def _all(self) -> Iterator[Acquired]:
        yield from self._waiting
        yield from filter(None, (self._reading, self._rest))


def _parts(runs: Iterable[RecordRun], most: int) -> Iterator[RecordRun]:
    for run in runs:
        if most <= 0:
            return
        if len(run):
            yield (part := run.part(most))
            most -= len(part)
