"""How many records a transaction of a group has: a header of its first record says so.

A partition that has lost its end (an unclean leader election) may hold the first records of a transaction, and neither
the others nor the marker. Such records must never count."""

from __future__ import annotations

from typing import TypeAlias

HEADER = "transaction.records"

Headers: TypeAlias = list[tuple[str, "str | bytes | None"]]
"""A record's headers, as confluent_kafka has them."""


def header_of(records: int) -> Headers:
    """The headers for the first record of a transaction with this number of records."""
    return [(HEADER, b"%d" % records)]


class LastTransaction:
    """The last transaction of a group in the log as read so far."""

    def __init__(self) -> None:
        self._missing = 0

    def __repr__(self) -> str:
        return f"<LastTransaction {self._missing} missing>"

    @property
    def is_cut(self) -> bool:
        """Whether the log ends before the transaction's last record."""
        return self._missing > 0

    def add(self, headers: Headers | None) -> None:
        """Apply the headers of the group's next record."""
        for name, value in headers or ():
            if name == HEADER and value and value.isdigit():
                self._missing = int(value)
        self._missing = max(self._missing - 1, 0)
