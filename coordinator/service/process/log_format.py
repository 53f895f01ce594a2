"""Log formats with one line for each event, as text or as JSON, also where the event has a traceback."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
from collections.abc import Iterator
from typing import TextIO

import msgspec

TEXT = "text"
JSON = "json"


class TextLines(logging.Formatter):
    """Formats a line as ``time pid LEVEL module message``, followed by the traceback with its lines joined."""

    def __init__(self) -> None:
        super().__init__(f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return " | ".join(super().format(record).splitlines())


class JsonLines(logging.Formatter):
    """Formats an object with ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``pid``, ``message`` and, where there is
    one, ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        line: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


@contextlib.contextmanager
def log_lines(stream: TextIO, form: str) -> Iterator[None]:
    """A context in which the whole process logs to the stream, at INFO; afterwards it logs as before."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == JSON else TextLines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
