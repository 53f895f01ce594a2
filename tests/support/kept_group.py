"""A group and the partition of the state topic that has it: what tests of a group's log begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.core.looks.snapshot import GroupCut, snapshot_of
from coordinator.core.record_codec import UnreadableRecord, decode_record, encode_records
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import SharePartitionKey
from coordinator.state_log.group_log import GroupLog
from coordinator.state_log.owner_record import Owner, encode_owner
from coordinator.state_log.partition_log import KeyValue
from coordinator.state_log.projection import project
from coordinator.state_log.record_keys import GroupOwnerKey, ShareSnapshotKey, ShareUpdateKey, decode_key, encode_key
from coordinator.state_log.record_values import ShareSnapshotValue
from tests.kip932.consumers import ACCEPT, REJECT, RELEASE, ShareConsumers
from tests.support.group_driver import durable_state
from tests.support.state_records import TOPIC_ID, state_after

GROUP = "billing"
OTHERS = "billing-2"
OWNER = Owner(installation_id="i", process="p", host="h", pid=1)
MARKER = 1
"""A transaction ends with a marker, which takes an offset."""


class Kept(ShareConsumers):
    """A group and the partition of the state topic that it would lie in, as the Kafka store writes it: every command,
    or snapshot, is one transaction. The topic id is a real one, since Kafka's keys have room for nothing else."""

    topic_id = TOPIC_ID

    def __init__(self, *, updates_per_snapshot: int = 500, **fields: Any) -> None:
        self.now_ms = 0
        self.written: list[tuple[int, bytes | None, bytes | None]] = []
        self.end = 0
        self.updates_per_snapshot = updates_per_snapshot
        self.live = self.new_log()
        self.kafkas: dict[SharePartitionKey, ShareSnapshotValue] = {}
        self.tail: list[bytes] | None = None
        super().__init__(**fields)

    def new_log(self) -> GroupLog:
        return GroupLog(GROUP, updates_per_snapshot=self.updates_per_snapshot)

    # --- the store's part

    def append(self, records: Any) -> None:
        durable = [record for record in records if record.durable]
        super().append(records)
        if not durable:
            return
        own = encode_records(durable)
        shown = self.live.state_records(self.group, durable, self.now_ms)
        first = self.live.next_sequence or 0
        offset = self.write([*self.live.keyed(own, first), *shown])
        if self.live.needed_offset is None:
            self.live.needed_offset = offset
        if self.tail is not None:
            self.tail += own
        self.wrote(first + len(own), shown)

    def snapshot_in_steps(self, most_runs: int) -> Iterator[None]:
        """The group may go on wherever this yields."""
        self.tail = []
        steps = (encode_records(records) for records in GroupCut(self.group).steps(most_runs))
        owner, first = (encode_key(GroupOwnerKey(GROUP)), encode_owner(OWNER)), None
        for entries in self.live.snapshot_in_steps(self.group, steps, self.tail, owner, self.now_ms):
            if entries:
                offset = self.write(entries)
                first = offset if first is None else first
                self._take_in(entries)
            else:
                self.check_load()
                yield
        self.tail, self.live.needed_offset, self.live.owner = None, first, OWNER
        self.check_log()

    def snapshot(self) -> None:
        own = encode_records(snapshot_of(self.group))
        shown = self.live.snapshot_records(self.group, self.now_ms)
        first = self.live.next_sequence or 0
        self.live.needed_offset = self.write([self.live.snapshot_mark(first), *self.live.keyed(own, first), *shown])
        self.wrote(first + len(own), shown)

    def wrote(self, next_sequence: int, shown: list[KeyValue]) -> None:
        self.live.next_sequence = next_sequence
        self.live.written(shown)
        self._take_in(shown)
        if self.tail is None:
            self.check_log()
        else:
            self.check_load()

    def _take_in(self, entries: list[KeyValue]) -> None:
        """Kafka's tools read the records in Kafka's format."""
        for key, value in entries:
            known = decode_key(key)
            if isinstance(known, (ShareSnapshotKey, ShareUpdateKey)):
                at = SharePartitionKey(known.topic_id, known.partition)
                if value is None:
                    del self.kafkas[at]
                else:
                    self.kafkas[at] = state_after(self.kafkas.get(at), key, value)

    def write(self, entries: list[KeyValue]) -> int:
        """The offset of the first."""
        first = self.end
        self.put(*entries)
        self.end += MARKER
        return first

    def put(self, *entries: tuple[bytes | None, bytes | None]) -> None:
        for key, value in entries:
            self.written.append((self.end, key, value))
            self.end += 1

    def parts_of_a_snapshot(self) -> list[KeyValue]:
        """The parts of a snapshot, which are written before its mark."""
        return self.live.snapshot_parts(encode_records(snapshot_of(self.group)), self.live.next_sequence or 0)

    def snapshot_in_parts(self) -> None:
        """Each part is a transaction of its own, and the mark is the last one."""
        parts, first = self.parts_of_a_snapshot(), self.end
        shown = self.live.snapshot_records(self.group, self.now_ms)
        for part in [*parts, *shown]:
            self.write([part])
        self.write([self.live.snapshot_mark(self.live.next_sequence or 0, len(parts))])
        self.live.needed_offset = first
        self.wrote(self.live.next_sequence or 0, shown)

    def prune(self) -> None:
        """Deletes the records below the group's needed offset."""
        needed = self.live.needed_offset or 0
        self.written = [entry for entry in self.written if entry[0] >= needed]

    # --- whoever comes after it

    def load(self) -> tuple[ShareGroup, GroupLog]:
        group, log = ShareGroup(GROUP), self.new_log()
        for offset, key, value in self.written:
            entry = log.read(key, value, offset)
            if entry is not None and entry.data is None:
                group = ShareGroup(GROUP)
                for part in log.parts:
                    replay(group, decode_record(part, GROUP))
            elif entry is not None:
                replay(group, decode_record(entry.data or b"", GROUP))
        log.end()
        return group, log

    def check_load(self) -> GroupLog:
        """Checks that a load has all of the group now."""
        group, log = self.load()
        assert durable_state(group) == durable_state(self.group)
        return log

    def check_log(self) -> None:
        log = self.check_load()
        assert (log.next_sequence, log.needed_offset) == (self.live.next_sequence, self.live.needed_offset)
        assert {k: repr(p) for k, p in log.partitions.items()} == {k: repr(p) for k, p in self.live.partitions.items()}
        assert set(self.kafkas) == set(self.group.partitions)
        for key, state in self.kafkas.items():
            partition = self.group.partitions[key]
            assert (state.start_offset, state.state_batches) == project(partition)
            assert state.delivery_complete_count == partition.delivery_complete_count


def kinds(group: Kept) -> list[str]:
    return [type(decode_key(key or b"")).__name__ for _, key, _ in group.written]


def unreadable(group: Kept, reason: str) -> None:
    with pytest.raises(UnreadableRecord, match=f"share group {GROUP} can't be read .*{reason}"):
        group.load()


def mixed() -> Kept:
    """A group with records in every durable state."""
    group = Kept(end=20, members=2, partitions=2)
    group.fetch("c1", 10)
    group.acknowledge(ACCEPT, 2, 4)
    group.acknowledge(RELEASE, 5, 6)
    group.acknowledge(REJECT, 8)
    return group
