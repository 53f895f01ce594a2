"""Counts the records in a state partition that belong to no share group, such as a console producer's or a mirror's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class ForeignRecords:
    """The count of these records, and the offsets of the first and the last one. ``last`` is -1 while there is none."""

    count: int = 0
    first: int = 0
    last: int = -1

    def add(self, offset: int) -> None:
        """Count one more record. Its offset must be higher than all before."""
        if not self.count:
            self.first = offset
        self.count, self.last = self.count + 1, offset
