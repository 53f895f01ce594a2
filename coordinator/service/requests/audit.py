"""The audit log: a line when an administrator's action begins, and a line with its outcome: done, refused, or unknown.
The logger is ``sharegroup.audit``; a config can name a file for it.

Rule: no action is carried out whose beginning can't be written. Its end is written after the action is durable and
before its answer is sent. If that fails, the coordinator's log has the line. No line shows a token. Refusals of one
kind have one line a minute, so that a caller without the right can't push older lines out."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from coordinator.protocol.admin_messages import Action, Altered, ImportGroup, OffsetChanges
from coordinator.protocol.errors import NotCoordinator, ShareGroupError, UnusableFile
from coordinator.protocol.log_lines import JsonLines
from coordinator.protocol.messages import Message
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.rights import RIGHT_OF, Caller, Right
from coordinator.service.process.disk_space import disk_full
from coordinator.service.process.log_format import PrivateRotatingFile, write_end

AUDIT = "sharegroup.audit"
MOST_BYTES, FILES_KEPT = 10_000_000, 10
"""The audit file is rotated at MOST_BYTES bytes, and FILES_KEPT earlier files are kept."""
MOST_NAMED = 200
"""One line of the audit log names up to this many changes."""

_audit = logging.getLogger(AUDIT)
_log = logging.getLogger(__name__)
_KEY = "share.coordinator.audit.file"


class _AuditFile(PrivateRotatingFile):
    """The file of the audit log. ``emit`` raises DiskFull or UnusableFile if a line can't be written whole."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.shouldRollover(record):
                self.doRollover()
            stream = self.stream = self.stream or self._open()
            whole_bytes = os.path.getsize(self.baseFilename)
            try:
                stream.write(f"{self.format(record)}\n")
                stream.flush()
            except OSError:
                self.stream = None
                with contextlib.suppress(OSError):
                    stream.close()  # drops what waits to be written
                os.truncate(self.baseFilename, whole_bytes)
                raise
        except OSError as error:
            full = disk_full(Path(self.baseFilename), error)
            raise full or UnusableFile(key=_KEY, path=self.baseFilename, reason=str(error)) from error


def audit_to(path: str) -> Callable[[], None]:
    """Write the audit log to this file alone, which only its user can read: one JSON object a line. Returns a function
    that ends this. An empty path leaves the lines in the process's log. Raises UnusableFile if the file can't be
    written."""
    if not path:
        return lambda: None
    try:
        handler = _AuditFile(path, MOST_BYTES, FILES_KEPT, JsonLines())
    except OSError as error:
        raise UnusableFile(key=_KEY, path=path, reason=str(error)) from error
    _audit.addHandler(handler)
    _audit.setLevel(logging.INFO)
    _audit.propagate = False

    def end() -> None:
        _audit.removeHandler(handler)
        _audit.propagate = True
        handler.close()

    return end


def begun(caller: Caller, peer: str, request: Action[Message]) -> None:
    """Write the line with which an action begins: who, from where, what. A dry run has no line. Raises DiskFull or
    UnusableFile if the line can't be written, so that the action must not be carried out."""
    if request.execute:
        try:
            _audit.info("begun: %s", _asked(caller, peer, request))
        except ShareGroupError as error:
            _log.error("an action of %s was refused: the audit log can't record its beginning: %s", caller, error)
            raise


def ended(caller: Caller, peer: str, request: Action[Message], answer: Message | Exception) -> None:
    """Write the line with which an action ends, with what it changed from and to. A dry run has no line."""
    if not request.execute:
        return
    asked = _asked(caller, peer, request)
    if isinstance(answer, Exception):
        unknown = isinstance(answer, ShareGroupError) and answer.fields.get("outcome_unknown")
        elsewhere = isinstance(answer, NotCoordinator)  # the process that serves the group decides and logs it
        what = "not here" if elsewhere else "unknown outcome" if unknown else "refused"
        write_end(_audit, logging.WARNING, f"{what}: {asked} {_in_words(answer)}")
    else:
        write_end(_audit, logging.INFO, f"done: {asked} changed={msgspec.json.encode(_changed(answer)).decode()}")


def _asked(caller: Caller, peer: str, request: Action[Message]) -> str:
    # As JSON, so that a text of the request can't look like a line of its own.
    return f"who={caller} from={peer} request={msgspec.json.encode(_short(request)).decode()}"


def _short(request: Action[Any]) -> Action[Any]:
    """The request; an import without its runs, of which there may be a million."""
    if not isinstance(request, ImportGroup):
        return request
    partitions = tuple(msgspec.structs.replace(each, runs=()) for each in request.partitions)
    return msgspec.structs.replace(request, partitions=partitions)


class Refusals:
    """Logs refused requests: the caller lacks the right, or the allow lists of its token lack the group or topic. Each
    holder and request name has one line a minute, with the number of skipped ones."""

    def __init__(self) -> None:
        self._limited, self._failed = LogOnce(_audit), LogOnce(_log)

    def log(self, caller: Caller, peer: str, name: str, error: ShareGroupError) -> None:
        """Log a refused request, if it is an administrator's."""
        if RIGHT_OF.get(name) is Right.ADMIN:
            line = f"refused: who={caller} from={peer} request={name} {_in_words(error)}"
            try:
                self._limited.warn(f"{caller} {name}", line)
            except ShareGroupError as failed:
                self._failed.warn("audit", f"the audit log lacks refusals, because {failed}")


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {msgspec.json.encode(str(error)).decode()}"


def _changed(answer: Message) -> list[tuple[str, str, str]]:
    changed: list[tuple[str, str, str]] = []
    if isinstance(answer, Altered):
        changed = [(effect.what, effect.before, effect.after) for effect in answer.effects]
    elif isinstance(answer, OffsetChanges):
        changed = [(f"{p.topic}-{p.partition}", _text(p.before), _text(p.after)) for p in answer.partitions]
    more = len(changed) - MOST_NAMED
    return changed if more <= 0 else [*changed[:MOST_NAMED], (f"{more} more", "", "")]


def _text(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
