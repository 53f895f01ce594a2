"""A group's part of the state log: reads the group's records, and makes the next ones to write.

A group's log has the group's own records (type 100), numbered without gaps, beside Kafka's records of its share
partitions. A snapshot is a mark (type 101) and the records that rebuild the group; nothing before the snapshot is
needed. A small snapshot is one transaction, the mark first; a large one is many, the mark last. A group is loaded from
its own records; those in Kafka's formats describe the same state to Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from coordinator.core.log_records import (
    GroupDeleted,
    LogStartMoved,
    OffsetsAltered,
    PartitionInitialized,
    PartitionsForgotten,
    Record,
    RunsChanged,
)
from coordinator.core.record_codec import UnreadableRecord
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.values import SharePartitionKey
from coordinator.state_log.combiner import combine
from coordinator.state_log.foreign_records import ForeignRecords
from coordinator.state_log.owner_record import Owner, decode_owner
from coordinator.state_log.partition_log import KeyValue, PartitionLog
from coordinator.state_log.placement import PLACEMENT_KEY
from coordinator.state_log.primitives import INT32, INT64, number
from coordinator.state_log.projection import changed, project
from coordinator.state_log.record_keys import (
    GROUP_RECORD,
    GroupOwnerKey,
    GroupRecordKey,
    GroupSnapshotKey,
    GroupSnapshotPartKey,
    ShareSnapshotKey,
    ShareUpdateKey,
    decode_key,
    encode_key,
    group_of,
    key_head,
)
from coordinator.state_log.record_values import StateBatch
from coordinator.state_log.value_version import group_content_of, versioned

TRANSACTION_BYTES = 1024 * 1024
"""A snapshot is cut into transactions of about this many bytes. A large snapshot in a single transaction would take
longer than share.coordinator.write.timeout.ms where a quota, or a slow network, limits the rate."""
NUMBERS_LEFT_OUT = 2**32
"""After a snapshot in steps, the group's records are numbered from this much higher on. While the snapshot is written,
fewer records than this are appended."""
MOST_RUNS_AT_ONCE = 5_000
"""One step of a snapshot makes records in Kafka's formats for up to this many runs, which takes some milliseconds."""
MAX_OFFSET = 2**63 - 1


class Entry(NamedTuple):
    """One of the group's own records. ``data`` None: a snapshot begins here, and replaces everything before it."""

    sequence: int
    data: bytes | None


