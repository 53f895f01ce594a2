"""Finds out which groups exist in a partition of the state topic, by the keys of its records. No group is loaded."""

from __future__ import annotations

from coordinator.core.log_records import GroupDeleted
from coordinator.core.record_codec import encode_record
from coordinator.state_log.owner_record import Owner, decode_owner
from coordinator.state_log.record_keys import GROUP_OWNER, GROUP_RECORD, GROUP_SNAPSHOT, group_of, key_head
from coordinator.state_log.value_version import has_content, is_ours

_RECORD, _SNAPSHOT, _OWNER = (key_head(kind, "")[:2] for kind in (GROUP_RECORD, GROUP_SNAPSHOT, GROUP_OWNER))
_DELETED = encode_record(GroupDeleted())


class GroupExistence:
    """The groups that exist after the records so far. A group exists if it has records of its own, or a snapshot in
    parts, after the mark of its last snapshot and after its last deletion."""

    def __init__(self) -> None:
        self._exists: set[str] = set()
        self._owners: dict[str, Owner] = {}

    def __repr__(self) -> str:
        return f"<GroupExistence groups={len(self._exists)}>"

    @property
    def groups(self) -> dict[str, Owner | None]:
        """The groups that exist, by id, each with its last owner; None if the owner is unknown."""
        return {group_id: self._owners.get(group_id) for group_id in sorted(self._exists)}

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record of the partition. Of another format version only the group's existence is read."""
        group_id = group_of(key)
        if key is None or value is None or group_id is None:
            return
        if key.startswith(_OWNER) and is_ours(value):
            self._owners[group_id] = decode_owner(value, group_id)
        elif key.startswith(_SNAPSHOT) and has_content(value, b""):
            self._exists.discard(group_id)  # the snapshot's mark: its records follow, and add the group again
        elif key.startswith(_RECORD) and has_content(value, _DELETED):
            self._exists.discard(group_id)
        elif key.startswith((_RECORD, _SNAPSHOT)):
            self._exists.add(group_id)
