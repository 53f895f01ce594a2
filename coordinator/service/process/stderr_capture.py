"""Turns what C libraries write to standard error into lines of our log, with a rate limit for each kind. For example,
gRPC writes a line for each connection that fails its TLS handshake."""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import threading
from typing import TextIO

from coordinator.protocol.repeated_lines import LogOnce

_GRPC = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ (?P<where>[\w.]+:\d+)\] (?P<text>.*)")
_FENCED = re.compile(r"%0\|[\d.]+\|FATAL\|.*fenced by a newer instance")
"""librdkafka's line about a producer whose group another coordinator has taken. The store logs that itself."""
_PREAMBLE = "WARNING: All log messages before absl::InitializeLog()"

LAST_LINES_S = 10.0
"""The last lines are read for up to this many seconds: a child process that has the descriptor could write for ever."""

_log = logging.getLogger(__name__)


class StderrCapture:
    """Redirects descriptor 2 to the log from its construction until :meth:`close`. :attr:`stream` is the original
    standard error.

    No write to descriptor 2 waits: lines that come faster than they are logged are lost. librdkafka holds Python's GIL
    while it makes a client. If it waited then for the thread that logs, which needs the GIL, both would wait for ever.

    Meanwhile ``logging`` is silent about lines that it can't write (a full disk): it would report each to descriptor 2,
    as lines of the log that it can't write either, until the pipe is full and every thread that logs waits for ever."""

    def __init__(self, once: LogOnce) -> None:
        self._once = once
        self.stream: TextIO = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
        faulthandler.enable(self.stream)
        self._raised, logging.raiseExceptions = logging.raiseExceptions, False
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        os.dup2(writing, 2)
        os.close(writing)
        self._thread = threading.Thread(target=self._read, args=(reading,), name="share-native-log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Restore descriptor 2 once everything that was written to it is logged."""
        os.dup2(self.stream.fileno(), 2)
        self._thread.join(LAST_LINES_S)
        logging.raiseExceptions = self._raised

    def _read(self, number: int) -> None:
        with os.fdopen(number, encoding="utf-8", errors="backslashreplace") as lines:
            for line in lines:
                self._say(line.strip())

    def _say(self, line: str) -> None:
        if not line or line.startswith(_PREAMBLE) or _FENCED.match(line):
            return
        found = _GRPC.fullmatch(line)
        if found is None:
            _log.warning("%s", line)
        elif "andshake" in line:
            self._once.warn("handshake", f"a connection without a TLS handshake was refused: {found['text']}")
        else:
            self._once.warn(found["where"], found["text"])
