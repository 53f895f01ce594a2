"""A share partition's Kafka records: whoever reads them back has what the partition is, and writes on alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.record_codec import UnreadableRecord
from coordinator.core.record_state import RecordState
from coordinator.state_log import partition_log
from coordinator.state_log.combiner import combine
from coordinator.state_log.kafka_values import decode_snapshot
from coordinator.state_log.partition_log import KeyValue, Whole
from coordinator.state_log.projection import Change, Projection
from coordinator.state_log.record_keys import ShareSnapshotKey, ShareUpdateKey, decode_key
from coordinator.state_log.record_values import ShareSnapshotValue, StateBatch
from tests.support.kafka_partition_log import KafkaPartitionLog
from tests.support.state_records import (
    TOPIC_ID,
    merged,
    naive_combined,
    projection_of,
    small,
    small_lists,
    state_after,
)

PLACE = ("billing", TOPIC_ID, 0)
LIMITS = [0, 1, 3, 500]


class Trail:
    """A share partition's log, and what is appended of it."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self.log = KafkaPartitionLog(*PLACE)
        self.updates_per_snapshot = updates_per_snapshot
        self.appended: list[KeyValue] = []
        self.state: ShareSnapshotValue | None = None
        self.now_ms = 1_000

    def append(self, make: Callable[[KafkaPartitionLog], list[KeyValue]]) -> bool:
        """A write changes nothing; the records that it made, replayed, do. Whether there was one."""
        before = remembered(self.log)
        records = make(self.log)
        assert remembered(self.log) == before
        for record in records:
            self.appended.append(record)
            self.log.replay(decode_key(record[0]), record[1])
            self.state = state_after(self.state, *record)
            self.now_ms += 7
        return bool(records)

    def initialize(self, whole: Whole, state_epoch: int) -> None:
        self.append(lambda log: log.initialize(whole, state_epoch=state_epoch, now_ms=self.now_ms))

    def write(self, change: Change, whole: Whole) -> None:
        limit = self.updates_per_snapshot
        self.append(lambda log: log.write(change, lambda: whole, updates_per_snapshot=limit, now_ms=self.now_ms))

    def lead(self, epoch: int, whole: Whole) -> bool:
        limit = self.updates_per_snapshot
        return self.append(lambda log: log.lead(epoch, lambda: whole, updates_per_snapshot=limit, now_ms=self.now_ms))

    def snapshot(self, whole: Whole) -> None:
        self.append(lambda log: log.snapshot(whole, now_ms=self.now_ms))

    def check(self) -> None:
        """Loaded by another, the log remembers the same; and no more updates follow a snapshot than may."""
        loaded = KafkaPartitionLog(*PLACE)
        behind = 0
        for key, value in self.appended:
            loaded.replay(decode_key(key), value)
            behind = behind + 1 if isinstance(decode_key(key), ShareUpdateKey) else 0
            assert behind <= self.updates_per_snapshot
        assert remembered(loaded) == remembered(self.log)
        assert self.log.updates == behind


def remembered(log: KafkaPartitionLog) -> dict[str, Any]:
    return {name: getattr(log, name) for name in KafkaPartitionLog.__slots__}


# --- any changes


steps_of_a_log = st.one_of(
    st.tuples(st.just("write"), small_lists, st.integers(0, 6)),
    st.tuples(st.just("batches only"), small_lists, st.just(0)),
    st.tuples(st.just("lead"), st.just([]), small),
    st.tuples(st.just("cold"), st.just([]), st.just(0)),
    st.tuples(st.just("reset"), small_lists, small),
)


@pytest.mark.parametrize("limit", LIMITS)
@given(script=st.lists(steps_of_a_log, max_size=30))
def test_any_written_changes_are_read_back(limit: int, script: list[tuple[str, list[StateBatch], int]]) -> None:
    """Against a dict of offsets, into which each change goes by the combiner's rule; a reset alone begins anew."""
    trail = Trail(limit)
    start, state_epoch, leader_epoch = 0, 1, 0
    so_far: list[StateBatch] = []
    trail.initialize(Change(0, (), 0), state_epoch)
    for what, batches, number in script:
        if what == "reset":
            start, so_far, state_epoch, leader_epoch = number, list(batches), state_epoch + 1, 0
        elif what in ("write", "batches only"):
            start, so_far = start + number, [*so_far, *batches]
        whole = projection_of(naive_combined(so_far, start), start)
        said = merged(naive_combined(batches, None))
        if what == "write":
            trail.write(Change(start, said, whole.delivery_complete_count), whole)
        elif what == "batches only":
            trail.write(Change(None, said), whole)
        elif what == "cold":
            trail.snapshot(whole)
            assert trail.log.snapshotted_cold
        elif what == "reset":
            trail.initialize(whole, state_epoch)
        elif trail.lead(number, whole):
            assert number > leader_epoch
            leader_epoch = number
        state = trail.state
        assert state is not None
        assert (state.start_offset, state.state_batches) == whole
        assert (state.state_epoch, state.leader_epoch) == (state_epoch, leader_epoch)
        assert (trail.log.state_epoch, trail.log.leader_epoch) == (state_epoch, leader_epoch)
        assert state.snapshot_epoch == trail.log.snapshot_epoch
        trail.check()
    values = [decode_snapshot(value) for key, value in trail.appended if isinstance(decode_key(key), ShareSnapshotKey)]
    assert [value.snapshot_epoch for value in values] == [*range(len(values))]


