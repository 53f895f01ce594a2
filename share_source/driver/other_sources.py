"""Recognizes by its form which source wrote an offset of Spark's log that is not ours."""

from __future__ import annotations

import json
from typing import Any

from share_source.errors import CheckpointOfAnotherSource

_LONGEST = 2_000
"""An error prints startingOffsets of up to this many characters, and names the checkpoint's file otherwise."""
_KEYS = {
    "Spark's file source": {"logOffset"},
    "Spark's rate-micro-batch source": {"offset", "timestamp"},
    "Delta Lake's source": {"reservoirId", "reservoirVersion"},
    "Iceberg's source": {"snapshot_id", "position"},
}
"""Keys that each source's offset has, perhaps with others."""


_OURS = {"group", "member"}
"""Keys that every version of sharegroup's own source writes."""


def check_ours(offset: Any, starts_at: Any) -> None:
    """Check that sharegroup's source wrote the offset. ``starts_at``: where the requested batch begins, after the last
    committed one; None if not known. Raises CheckpointOfAnotherSource otherwise: the error names the source if its form
    is known and, for Spark's Kafka source, the startingOffsets that continue it."""
    if is_ours(offset):
        return
    found, said = set(offset) if isinstance(offset, dict) else set(), str(offset)[:200]
    if _is_kafka(offset):
        raise CheckpointOfAnotherSource(source="Spark's Kafka source", offset=said, then=_continued(starts_at))
    if isinstance(offset, int):
        named = "a source whose offset is one number, as Spark's rate and socket sources have it"
    else:
        named = next((source for source, keys in _KEYS.items() if keys <= found), "another source")
    raise CheckpointOfAnotherSource(source=named, offset=said, then="")


def is_ours(offset: Any) -> bool:
    """Whether the offset has the form of those of sharegroup's source."""
    return isinstance(offset, dict) and set(offset) >= _OURS and not _is_kafka(offset)


def _is_kafka(offset: Any) -> bool:
    """Whether the offset has the form ``{"orders":{"0":4000}}``. Event Hubs' own source has this form as well."""
    if not isinstance(offset, dict) or not all(isinstance(each, dict) for each in offset.values()):
        return False
    entries = [entry for each in offset.values() for entry in each.items()]
    return bool(offset) and all(key.isdigit() and type(at) is int for key, at in entries)


def _continued(starts_at: Any) -> str:
    text = json.dumps(starts_at, sort_keys=True, separators=(",", ":")) if _is_kafka(starts_at) else ""
    if not text:
        where = "the file sources/0/0 of the old checkpoint: its first batch was never committed"
    elif len(text) > _LONGEST:
        where = "the last file of the old checkpoint's folder offsets whose number is in its folder commits"
    else:
        return (
            f" To continue where it stopped, give a group that has not begun yet the option startingOffsets='{text}'."
        )
    return f" To continue where it stopped, give a group that has not begun yet startingOffsets from {where}."
