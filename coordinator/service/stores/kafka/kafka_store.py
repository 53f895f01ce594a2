"""One partition of the state topic as a store. To load a group, it fences the former owner and writes its own owner
record.

Rule: only the producer that the load opened, and that fenced every earlier producer, writes to the group. After an
append whose outcome is unknown the group is closed, and the next load finds the outcome out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

import msgspec
from tenacity import retry_if_result, wait_fixed

from coordinator.core.record_codec import UnreadableRecord
from coordinator.core.share_group import ShareGroup
from coordinator.kafka.record_headers import headers_of
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import (
    GroupStateTooNew,
    GroupStateTooOld,
    ShareGroupError,
    StateRecordUnreadable,
    StateTopicMissing,
    StateTopicNotAuthorized,
    StateTransactionOpen,
)
from coordinator.protocol.host_errors import OwnerMissing
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.process.clock import now_s
from coordinator.service.stores.kafka.group_writer import Fenced, GroupWriter, LogShrunk
from coordinator.service.stores.kafka.hanging_transaction import OpenTransaction, abort_left
from coordinator.service.stores.kafka.log_reader import LogReader, ReadBlocked
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.store import (
    Append,
    StoredRecord,
    StoreFenced,
    StoreOutcomeUnknown,
    StorePartlyFailed,
    StoreRefused,
)
from coordinator.state_log.foreign_records import ForeignRecords
from coordinator.state_log.group_log import GroupLog, transactions_of
from coordinator.state_log.owner_record import PATIENCE_S, Owner, encode_owner
from coordinator.state_log.partition_log import KeyValue
from coordinator.state_log.record_keys import GroupOwnerKey, encode_key
from coordinator.state_log.transaction_size import LastTransaction

MEMORY_ANSWER_S = 5.0
"""An answer from memory is allowed for this many seconds after an append: Kafka takes longer to give a partition to
another process."""
NEW_OWNER_S = 1.0
"""After it has fenced this process, a new owner has this many seconds to write its owner record."""
PARALLEL_APPENDS = 8
"""The transactions of up to this many groups run at the same time: each group has its own producer."""
FOREIGN = "that belong to no share group, at offsets {first} to {last}: another program writes to the state topic"
COPIES = (
    "that are dead letters or were redriven, at offsets {first} to {last}: a dead letter topic or a redrive named the "
    "state topic, and an earlier version of sharegroup, or another program, wrote there"
)
"""The skipped records, in words."""
TAKEN = {
    "released": "which gave it up",
    "replaced": "which this process replaces",
    "silent": "which does not answer, or can't be asked",
}
"""Why a group may be taken from its owner, in words."""
_PAUSE = wait_fixed(0.05)

_log = logging.getLogger(__name__)


CALM = 10
"""A snapshot that an owner writes after this many times its patience resets the patience to the least."""


class _OpenGroup:
    """A group that this process has loaded and may append to."""

    __slots__ = ("_loaded_s", "confirmed_s", "end", "kept", "loaded_to", "log", "owner", "writer")

    def __init__(self, log: GroupLog, writer: GroupWriter, loaded_to: int, confirmed_s: float, owner: Owner) -> None:
        self.log, self.writer, self.loaded_to, self.confirmed_s = log, writer, loaded_to, confirmed_s
        self.owner = owner
        """This process, with the tenure of the load."""
        self.end = loaded_to
        """The partition is at least this long: the offset after the last record that this process knows of."""
        self.kept = False
        """Whether no other process has owned the group since this process loaded it before."""
        self._loaded_s = now_s()

    def calm_owner(self) -> Owner:
        """The owner. If it has lasted for CALM times its patience, it has the least patience again."""
        if now_s() - self._loaded_s > CALM * self.owner.patience_s > CALM * PATIENCE_S:
            self.owner = msgspec.structs.replace(self.owner, patience_s=PATIENCE_S)
        return self.owner


class _Inspection(NamedTuple):
    """The result of an inspection of a group's log: whether the log is empty, the offset up to which it was read, the
    group's last transaction, its owner, and the offset after its last record."""

    is_empty: bool
    position: int
    last: LastTransaction
    owner: Owner | None
    end: int


