"""Records in a state partition that are no share group's: a console producer, a canary or a mirror has written them."""

from __future__ import annotations


class ForeignRecords:
    """How many there were, and where. ``last``: -1 while there is none."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count, self.first, self.last = 0, 0, -1

    def __repr__(self) -> str:
        return f"<ForeignRecords {self.count} in {self.first} to {self.last}>"

    def add(self, offset: int) -> None:
        """One more, behind those before."""
        if not self.count:
            self.first = offset
        self.count, self.last = self.count + 1, offset
