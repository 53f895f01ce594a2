"""The form of lines in all logs of sharegroup, one for each event: ``time pid LEVEL module [group=... member=...]
message``."""

from __future__ import annotations

import logging
from collections.abc import Iterable

_works_for = {"text": ""}
"""The text names the group and member for which this process works. A process of Spark's has the source of one query,
or one task at a time."""


class TextLines(logging.Formatter):
    """Formats a line as ``time pid LEVEL module message``, followed by the traceback with its lines joined. If the
    process works for one query, its name stands before the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(process)d %(levelname)s %(name)s %(works_for)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        record.works_for = _works_for["text"]
        return printable(" | ".join(super().format(record).splitlines()))


def printable(text: str) -> str:
    """The text on one line, with an escape for each unprintable character: otherwise a name that a member chose could
    move a terminal's cursor, or look like another line of the log."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def name_in_lines(**names: str) -> None:
    """Have each line from now on show these names, such as ``group``, unless they are empty."""
    named = " ".join(f"{kind}={name}" for kind, name in names.items() if name)
    _works_for["text"] = f"[{named}] " if named else ""


def ranges_of(numbers: Iterable[int]) -> str:
    """The numbers in words, neighbours as a range: ``0-49``, or ``0-3, 7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found) or "none"
