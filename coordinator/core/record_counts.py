"""The counts of what became of the records of a share partition, as snapshots keep them."""

from __future__ import annotations

import msgspec


class RecordCounts(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The counts of what became of records, beside those that are ARCHIVED. ``accepted``: ACKNOWLEDGED;
    ``removed``: Kafka removed them before they were done; ``skipped``, ``repeated``: an administrator's reset passed
    over them, or made them available again; ``without_dead_letter``: given up in a group without a dead letter topic,
    by Disposition; ``first_offset``: where the counts begin."""

    accepted: int = 0
    removed: int = 0
    skipped: int = 0
    repeated: int = 0
    without_dead_letter: tuple[int, ...] = ()
    first_offset: int = 0
