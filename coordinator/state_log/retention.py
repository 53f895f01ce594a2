"""Finds out which part of a state partition its groups need: each from its newest snapshot, or first record, on."""

from __future__ import annotations

from coordinator.state_log.foreign_records import ForeignRecords
from coordinator.state_log.placement import PLACEMENT_KEY
from coordinator.state_log.record_keys import (
    GROUP_OWNER,
    GROUP_SNAPSHOT,
    GROUP_SNAPSHOT_PART,
    SHARE_SNAPSHOT,
    SHARE_UPDATE,
    group_of,
    key_head,
)
from coordinator.state_log.value_version import has_content, is_ours

JUST_TAKEN = 1_000
"""A group that has only an owner record, or an empty snapshot, needs it until this many further records were written:
the group's first records may follow. If none have followed by then, its first join was refused, or the group was
deleted. If the group appends later after all, it writes both again."""

_SNAPSHOT = key_head(GROUP_SNAPSHOT, "")[:2]
_PART = key_head(GROUP_SNAPSHOT_PART, "")[:2]
_INDEX_0 = bytes(4)
_OWNER = key_head(GROUP_OWNER, "")[:2]
_KAFKA_S = (key_head(SHARE_SNAPSHOT, "")[:2], key_head(SHARE_UPDATE, "")[:2])
"""No group is loaded from records in Kafka's formats: they stand beside our own, or another program wrote them."""


class Retention:
    """Tracks which of the committed records below ``read_to`` must be kept. ``placement``: the offset of the newest
    placement record; None if there is none."""

    def __init__(self) -> None:
        self.read_to = 0
        self.placement: int | None = None
        self.foreign = ForeignRecords()
        self._first: dict[str, int] = {}
        self._owner_only: dict[str, int] = {}
        self._parts_from: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        """How many records each group needs."""
        self._part_counts: dict[str, int] = {}
        """How many records each group has written since the first part of a snapshot."""
        self._empty: dict[str, int] = {}
        """By group whose newest snapshot has no records yet: the offset of the snapshot's mark, or of the newest owner
        record after it. The snapshot's records may follow, after another transaction's."""

    def __repr__(self) -> str:
        return f"<Retention read_to={self.read_to} groups={len(self._first)}>"

    def add(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Apply the next record. A record of no group is not needed, nor is a tombstone. A record of another format
        version makes no earlier record unneeded: only the version that wrote it knows what it needs."""
        self.read_to = offset + 1
        group_id = group_of(key)
        if key == PLACEMENT_KEY:
            self.placement = offset
        elif key is None or group_id is None:
            self.foreign.add(offset)
        elif value is not None:
            self._add(group_id, key, value, offset)

    def _add(self, group_id: str, key: bytes, value: bytes, offset: int) -> None:
        """Apply a record of a group."""
        self._counts[group_id] = self._counts.get(group_id, 0) + 1
        if group_id in self._part_counts:
            self._part_counts[group_id] += 1
        if key.startswith(_KAFKA_S):
            return
        if not is_ours(value):
            self._first.setdefault(group_id, self._owner_only.pop(group_id, offset))
        elif key.startswith(_PART) and key.endswith(_INDEX_0):
            self._parts_from[group_id] = offset
            self._part_counts[group_id] = 1
        elif key.startswith(_PART):
            return
        elif key.startswith(_SNAPSHOT):
            has_parts = not has_content(value, b"")
            self._first[group_id] = self._parts_from.get(group_id, offset) if has_parts else offset
            self._counts[group_id] = self._part_counts.pop(group_id, 1) if has_parts else 1
            self._empty.pop(group_id, None)
            if not has_parts:
                self._empty[group_id] = offset
        elif key.startswith(_OWNER) and group_id in self._empty:
            self._empty[group_id] = offset
        elif key.startswith(_OWNER) and group_id not in self._first:
            self._owner_only[group_id] = offset
        elif not key.startswith(_OWNER):
            self._empty.pop(group_id, None)
            self._first.setdefault(group_id, self._owner_only.pop(group_id, offset))

    def lowest(self) -> int:
        """The lowest offset that any group needs: every record below it may be deleted."""
        owner_only = [offset for offset in self._owner_only.values() if offset >= self.read_to - JUST_TAKEN]
        return min([*self._needed().values(), *owner_only], default=self.read_to)

    def not_needed(self) -> int:
        """Returns how many records from the lowest needed offset on no group needs; transactions' markers count."""
        return self.read_to - self.lowest() - self.needed_count()

    def needed_count(self) -> int:
        return sum(self._counts[group_id] for group_id in self._needed())

    def first_groups(self, below: int) -> frozenset[str]:
        """Returns the groups whose needed records begin below this offset."""
        return frozenset(group_id for group_id, first in self._needed().items() if first < below)

    def _needed(self) -> dict[str, int]:
        """The first needed offset of each group that was not deleted."""
        deleted = {group_id for group_id, taken in self._empty.items() if taken < self.read_to - JUST_TAKEN}
        return {group_id: first for group_id, first in self._first.items() if group_id not in deleted}
