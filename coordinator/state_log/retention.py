"""From where on each group's log in a state partition is needed: its newest snapshot, or its first record."""

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
from coordinator.state_log.value_version import is_ours, versioned

JUST_TAKEN = 1_000
"""So many records later nothing comes of a group that has an owner and nothing else: its first join was refused."""

_SNAPSHOT = key_head(GROUP_SNAPSHOT, "")[:2]
_PART = key_head(GROUP_SNAPSHOT_PART, "")[:2]
_INDEX_0 = bytes(4)
_OWNER = key_head(GROUP_OWNER, "")[:2]
_KAFKA_S = (key_head(SHARE_SNAPSHOT, "")[:2], key_head(SHARE_UPDATE, "")[:2])
"""Groups are not loaded from these: they come with records of ours, or are somebody else's."""


class Retention:
    """Of the committed records below ``read_to``, as they come. ``placement``: where the newest record lies that says
    among how many partitions groups are placed; None: there is none."""

    def __init__(self) -> None:
        self.read_to = 0
        self.placement: int | None = None
        self.strays = ForeignRecords()
        self._first: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._parts_from: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Retention read_to={self.read_to} groups={len(self._first)}>"

    def add(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Takes in the next record. A record of no group, and a tombstone, are not needed. A record whose format
        version this version does not read ends nothing's need: the group stays needed from where it was."""
        self.read_to = offset + 1
        group_id = group_of(key)
        if key == PLACEMENT_KEY:
            self.placement = offset
        elif key is None or group_id is None:
            self.strays.add(offset)
        elif value is None or key.startswith(_KAFKA_S):
            return
        elif not is_ours(value):
            self._first.setdefault(group_id, self._taken.pop(group_id, offset))
        elif key.startswith(_PART) and key.endswith(_INDEX_0):
            self._parts_from[group_id] = offset
        elif key.startswith(_PART):
            return
        elif key.startswith(_SNAPSHOT):
            has_parts = value != versioned(b"")
            self._first[group_id] = self._parts_from.get(group_id, offset) if has_parts else offset
        elif key.startswith(_OWNER) and group_id not in self._first:
            self._taken[group_id] = offset
        else:
            self._first.setdefault(group_id, self._taken.pop(group_id, offset))

    def lowest(self) -> int:
        """Nothing below it is needed of any group."""
        taken = [offset for offset in self._taken.values() if offset >= self.read_to - JUST_TAKEN]
        return min([*self._first.values(), *taken], default=self.read_to)

    def first_groups(self, below: int) -> frozenset[str]:
        """Groups whose logs begin below this offset."""
        return frozenset(group_id for group_id, first in self._first.items() if first < below)
