"""Counts the records in a state partition that belong to no share group, such as a console producer's or a mirror's."""

from __future__ import annotations


class ForeignRecords:
    """The count of these records, and the offsets of the first and the last one. ``last`` is -1 while there is none."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0, -1

    def __repr__(self) -> str:
        return f"<ForeignRecords {self.count} in {self.first} to {self.last}>"

    def add(self, offset: int) -> None:
        """Count one more record. Its offset must be higher than all before."""
        if not self.count:
            self.first = offset
        self.count, self.last = self.count + 1, offset