class GroupLog:
    """The state of one group's log. ``next_sequence``: the number of the group's next record; None until one was read.
    ``needed_offset``: the lowest offset in the state partition that a load of the group needs. ``is_empty``: the log
    has no record of the group's own, or none after an empty snapshot, which a deleted group leaves."""

    def __init__(self, group_id: str, *, updates_per_snapshot: int) -> None:
        self.group_id = group_id
        self.updates_per_snapshot = updates_per_snapshot
        self.partitions: dict[SharePartitionKey, PartitionLog] = {}
        self.next_sequence: int | None = None
        self.needed_offset: int | None = None
        self.is_empty = True
        self.owner: Owner | None = None
        self._owner_at: int | None = None
        self.end_offset = 0
        """The offset after the group's last record that was read."""
        self.foreign = ForeignRecords()
        self.parts: Sequence[bytes] = ()
        """The records of the last snapshot, if they came before its mark in transactions of their own."""
        self._parts: list[bytes] = []
        self._parts_of: int | None = None
        self._parts_from = 0
        self._unread_before: int | None = None
        self._record_head = key_head(GROUP_RECORD, group_id)
        self._owner_key = encode_key(GroupOwnerKey(group_id))
        self._state_keys: dict[bytes, ShareSnapshotKey | ShareUpdateKey] = {}
        """A cache of decoded keys: the two of each share partition recur."""

    def __repr__(self) -> str:
        return f"<GroupLog {self.group_id} next={self.next_sequence} needed={self.needed_offset} owner={self.owner}>"

    # --- reading

    def read(self, key: bytes | None, value: bytes | None, offset: int) -> Entry | None:
        """Apply the next record of the state partition. Returns the record if it is one of the group's own.

        Raises:
            UnreadableRecord: the record is damaged, or one of the group's records before it is missing.
            GroupStateTooNew, GroupStateTooOld: another version of sharegroup wrote the record."""
        if key is not None and key.startswith(self._record_head):
            if len(key) != len(self._record_head) + INT64.size:
                raise self._unreadable("the key of a record has another length")
            (sequence,) = INT64.unpack_from(key, len(self._record_head))
            self.end_offset = offset + 1
            return self._own(int(sequence), value, offset)
        group_id = group_of(key)
        if group_id is None and key != PLACEMENT_KEY:
            self.foreign.add(offset)
        if key is None or group_id != self.group_id:
            return None
        self.end_offset = offset + 1
        decoded = self._state_keys.get(key) or decode_key(key)
        if isinstance(decoded, (ShareSnapshotKey, ShareUpdateKey)):
            self._state_keys[key] = decoded
            self._replay_shown(key, decoded, value)
        elif isinstance(decoded, GroupSnapshotPartKey):
            self._part(decoded, value, offset)
        elif isinstance(decoded, GroupSnapshotKey):
            return self._mark(decoded.sequence, value, offset)
        elif isinstance(decoded, GroupOwnerKey):
            self.owner, self._owner_at = decode_owner(value or b"", self.group_id), offset
        return None

    def read_owner(self, key: bytes | None, value: bytes | None, offset: int) -> bool:
        """Apply the next record of the state partition, as far as it names an owner. Returns whether the record belongs
        to this group.

        Raises:
            UnreadableRecord: the owner record is damaged.
            GroupStateTooNew, GroupStateTooOld: the owner is of another version of sharegroup."""
        if group_of(key) != self.group_id:
            return False
        self.end_offset = offset + 1
        if key == self._owner_key:
            self.owner = decode_owner(value or b"", self.group_id)
        return True

    def end(self) -> None:
        """Check the log, after its last record was read. Raises UnreadableRecord if records that the group needs are
        missing at the log's beginning."""
        if self._unread_before is not None:
            raise self._unreadable(
                f"what came before record {self._unread_before} is gone, and no snapshot takes its place"
            )

    def _part(self, key: GroupSnapshotPartKey, value: bytes | None, offset: int) -> None:
        if not key.part:
            self._parts, self._parts_of, self._parts_from = [], key.sequence, offset
        if value is not None and (key.sequence, key.part) == (self._parts_of, len(self._parts)):
            self._parts.append(group_content_of(value, self.group_id))
        else:
            self._parts_of = None  # the beginning of this part's snapshot was pruned

    def _mark(self, sequence: int, value: bytes | None, offset: int) -> Entry | None:
        count = group_content_of(value or b"", self.group_id)
        self.parts, self._parts = [], self._parts if count else []
        if count:
            if self._parts_of != sequence or count != number(INT32, len(self._parts)):
                # A part of this snapshot was pruned, so a newer snapshot follows.
                self._unread_before, self.next_sequence = sequence, None
                return None
            self.parts, offset = self._parts, self._parts_from
        self._parts, self._parts_of = [], None
        self.next_sequence, self.needed_offset, self._unread_before = sequence, offset, None
        self.is_empty = not count
        return Entry(sequence, None)

    def _own(self, sequence: int, value: bytes | None, offset: int) -> Entry | None:
        if value is None:
            raise self._unreadable(f"record {sequence} has no value")
        data = group_content_of(value, self.group_id)
        if self.next_sequence is None:
            if sequence:  # the records before it were pruned: a snapshot follows
                self._unread_before = sequence if self._unread_before is None else self._unread_before
                return None
            self.needed_offset = offset if self._owner_at is None else self._owner_at
        elif sequence != self.next_sequence:
            raise self._unreadable(f"record {sequence} comes where {self.next_sequence} should")
        self.next_sequence, self.is_empty = sequence + 1, False
        return Entry(sequence, data)

    # --- writing

    def keyed(self, records: Iterable[bytes], first: int) -> list[KeyValue]:
        """The group's own records with their keys, numbered from ``first``."""
        return [
            (encode_key(GroupRecordKey(self.group_id, at)), versioned(data)) for at, data in enumerate(records, first)
        ]

    def snapshot_mark(self, sequence: int, parts: int = 0) -> KeyValue:
        """The mark of a snapshot: its first record, or, after ``parts`` parts, its last. ``sequence``: the number of
        the group's next record."""
        key = encode_key(GroupSnapshotKey(self.group_id, sequence))
        return key, versioned(number(INT32, parts) if parts else b"")

    def snapshot_parts(self, records: Sequence[bytes], sequence: int, first_part: int = 0) -> list[KeyValue]:
        """Returns the records of a snapshot as parts, numbered from ``first_part``, to be written before the mark."""
        keys = (GroupSnapshotPartKey(self.group_id, sequence, part) for part, _ in enumerate(records, first_part))
        return list(zip(map(encode_key, keys), map(versioned, records), strict=True))

    def state_records(self, group: ShareGroup, records: Sequence[Record], now_ms: int) -> list[KeyValue]:
        """The records in Kafka's formats for the changes by ``records``. The group must have replayed these."""
        batches: dict[SharePartitionKey, list[StateBatch]] = {}
        moved: set[SharePartitionKey] = set()
        anew: set[SharePartitionKey] = set()
        for record in records:
            if isinstance(record, GroupDeleted):
                anew |= set(self.partitions)
            elif isinstance(record, OffsetsAltered):
                anew |= {SharePartitionKey(record.topic_id, index) for index, _ in record.starts}
            elif isinstance(record, PartitionsForgotten):
                anew |= {SharePartitionKey(record.topic_id, index) for index in record.partitions}
            elif isinstance(record, RunsChanged):
                key = SharePartitionKey(record.topic_id, record.partition)
                if key not in group.partitions:  # it was deleted by a later record of this round
                    continue
                added = changed(group.partitions[key], record.runs).state_batches
                batches[key] = _with(batches.get(key, []), added)
            elif isinstance(record, (PartitionInitialized, LogStartMoved)):
                moved.add(SharePartitionKey(record.topic_id, record.partition))
        entries: list[KeyValue] = []
        for key in sorted(anew):
            entries += self._begun_anew(key, group.partitions.get(key), now_ms)
        for key in dict.fromkeys([*moved, *batches]):
            if key in anew or key not in group.partitions:
                continue
            if key in moved or batches[key]:
                entries += self._kafka_records(key, group.partitions[key], tuple(batches.get(key, ())), now_ms)
        return entries

    def snapshot_records(self, group: ShareGroup, now_ms: int) -> list[KeyValue]:
        """Snapshots in Kafka's formats of all share partitions."""
        entries: list[KeyValue] = []
        for key, partition in group.partitions.items():
            entries += self._partition(key).snapshot(project(partition), now_ms=now_ms)
        return entries

    def snapshot_in_steps(
        self, group: ShareGroup, records: Iterable[Sequence[bytes]], tail: list[bytes], owner: KeyValue, now_ms: int
    ) -> Iterator[list[KeyValue]]:
        """Yield the records of a snapshot that is written while the group is served. Write each list in a transaction
        of its own; where a list is empty, let the group append. ``records``: those that rebuild the group as it was
        before the first step. ``tail``: what the group appended since; the caller adds to it. ``owner`` is written
        again, since the owner record before the snapshot is pruned."""
        # The mark and its parts have the number with which the group's records go on after the mark. That number is
        # fixed before the first part, whatever is appended until the mark.
        following, parts = (self.next_sequence or 0) + NUMBERS_LEFT_OUT, 0
        for each in records:
            if each:
                yield self.snapshot_parts(each, following, parts)
                parts += len(each)
            yield []
        for shown in self._shown_in_steps(group, now_ms):
            yield shown
            self.written(shown)
            yield []
        while sum(map(len, tail)) > TRANSACTION_BYTES:
            appended, tail[:] = list(tail), ()
            yield from transactions_of(self.snapshot_parts(appended, following, parts))
            parts += len(appended)
            yield []
        mark = self.snapshot_mark(following, parts + len(tail))
        yield [*self.snapshot_parts(tail, following, parts), mark, owner]
        self.next_sequence = following

    def _shown_in_steps(self, group: ShareGroup, now_ms: int) -> Iterator[list[KeyValue]]:
        """Yield snapshots in Kafka's formats of all share partitions, each list for a transaction of its own. The group
        may change between two transactions: a snapshot has a partition's first runs as of its own transaction, and
        updates have the remaining runs as of later transactions. Of several records about an offset, the last one
        counts."""
        for key in list(group.partitions):
            partition, offset = group.partitions.get(key), 0
            # A partition that was altered or deleted meanwhile is another object, or none, and has its own records.
            while partition is not None and group.partitions.get(key) is partition:
                begin = max(offset, partition.start_offset)
                runs = list(islice(partition.runs.between(begin, MAX_OFFSET), MOST_RUNS_AT_ONCE))
                change, log = changed(partition, runs), self._partition(key)
                goes_on = offset and log.snapshot_epoch is not None
                yield log.update(change) if goes_on else log.snapshot(change, now_ms=now_ms)
                if len(runs) < MOST_RUNS_AT_ONCE:
                    break
                offset = runs[-1].last + 1

    def written(self, shown: Iterable[KeyValue]) -> None:
        """Apply these records in Kafka's formats. They must be durable."""
        for key, value in shown:
            decoded = decode_key(key)
            assert isinstance(decoded, (ShareSnapshotKey, ShareUpdateKey))
            self._replay_shown(key, decoded, value)

    def _replay_shown(self, key: bytes, decoded: ShareSnapshotKey | ShareUpdateKey, value: bytes | None) -> None:
        """Apply a record in Kafka's formats. A tombstone drops all that is kept of the share partition."""
        where = SharePartitionKey(decoded.topic_id, decoded.partition)
        self._partition(where).replay(decoded, value)
        if value is None and isinstance(decoded, ShareSnapshotKey):
            del self.partitions[where]
            self._state_keys = {known: at for known, at in self._state_keys.items() if at[1:] != decoded[1:]}

    def _begun_anew(self, key: SharePartitionKey, partition: SharePartition | None, now_ms: int) -> list[KeyValue]:
        """The records of a share partition that a person altered: a snapshot of a new state epoch, or a tombstone."""
        log = self._partition(key)
        if partition is not None:
            return log.initialize(project(partition), state_epoch=log.state_epoch + 1, now_ms=now_ms)
        return [] if log.snapshot_epoch is None else [log.delete()]

    def _kafka_records(
        self, key: SharePartitionKey, partition: SharePartition, batches: tuple[StateBatch, ...], now_ms: int
    ) -> list[KeyValue]:
        log, change = self._partition(key), changed(partition, ())._replace(state_batches=batches)
        if log.snapshot_epoch is not None and len(partition.runs) > MOST_RUNS_AT_ONCE:
            return log.update(change)  # the partition's snapshots are made in steps, with the group's
        limit = self.updates_per_snapshot
        return log.write(change, lambda: project(partition), updates_per_snapshot=limit, now_ms=now_ms)

    def _partition(self, key: SharePartitionKey) -> PartitionLog:
        log = self.partitions.get(key)
        if log is None:
            log = self.partitions[key] = PartitionLog(self.group_id, key.topic_id, key.partition)
        return log

    def _unreadable(self, reason: str) -> UnreadableRecord:
        return UnreadableRecord(group_id=self.group_id, reason=reason)


def transactions_of(entries: Sequence[KeyValue]) -> Iterator[list[KeyValue]]:
    """Yield the entries in order, in lists of about TRANSACTION_BYTES, one for each transaction."""
    part: list[KeyValue] = []
    size_bytes = 0
    for entry in entries:
        if part and size_bytes + len(entry[1] or b"") > TRANSACTION_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(entry)
        size_bytes += len(entry[1] or b"")
    yield part


def _with(batches: list[StateBatch], added: tuple[StateBatch, ...]) -> list[StateBatch]:
    """Both lists, combined. The combiner reads every batch, so it is skipped where the added batches lie after the
    others. That is the common case: the ranges that one plan completes lie before those that the next one acquires."""
    if not added or not batches or batches[-1].last_offset < added[0].first_offset - 1:
        return batches + list(added)
    return list(combine(batches, added, None))
