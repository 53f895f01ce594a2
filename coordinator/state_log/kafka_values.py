"""Reads the values of Kafka's share-coordinator records, as Kafka would. A coordinator writes such records and loads
nothing from them: an import reads those of a native share group, and tests read ours."""

from __future__ import annotations

import struct
from itertools import pairwise

from coordinator.core.record_state import RecordState
from coordinator.state_log.combiner import combine
from coordinator.state_log.primitives import INT16, INT32, INT64, ByteReader
from coordinator.state_log.record_values import (
    DELIVERY_COMPLETE_COUNT_TAG,
    VERSION,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)

VARINT_BYTES = 5
"""An unsigned varint has up to this many bytes: 32 bits, seven in each byte."""
STATE_BATCH = struct.Struct(">qqbh")
STATES = {int(state): state for state in RecordState}


class ValueReader(ByteReader):
    """Reads the bytes of one value from the front, with the forms of KIP-482."""

    def optional(self, layout: struct.Struct) -> int | None:
        """Reads an integer that Kafka writes as -1 for "none"."""
        value = self.number(layout)
        if value < -1:
            raise self.unreadable(f"{value} is below -1")
        return None if value == -1 else value

    def unsigned_varint(self) -> int:
        """Reads an unsigned varint: seven bits a byte, the lowest first."""
        value = 0
        for index in range(VARINT_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise self.unreadable(f"a varint has more than {VARINT_BYTES} bytes")
        if value >> 32:
            raise self.unreadable("a varint has more than 32 bits")
        return value

    def tagged_fields(self) -> dict[int, bytes]:
        """Reads tagged fields, as bytes by tag; tags rise."""
        found: dict[int, bytes] = {}
        last = -1
        for _ in range(self.unsigned_varint()):
            if (tag := self.unsigned_varint()) <= last:
                raise self.unreadable(f"tag {tag} comes after tag {last}")
            found[tag] = self.take(self.unsigned_varint())
            last = tag
        return found

    def state_batch(self) -> StateBatch:
        first, last, state, count = self.fields(STATE_BATCH)
        self.tagged_fields()
        if not 0 <= first <= last or count < 0 or state not in STATES:
            raise self.unreadable(f"offsets {first} to {last} in state {state} with delivery count {count} can't be")
        return StateBatch(first, last, STATES[state], count)

    def rest(self) -> tuple[tuple[StateBatch, ...], int | None]:
        """The end of either value: the batches, and the delivery complete count."""
        if not (length := self.unsigned_varint()):
            raise self.unreadable("an array is null")
        batches = tuple([self.state_batch() for _ in range(length - 1)])
        for before, batch in pairwise(batches):
            if batch.first_offset <= before.last_offset:
                raise self.unreadable(f"offsets from {batch.first_offset} on come after {before.last_offset}")
        tagged = self.tagged_fields()
        self.end()
        if (data := tagged.get(DELIVERY_COMPLETE_COUNT_TAG)) is None:
            return batches, None
        field = ValueReader(data, self.group_id)
        count = field.optional(INT32)
        field.end()
        return batches, count


def opened(data: bytes, group_id: str) -> ValueReader:
    """The reader of a value's fields after its version. Raises UnreadableRecord if the version is another one."""
    reader = ValueReader(data, group_id)
    if (version := reader.number(INT16)) != VERSION:
        raise reader.unreadable(f"its value is of version {version}, and this version reads {VERSION}")
    return reader


def decode_snapshot(data: bytes, group_id: str = "?") -> ShareSnapshotValue:
    """The value that ``encode_snapshot`` wrote."""
    reader = opened(data, group_id)
    snapshot_epoch, state_epoch = reader.number(INT32), reader.number(INT32)
    leader_epoch, start_offset = reader.optional(INT32), reader.optional(INT64)
    created_ms, written_ms = reader.number(INT64), reader.number(INT64)
    return ShareSnapshotValue(
        snapshot_epoch, state_epoch, leader_epoch, start_offset, created_ms, written_ms, *reader.rest()
    )


def decode_update(data: bytes, group_id: str = "?") -> ShareUpdateValue:
    """The value that ``encode_update`` wrote."""
    reader = opened(data, group_id)
    snapshot_epoch = reader.number(INT32)
    leader_epoch, start_offset = reader.optional(INT32), reader.optional(INT64)
    return ShareUpdateValue(snapshot_epoch, leader_epoch, start_offset, *reader.rest())


def apply_update(state: ShareSnapshotValue, update: ShareUpdateValue) -> ShareSnapshotValue:
    """A share partition's state after an update that was written behind it. The delivery complete count is the
    update's if it names a start offset (docs/trust/facts.md, K38)."""
    start_offset, complete = update.start_offset, update.delivery_complete_count
    if start_offset is None:
        start_offset, complete = state.start_offset, state.delivery_complete_count
    return state._replace(
        leader_epoch=state.leader_epoch if update.leader_epoch is None else update.leader_epoch,
        start_offset=start_offset,
        state_batches=combine(state.state_batches, update.state_batches, start_offset),
        delivery_complete_count=complete,
    )
