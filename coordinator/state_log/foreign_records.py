"""Records in a state partition that belong to no share group: a console producer, a canary or a mirror wrote them."""

from __future__ import annotations


class ForeignRecords:
    """The count of such records, and the offsets of the first and the last one. ``last`` is -1 while there is none."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0, -1

    def __repr__(self) -> str:
        return f"<ForeignRecords {self.count} in {self.first} to {self.last}>"

    def add(self, offset: int) -> None:
        """Counts one more record, at a higher offset than those before."""
        if not self.count:
            self.first = offset
        self.count, self.last = self.count + 1, offset
