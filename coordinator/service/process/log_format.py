"""Where a coordinator's log goes: a stream, as text or as JSON, or a file that is rotated."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from typing import TextIO

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.log_lines import JsonLines, TextLines

TEXT = "text"
JSON = "json"


_log = logging.getLogger(__name__)


def write_end(audit: logging.Logger, level: int, line: str) -> None:
    """Write a line about an action that has ended into the audit log or, if that fails, into the process's log."""
    try:
        audit.log(level, "%s", line)
    except ShareGroupError as error:
        _log.error("the audit log lacks a line, because %s The line: %s", error, line)


class PrivateRotatingFile(RotatingFileHandler):
    """A log file that only the user can read, rotated at ``most_bytes``. ``kept``: how many older ones are kept."""

    def __init__(self, path: str, most_bytes: int, kept: int, form: logging.Formatter) -> None:
        super().__init__(path, maxBytes=most_bytes, backupCount=kept, encoding="utf-8")
        self.setFormatter(form)

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        os.chmod(self.baseFilename, 0o600)
        return stream


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
