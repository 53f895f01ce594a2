"""Writes to a store in tests of the store alone: bytes, which stand for the records of a group."""

from collections.abc import Mapping, Sequence

from coordinator.core.share_group import ShareGroup
from coordinator.service.stores.store import Append, Store


def append(store: Store, data: Mapping[str, Sequence[bytes]]) -> None:
    """Append to each group these bytes."""
    store.append({group_id: Append(ShareGroup(group_id), (), each) for group_id, each in data.items()}, now_ms=0)


def snapshot(store: Store, group_id: str, data: Sequence[bytes]) -> None:
    """Let these bytes take the place of the group's log."""
    store.replace_with_snapshot(ShareGroup(group_id), data, now_ms=0)
