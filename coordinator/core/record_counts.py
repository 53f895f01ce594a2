"""Counts what became of the records of a share partition, or of several together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import msgspec

from coordinator.protocol.values import Int64


class RecordTotals(msgspec.Struct, kw_only=True, array_like=True):
    """Numbers of offsets. All but ``reached``, ``repeated`` and ``without_dead_letter`` add up, with the records that
    are still there, to ``reached`` plus ``repeated``.

    reached: from the first start offset to the end.
    accepted: ACKNOWLEDGED.
    archived: ARCHIVED, by Disposition. Under NONE: offsets without a record (compacted, aborted, or a transaction's
        marker).
    removed, deleted: Kafka removed the record before it was done, by retention or delete-records, or with its topic.
    skipped, repeated: a reset skipped the offset before it was done, or made it available again.
    without_dead_letter: those of ``archived`` that were given up while the group had no dead letter topic.
    """

    reached: Int64 = 0
    accepted: Int64 = 0
    archived: list[Int64] = []
    removed: Int64 = 0
    skipped: Int64 = 0
    repeated: Int64 = 0
    without_dead_letter: list[Int64] = []
    deleted: Int64 = 0

    @property
    def left(self) -> int:
        """How many offsets of ``reached`` none of the counts names."""
        done = self.accepted + sum(self.archived) + self.removed + self.deleted + self.skipped - self.repeated
        return self.reached - done

    def plus(self, *others: RecordTotals) -> RecordTotals:
        """The counts of all together; lists of zeros are empty."""
        counts = (self, *others)
        return RecordTotals(
            reached=sum(each.reached for each in counts),
            accepted=sum(each.accepted for each in counts),
            archived=_sums(each.archived for each in counts),
            removed=sum(each.removed for each in counts),
            skipped=sum(each.skipped for each in counts),
            repeated=sum(each.repeated for each in counts),
            without_dead_letter=_sums(each.without_dead_letter for each in counts),
            deleted=sum(each.deleted for each in counts),
        )


def _sums(lists: Iterable[list[int]]) -> list[int]:
    sums = [sum(column) for column in zip_longest(*lists, fillvalue=0)]
    return sums if any(sums) else []
