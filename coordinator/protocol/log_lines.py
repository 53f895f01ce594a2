"""The form of lines in all logs of sharegroup, one for each event: ``time pid LEVEL module [group=... member=...]
message``, or the same as JSON."""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
from collections.abc import Iterable
from itertools import groupby
from typing import TextIO

LEVEL, FORMAT = "SHAREGROUP_LOG_LEVEL", "SHAREGROUP_LOG_FORMAT"
"""Variables of the environment for the logs of queries and ShareConsumers: INFO and text where they are not set."""
LEVELS, FORMATS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), ("text", "json")

_works_for: dict[str, str] = {}
"""The group and member for which this process works. A process of Spark's has the source of one query, or one task at a
time."""
_log = logging.getLogger(__name__)
_handler: logging.StreamHandler[TextIO] | None = None


class TextLines(logging.Formatter):
    """Formats a line as ``time pid LEVEL module message``, followed by the traceback with its lines joined. If the
    process works for one query, its name stands before the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(process)d %(levelname)s %(name)s %(works_for)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        named = " ".join(f"{kind}={name}" for kind, name in _works_for.items())
        record.works_for = f"[{named}] " if named else ""
        return printable(" | ".join(super().format(record).splitlines()))


class JsonLines(logging.Formatter):
    """Formats an object with ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``pid``, ``message`` and, where there is
    one, ``exception``; and with the names of the group and member if the process works for one query."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            **_works_for,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


def printable(text: str) -> str:
    """The text on one line, with an escape for each unprintable character: without it a name that a member chose could
    move a terminal's cursor, or look like another line of the log."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def name_in_lines(**names: str) -> None:
    """Have each line from now on show these names, such as ``group``, unless they are empty."""
    _works_for.clear()
    _works_for.update({kind: name for kind, name in names.items() if name})


def log_to_stderr(names: Iterable[str], stream: TextIO) -> None:
    """Write the lines of the loggers with these names to the stream, which is standard error, in the form, and from the
    level on, that the environment names. A logger whose level the program has set keeps it."""
    global _handler
    if _handler is None:
        _handler = logging.StreamHandler(stream)
        _handler.setFormatter(JsonLines() if _chosen(FORMAT, FORMATS, "text") == "json" else TextLines())
    level = _chosen(LEVEL, tuple(each.lower() for each in LEVELS), "info").upper()
    for name in names:
        logger = logging.getLogger(name)
        logger.addHandler(_handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


def log_as_chosen(names: Iterable[str]) -> None:
    """Log as :func:`log_to_stderr` if the environment names a level or a form, and the program configures none."""
    if (os.environ.get(LEVEL) or os.environ.get(FORMAT)) and not logging.getLogger().handlers:
        log_to_stderr(names, sys.stderr)


def is_logging() -> bool:
    """Whether the process writes its lines to standard error already."""
    return _handler is not None


def log_to(stream: TextIO) -> None:
    """From now on write the lines that went to standard error to this stream."""
    if _handler is not None:
        _handler.stream = stream


def _chosen(variable: str, words: tuple[str, ...], default: str) -> str:
    """Returns the variable's word. A wrong word is a warning: a log must stop no program."""
    given = os.environ.get(variable, "").strip().lower()
    if given and given not in words:
        _log.warning("%s=%s is not valid, and counts as %s: use %s", variable, given, default, ", ".join(words))
    return given if given in words else default


def ranges_of(numbers: Iterable[int]) -> str:
    """The numbers in words, neighbours as a range: ``0-49``, or ``0-3, 7``."""
    neighbours = groupby(enumerate(sorted(numbers)), key=lambda each: each[1] - each[0])
    ranges = [[number for _, number in each] for _, each in neighbours]
    return ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in ranges) or "none"
