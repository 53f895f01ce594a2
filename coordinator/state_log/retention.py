"""From where on each group's log in a state partition is needed: its newest snapshot, or its first record."""

from __future__ import annotations

from coordinator.state_log.record_keys import GROUP_OWNER, GROUP_SNAPSHOT, group_of, key_head

JUST_TAKEN = 1_000
"""So many records later nothing comes of a group that has an owner and nothing else: its first join was refused."""

_SNAPSHOT = key_head(GROUP_SNAPSHOT, "")[:2]
_OWNER = key_head(GROUP_OWNER, "")[:2]


class Needed:
    """Of the committed records below ``read_to``, as they come."""

    def __init__(self) -> None:
        self.read_to = 0
        self._first: dict[str, int] = {}
        self._taken: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Needed read_to={self.read_to} groups={len(self._first)}>"

    def add(self, key: bytes | None, offset: int) -> None:
        """The next record. One that can't be read is needed, and all behind it: UnreadableRecord."""
        group_id = group_of(key or b"")
        if key is not None and key.startswith(_SNAPSHOT):
            self._first[group_id] = offset
        elif key is not None and key.startswith(_OWNER) and group_id not in self._first:
            self._taken[group_id] = offset
        else:
            self._first.setdefault(group_id, self._taken.pop(group_id, offset))
        self.read_to = offset + 1

    def lowest(self) -> int:
        """Nothing below it is needed."""
        taken = [offset for offset in self._taken.values() if offset >= self.read_to - JUST_TAKEN]
        return min([*self._first.values(), *taken], default=self.read_to)

    def first_groups(self, below: int) -> frozenset[str]:
        """Groups whose logs begin below this offset."""
        return frozenset(group_id for group_id, first in self._first.items() if first < below)
