"""The counts of what became of the records of a share partition, and of several together, as snapshots keep them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

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


class RecordTotals(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The counts of several share partitions together. ``reached``: their offsets from the first start offset to the
    end, each once a share partition; the others are as in RecordCounts, and ``archived`` is by Disposition. With what
    is still there they make up ``reached``."""

    reached: int = 0
    accepted: int = 0
    archived: tuple[int, ...] = ()
    removed: int = 0
    skipped: int = 0
    repeated: int = 0
    without_dead_letter: tuple[int, ...] = ()

    @property
    def left(self) -> int:
        """How many offsets of ``reached`` none of the counts names."""
        done = self.accepted + sum(self.archived) + self.removed + self.skipped - self.repeated
        return self.reached - done

    def plus(self, other: RecordTotals) -> RecordTotals:
        """The counts of both."""
        return RecordTotals(
            reached=self.reached + other.reached,
            accepted=self.accepted + other.accepted,
            archived=_sums(self.archived, other.archived),
            removed=self.removed + other.removed,
            skipped=self.skipped + other.skipped,
            repeated=self.repeated + other.repeated,
            without_dead_letter=_sums(self.without_dead_letter, other.without_dead_letter),
        )


def _sums(some: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    sums = tuple(a + b for a, b in zip_longest(some, others, fillvalue=0))
    return sums if any(sums) else ()