class KafkaStore:
    """A :class:`~coordinator.service.stores.store.Store` over one partition of the state topic."""

    def __init__(
        self,
        topic: StateTopic,
        partition: int,
        ownership: LivingOwner,
        *,
        updates_per_snapshot: int,
        on_missing: Callable[[], None] = lambda: None,
        on_taken: Callable[[str], None] = lambda why: None,
    ) -> None:
        """``on_missing`` is called when the topic is deleted, or created again; ``on_taken`` with the reason, a key of
        TAKEN, when a group is loaded that another process owned."""
        self.partition = partition
        self.topic = topic
        self._topic, self._ownership, self._on_missing, self._on_taken = topic, ownership, on_missing, on_taken
        self._topic_error: ShareGroupError | None = None
        self._held_back: tuple[frozenset[str], int] = frozenset(), 0
        self._updates_per_snapshot = updates_per_snapshot
        self._open: dict[str, _OpenGroup] = {}
        self._claimed: set[str] = set()
        self._needed: dict[str, int] = {}
        self._served_before: set[str] = set()
        self._fences: dict[str, int] = {}  # by programs that wrote no owner record
        self._mine: set[str] = set()  # groups that no other process has owned since the last load here
        self._foreign_to: dict[str, int] = {}
        self._open_transaction = OpenTransaction(topic, partition)
        self._append_threads: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"<KafkaStore {self.name} groups={len(self._open)}>"

    @property
    def name(self) -> str:
        return f"{self._topic.name}-{self.partition}"

    @property
    def served(self) -> frozenset[str]:
        """Groups that are open now. Any thread may call it."""
        return frozenset(self._open)

    @property
    def prunes(self) -> bool:
        """Whether this process has served a group of the partition, and so keeps it short, as only owners do."""
        return bool(self._served_before)

    # --- called from other threads

    @property
    def holding_back(self) -> frozenset[str]:
        """The groups that :meth:`hold_back` named last, without those that have a new snapshot since."""
        groups, below = self._held_back
        return frozenset(group_id for group_id in groups if self._needed.get(group_id, below - 1) < below)

    def hold_back(self, groups: frozenset[str], below: int) -> None:
        """Record that these groups' snapshots lie below this offset: older records of others can't be pruned."""
        self._held_back = groups, below

    def topic_is_gone(self, error: ShareGroupError) -> None:
        """Stop serving since the topic is deleted. Every request from now on fails with ``error``."""
        self._topic_error = error

    # --- taking a group

    def claim(self, group_id: str) -> None:
        self._claimed.add(group_id)

    def load(self, group_id: str) -> Iterator[StoredRecord]:
        claimed = group_id in self._claimed
        self._claimed.discard(group_id)  # even if the load fails: the next load may be for a request without a claim
        try:
            if self._topic_error is not None:
                raise self._topic_error
            self._topic.verify()
            yield from self._load(group_id, claimed=claimed)
        except StateTopicMissing:
            self._on_missing()
            raise

    def _load(self, group_id: str, *, claimed: bool) -> Iterator[StoredRecord]:
        self.release(group_id)
        self._open_transaction.end_if_hanging()
        # Inspected before the fence, even if the group is claimed, to refuse a format that this version can't read.
        seen = self._inspect(group_id, may_take=claimed)
        if seen.owner is not None and self._is_gone(seen.owner):
            abort_left(self._topic, self.partition, seen.owner)
        self._refuse_while_open(group_id, may_end=True)
        if seen.is_empty and not claimed:
            return  # the group does not exist
        log = self._new_log(group_id)
        writer = GroupWriter(self._topic, self.partition, group_id)
        try:
            writer.connect()
            if self._topic.offset(self.partition, LATEST) > seen.position:
                # A third host may have taken the group meanwhile: do not fence a living owner.
                seen = self._inspect(group_id, seen, may_take=claimed)
            writer.fence()
            if not claimed or self._topic.offset(self.partition, LATEST) > seen.position:
                seen = self._inspect(group_id, seen, may_take=claimed)  # another coordinator may have written since
            if seen.owner is None or seen.owner.process != self._ownership.me.process:
                self._mine.discard(group_id)
            begun_s = now_s()
            owner = self._ownership.new_owner(seen.owner, had=group_id in self._served_before)
            self._write_first(writer, [_owner_record(group_id, owner)], aborts=seen.last.is_cut)
            loaded_to = yield from self._read(log)
            if log.owner is not None and log.owner.process != self._ownership.me.process:
                raise self._ownership.lost(group_id, log.owner)  # another coordinator took the group during the read
        except StateTopicNotAuthorized as denied:
            writer.close()
            if seen.owner is None or seen.owner.installation_id == self._ownership.me.installation_id:
                raise
            what = str(denied.fields["what"]).replace(" it", f" {self._topic.name}", 1)
            raise OwnerMissing(group_id=group_id, owner=str(seen.owner), what=what) from None
        except BaseException:
            writer.close()
            raise
        self._open[group_id] = open_ = _OpenGroup(log, writer, loaded_to, begun_s, owner)
        open_.kept = group_id in self._mine
        self._mine.add(group_id)
        self._served_before.add(group_id)
        if log.needed_offset is not None:
            self._needed[group_id] = log.needed_offset
        _log.info("group loaded: group=%s %s to %d%s", group_id, self.name, loaded_to, self._why_taken(seen.owner))

    def peek(self, group_id: str) -> Iterator[StoredRecord] | None:
        return self._peeked(self._new_log(group_id))

    def tenure(self, group_id: str) -> str:
        open_ = self._open.get(group_id)
        return "" if open_ is None else open_.owner.tenure

    def kept(self, group_id: str) -> bool:
        open_ = self._open.get(group_id)
        return open_ is not None and open_.kept

    def release(self, group_id: str) -> None:
        if (open_ := self._open.pop(group_id, None)) is not None:
            open_.writer.close()

    def give_up(self, group_id: str, are_away: threading.Event | None = None) -> None:
        """As in Store. ``are_away``: an event that unreachable brokers set, so that a process that gives up all its
        groups waits for them once."""
        open_ = self._open.get(group_id)
        if open_ is not None and self._topic_error is None and not (are_away and are_away.is_set()):
            try:
                released = msgspec.structs.replace(open_.owner, released=True)
                open_.writer.write([_owner_record(group_id, released)], end=open_.end)
            except Fenced:
                pass  # a newer owner has it
            except Exception as error:  # noqa: BLE001 - it is closed all the same
                _log.info("closed a group without a record that it has no owner: group=%s %s", group_id, error)
                if are_away is not None:
                    are_away.set()
        self.release(group_id)

    def close(self) -> None:
        are_away = threading.Event()
        with ThreadPoolExecutor(PARALLEL_APPENDS, thread_name_prefix=f"share-release-{self.partition}") as threads:
            for group_id in list(self._open):
                threads.submit(self.give_up, group_id, are_away)
        if self._append_threads is not None:
            self._append_threads.shutdown()

    # --- writing

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        if len(appends) == 1:
            ((group_id, append),) = appends.items()
            self._append(group_id, append, now_ms)
            return
        if self._append_threads is None:
            self._append_threads = ThreadPoolExecutor(
                PARALLEL_APPENDS, thread_name_prefix=f"share-append-{self.partition}"
            )
        submit = self._append_threads.submit
        begun = {group_id: submit(self._append, group_id, each, now_ms) for group_id, each in appends.items()}
        failed = {group_id: error for group_id, done in begun.items() if (error := done.exception()) is not None}
        if failed:
            raise StorePartlyFailed(
                {g: e if isinstance(e, Exception) else StoreOutcomeUnknown(repr(e)) for g, e in failed.items()}
            )

    def must_prove(self, group_id: str) -> bool:
        open_ = self._open.get(group_id)
        if open_ is None or self._topic_error is not None:
            return True
        return now_s() - open_.confirmed_s > MEMORY_ANSWER_S

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        group_id, open_ = group.group_id, self._opened(group.group_id)
        log, first = open_.log, open_.log.next_sequence or 0
        shown = log.snapshot_records(group, now_ms)
        begun_s = now_s()
        # The snapshot includes the owner record, since pruning deletes the earlier one.
        owner = _owner_record(group_id, open_.calm_owner())
        transactions = list(transactions_of([*log.snapshot_parts(data, first), *shown]))
        if len(transactions) == 1:
            offset = self._write_snapshot(
                group_id, open_, [log.snapshot_mark(first), owner, *log.keyed(data, first), *shown]
            )
            log.next_sequence = first + len(data)
        else:
            offsets = [self._write_snapshot(group_id, open_, each) for each in transactions]
            begun_s = now_s()
            self._write_snapshot(group_id, open_, [log.snapshot_mark(first, len(data)), owner])
            log.next_sequence, offset = first, offsets[0]
        log.needed_offset, log.is_empty = offset, not data
        self._needed[group_id] = offset
        log.written(shown)
        open_.confirmed_s = begun_s

    def snapshot_in_steps(
        self, group: ShareGroup, data: Iterator[Sequence[bytes]], tail: list[bytes], now_ms: int
    ) -> Iterator[None]:
        group_id, offset = group.group_id, None
        open_ = self._opened(group_id)
        for entries in open_.log.snapshot_in_steps(
            group, data, tail, _owner_record(group_id, open_.calm_owner()), now_ms
        ):
            if not entries:
                yield
                continue
            if self._opened(group_id) is not open_:
                raise StoreRefused(f"{group_id} was loaded again during its snapshot")
            begun_s = now_s()
            written_at = self._write_snapshot(group_id, open_, entries)
            offset = written_at if offset is None else offset
            open_.confirmed_s = begun_s
        assert offset is not None
        open_.log.needed_offset = self._needed[group_id] = offset

    def passed_over(self, foreign: ForeignRecords, what: str = FOREIGN) -> None:
        """Log once that the partition holds records of no group. Any thread may call it."""
        if foreign.last > self._foreign_to.get(what, -1):
            self._foreign_to[what] = foreign.last
            _log.warning(
                "records passed over: %s has %d record(s) %s",
                *(self.name, foreign.count, what.format(first=foreign.first, last=foreign.last)),
            )

    # --- inside: reading

    def _peeked(self, log: GroupLog) -> Iterator[StoredRecord]:
        """Yield the group's records, of a log that this process does not take. If another host's coordinator owns the
        group, no open transaction is waited for: the owner is asked first, and may be gone. Raises OwnedElsewhere if
        another host's coordinator owns the group, and may live: it knows more."""
        stable = self._topic.offset(self.partition, LATEST, read_committed=True)
        is_open, is_foreign = stable < self._topic.offset(self.partition, LATEST), False
        if is_open:
            seen = self._inspected(log.group_id)
            is_foreign = seen.owner is not None and self._ownership.check_look(log.group_id, seen.owner, seen.end)
            if not is_foreign:
                self._refuse_while_open(log.group_id)
        yield from self._read(log, stable if is_foreign else None)
        if log.owner is not None:
            self._ownership.check_look(log.group_id, log.owner, log.end_offset)

    def _check_owner(self, group_id: str, owner: Owner | None, end: int, *, claims: bool) -> None:
        had = group_id in self._served_before
        self._ownership.check(group_id, owner, had=had, claims=claims, end=end)

    def _is_gone(self, owner: Owner) -> bool:
        """Whether this owner is gone. A released owner still gives up others; one that can't be asked may live."""
        return bool(owner.answers) and not owner.released and owner.process != self._ownership.me.process

    def _new_log(self, group_id: str) -> GroupLog:
        return GroupLog(group_id, updates_per_snapshot=self._updates_per_snapshot)

    def _read(self, log: GroupLog, end: int | None = None) -> Generator[StoredRecord, None, int]:
        """Yield the group's committed records up to ``end`` (None: the partition's). Returns the reached offset."""
        start, is_empty = self._needed.get(log.group_id), True
        reading = self._read_from(log, start, end)
        while True:
            try:
                record = next(reading)
            except StopIteration as read:
                if not is_empty or start is None:
                    return cast(int, read.value)
                # The partition has lost its end, and with it the snapshot that was needed: read what is left.
                self._needed.pop(log.group_id, None)
                start, reading = None, self._read_from(log, None, end)
            else:
                is_empty = False
                yield record

    def _read_from(self, log: GroupLog, start: int | None, end: int | None) -> Generator[StoredRecord, None, int]:
        with LogReader(self._topic, self.partition, start=start) as reader:
            try:
                yield from self._read_to(log, reader, reader.end() if end is None else end)
            except ReadBlocked as open_:
                self._open_transaction.blocked(open_)
                raise self._transaction_open(log.group_id, open_.offset) from None
            self.passed_over(log.foreign)
            self.passed_over(reader.copies, COPIES)
            try:
                log.end()
            except UnreadableRecord as error:
                raise self._unreadable(log, "at its beginning", error, reader) from error
            return reader.position

    def _read_to(self, log: GroupLog, reader: LogReader, end: int) -> Iterator[StoredRecord]:
        read = log.read
        for message in reader.read_to(end):
            try:
                entry = read(message.key(), message.value(), message.offset())
            except UnreadableRecord as error:
                raise self._unreadable(log, f"at offset {message.offset()}", error, reader) from error
            if entry is not None:
                yield StoredRecord(message.offset(), entry.data)
                if entry.data is None:
                    yield from (StoredRecord(message.offset(), part) for part in log.parts)

    def _refuse_while_open(self, group_id: str, *, may_end: bool = False) -> None:
        """Fail at once while the transaction that blocked an earlier read is still open: another wait would stop the
        service of the other groups. ``may_end``: the caller is a load, which ends a transaction of its own group.
        Raises StateTransactionOpen if the transaction is still open."""
        offset = self._open_transaction.offset()
        if offset is not None and not (may_end and self._open_transaction.is_of(group_id)):
            raise self._transaction_open(group_id, offset)

    def _transaction_open(self, group_id: str, offset: int) -> StateTransactionOpen:
        return StateTransactionOpen(
            partition=self.partition,
            topic=self._topic.name,
            offset=offset,
            group_id=group_id,
            addresses=self._topic.bootstrap_servers,
        )

    def _inspect(self, group_id: str, seen: _Inspection | None = None, *, may_take: bool = False) -> _Inspection:
        """As :meth:`_inspected`, of a group that this process may take. ``may_take``: a new member asks for the group
        here.

        Raises:
            GroupTakenOver, NotCoordinator: another coordinator owns the group.
            GroupStateTooNew, GroupStateTooOld: the owner is of another version of sharegroup."""
        found = self._inspected(group_id, seen)
        if not found.is_empty:
            self._check_owner(group_id, found.owner, found.end, claims=may_take)
        return found

    def _inspected(self, group_id: str, seen: _Inspection | None = None) -> _Inspection:
        """Read in the group's log whether the group exists and who owns it. Uncommitted records count: their producer
        has fenced every earlier one. ``seen``: an earlier inspection, which is continued from its position. Raises
        GroupStateTooNew or GroupStateTooOld if the owner is of another version of sharegroup."""
        log = self._new_log(group_id)
        is_empty, last = (True, LastTransaction()) if seen is None else (seen.is_empty, seen.last)
        start = self._needed.get(group_id) if seen is None else seen.position
        with LogReader(self._topic, self.partition, start=start, committed=False) as reader:
            for message in reader.read_to(reader.end()):
                try:
                    if log.read_owner(message.key(), message.value(), message.offset()):
                        is_empty = False
                        last.add(headers_of(message))
                except UnreadableRecord as error:
                    raise self._unreadable(log, f"at offset {message.offset()}", error, reader) from error
            if is_empty and seen is None and self._needed.pop(group_id, None) is not None:
                # The partition lost its end, and records of other groups have the offsets of this group's snapshot.
                return self._inspected(group_id)
            if log.owner is not None and log.owner.process != self._ownership.me.process:
                self._needed.pop(group_id, None)  # it is from before: the log that this owner needs may begin earlier
            owner, end = log.owner, log.end_offset
            if seen is not None:
                owner, end = owner or seen.owner, max(end, seen.end)
            return _Inspection(is_empty, reader.position, last, owner, end)

    def _unreadable(
        self, log: GroupLog, position: str, error: UnreadableRecord, reader: LogReader
    ) -> StateRecordUnreadable | StoreRefused:
        if reader.was_pruned:
            return StoreRefused(f"{self.name} was pruned while it was read")
        return StateRecordUnreadable(
            sequence=position, group_id=log.group_id, path=self.name, reason=error.fields.get("reason")
        )

    def _newest_owner(self, group_id: str, open_: _OpenGroup) -> Owner | None:
        """Returns the owner that has fenced this process; None if no owner record comes within NEW_OWNER_S."""
        log = self._new_log(group_id)
        with LogReader(self._topic, self.partition, start=open_.loaded_to, committed=False) as reader:

            def look() -> Owner | None:
                for message in reader.read_to(reader.end()):
                    log.read_owner(message.key(), message.value(), message.offset())
                is_new = log.owner is not None and log.owner.process != self._ownership.me.process
                return log.owner if is_new else None

            newest: Owner | None = retry_until(NEW_OWNER_S, _PAUSE, retry_if_result(lambda owner: owner is None))(look)
            return newest

    # --- inside: writing

    def _why_taken(self, before: Owner | None) -> str:
        """Why the group could be taken from this owner, in words for the log; empty if it was new or this process's."""
        me = self._ownership.me
        if before is None or before.process == me.process:
            return ""
        is_successor = before.installation_id == me.installation_id
        why = "released" if before.released else "replaced" if is_successor else "silent"
        self._on_taken(why)
        return f", taken from {before}, {TAKEN[why]}"

    def _opened(self, group_id: str) -> _OpenGroup:
        if self._topic_error is not None:
            raise StoreRefused(str(self._topic_error))
        open_ = self._open.get(group_id)
        if open_ is None:
            raise StoreRefused(f"{group_id} is not loaded from {self.name}")
        return open_

    def _append(self, group_id: str, append: Append, now_ms: int) -> None:
        """Append the records, or an owner record if there are none. A group's first records are written together with
        its owner record, a second time. The first ones after a deletion are also written with an empty snapshot,
        because earlier records may be pruned by now."""
        open_ = self._opened(group_id)
        log, first = open_.log, open_.log.next_sequence or 0
        shown = log.state_records(append.group, append.records, now_ms)
        begun_s = now_s()
        entries = [*log.keyed(append.data, first), *shown]
        is_first = log.is_empty and bool(append.data)
        if is_first or not entries:
            entries.insert(0, _owner_record(group_id, open_.owner))
        if is_first and first:
            entries.insert(0, log.snapshot_mark(first))
        offset = self._write_transaction(group_id, open_, entries)
        if is_first:
            log.needed_offset = self._needed[group_id] = offset
            log.is_empty = False
        log.next_sequence = first + len(append.data)
        log.written(shown)
        open_.confirmed_s = begun_s

    def _write_snapshot(self, group_id: str, open_: _OpenGroup, entries: Sequence[KeyValue]) -> int:
        try:
            return self._write_transaction(group_id, open_, entries)
        except StoreRefused as refused:  # the next load finds out whether a hanging append before it was aborted, too
            raise StoreOutcomeUnknown(str(refused)) from None

    def _write_transaction(self, group_id: str, open_: _OpenGroup, entries: Sequence[KeyValue]) -> int:
        try:
            offset = open_.writer.write(entries, end=open_.end)
            open_.end = max(open_.end, offset + len(entries))
            return offset
        except LogShrunk as shrunk:
            _log.error("the end of %s is lost: %s; loading what is left: group=%s", self.name, shrunk, group_id)
            self._needed.clear()  # snapshots may be lost with it: the whole log is scanned again for each group
            raise StoreOutcomeUnknown(str(shrunk)) from None
        except Fenced as fenced:
            try:
                owner = self._newest_owner(group_id, open_)
            except (GroupStateTooNew, GroupStateTooOld) as error:
                _log.warning("this process was fenced: group=%s by another version (%s)", group_id, fenced)
                raise StoreFenced(error) from None
            by = owner or self._by_nobody(group_id, open_)
            _log.warning("this process was fenced: group=%s by %s (%s)", group_id, by, fenced)
            if owner is None:  # no other process: the broker ended a transaction that took too long
                raise StoreOutcomeUnknown(str(fenced)) from None
            raise StoreFenced(self._ownership.lost(group_id, owner)) from None

    def _by_nobody(self, group_id: str, open_: _OpenGroup) -> str:
        """Returns who fenced this process without an owner record, in words for the log."""
        self._fences[group_id] = count = self._fences.get(group_id, 0) + 1
        if count == 1:
            return "the brokers, or by a coordinator that has written nothing yet"
        return (
            f"no coordinator, {count} times by now: where the brokers are not slow, another program uses the id "
            f"{open_.writer.transactional_id}, on which only the coordinators' principal may have Write"
        )

    def _write_first(self, writer: GroupWriter, entries: Sequence[KeyValue], *, aborts: bool) -> None:
        """Write the entries. That commits what the log has of the group's open transaction. ``aborts``: the log has
        only a part of that transaction, so abort it first."""
        try:
            if aborts:
                writer.abort(entries)
            writer.write(entries)
        except Fenced as fenced:
            raise StoreRefused(f"another process took the group just now: {fenced}") from None


def _owner_record(group_id: str, owner: Owner) -> KeyValue:
    return encode_key(GroupOwnerKey(group_id)), encode_owner(owner)