# --- one by one


def begun(now_ms: int = 1_000) -> KafkaPartitionLog:
    log = KafkaPartitionLog(*PLACE)
    replay(log, *log.initialize(Projection(5, ()), state_epoch=2, now_ms=now_ms))
    return log


def replay(log: KafkaPartitionLog, *records: tuple[bytes, bytes | None]) -> None:
    for key, value in records:
        log.replay(decode_key(key), value)


def test_the_whole_projection_is_computed_only_for_a_snapshot() -> None:
    def whole() -> Projection:
        raise AssertionError("nobody needs it")

    begun().write(Change(5, (), 0), whole, updates_per_snapshot=1, now_ms=1_001)


def test_any_first_write_of_a_partition_log_begins_it() -> None:
    log, whole = KafkaPartitionLog(*PLACE), Projection(3, ())
    first = log.initialize(whole, state_epoch=0, now_ms=7)
    assert log.write(Change(3), lambda: whole, updates_per_snapshot=500, now_ms=7) == first
    assert log.snapshot(whole, now_ms=7) == first


def test_updates_whose_snapshot_was_pruned_are_passed_over() -> None:
    log = begun()
    update = log.write(Change(5, (), 0), lambda: Projection(5, ()), updates_per_snapshot=500, now_ms=1_001)
    loaded = KafkaPartitionLog(*PLACE)
    replay(loaded, *update)
    assert loaded.snapshot_epoch is None
    snapshot = log.snapshot(Projection(5, ()), now_ms=1_002)
    replay(loaded, *snapshot)
    replay(log, *snapshot)
    assert remembered(loaded) == remembered(log)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (ShareSnapshotKey(*PLACE), b"", "more bytes are needed"),
        (ShareUpdateKey(*PLACE), b"\0\0\0", "more bytes are needed"),
        (ShareSnapshotKey(*PLACE), b"\0\1" + bytes(40), "version 1"),
        (ShareUpdateKey(*PLACE), b"\0\1" + bytes(20), "version 1"),
        (ShareUpdateKey(*PLACE), None, "more bytes are needed"),
    ],
)
def test_a_torn_or_newer_record_is_unreadable(key: Any, value: bytes | None, reason: str) -> None:
    log = begun()
    before = remembered(log)
    with pytest.raises(UnreadableRecord, match=f"share group billing can't be read .*{reason}"):
        log.replay(key, value)
    assert remembered(log) == before


@given(small_lists, st.integers(1, 20), st.booleans())
def test_a_record_in_pieces_comes_to_the_same(batches: list[StateBatch], most: int, update: bool) -> None:
    log, whole = begun(), Projection(5, combine(batches, (), 5))

    def written() -> list[KeyValue]:
        if not update:
            return log.snapshot(whole, now_ms=1_001)
        change = Change(5, whole.state_batches, whole.delivery_complete_count)
        return log.write(change, lambda: whole, updates_per_snapshot=500, now_ms=1_001)

    before = ShareSnapshotValue(0, 2, 0, 5, 1_000, 1_000, (), 0)
    (record,) = written()
    with mock.patch.object(partition_log, "MOST_BATCHES", most):
        some = written()
    state: ShareSnapshotValue | None = before
    for piece in some:
        state = state_after(state, *piece)
        replay(log, piece)
    assert state == state_after(before, *record)
    assert [type(decode_key(key)) for key, _ in some][1:] == [ShareUpdateKey] * (len(some) - 1)
    assert len(some) == max(1, -(-len(whole.state_batches) // most))
    assert log.updates == len(some) - (not update)


def test_a_record_of_the_most_batches_is_smaller_than_eight_mebibytes() -> None:
    batches = tuple(StateBatch(at, at, RecordState.ARCHIVED, 1) for at in range(partition_log.MOST_BATCHES))
    ((_, value),) = begun().snapshot(Projection(5, batches), now_ms=1_001)
    assert value is not None
    assert len(value) < 8 * 1024 * 1024
