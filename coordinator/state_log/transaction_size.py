"""How many records a transaction of a group has. A header of the first one names the number.

A partition that has lost its end (an unclean leader election) may have a part of a transaction, and no marker. Such a
part must never count.
"""

from __future__ import annotations

from typing import TypeAlias

HEADER = "transaction.records"

Headers: TypeAlias = list[tuple[str, "str | bytes | None"]]
"""A record's headers, as confluent_kafka has them."""


def header_of(records: int) -> Headers:
    """Returns the headers of the first record of a transaction of ``records`` records."""
    return [(HEADER, b"%d" % records)]


class LastTransaction:
    """The last transaction of a group, as far as its log was read."""

    def __init__(self) -> None:
        self._missing = 0

    def __repr__(self) -> str:
        return f"<LastTransaction {self._missing} missing>"

    @property
    def is_cut(self) -> bool:
        """Whether the log ends before the transaction's last record."""
        return self._missing > 0

    def add(self, headers: Headers | None) -> None:
        """Apply the group's next record by its headers."""
        for name, value in headers or ():
            if name == HEADER and value and value.isdigit():
                self._missing = int(value)
        self._missing = max(self._missing - 1, 0)
