"""The audit log: one line for each action that an administrator carried out, or was refused, or whose outcome is not
known, with the logger ``sharegroup.audit``; in a file of its own where one is named.

Rule: a line is written after the action is durable and before its answer is sent. It shows no token. A caller without
the right can't fill the log, and push older lines out: the refusals of one kind have a line a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from coordinator.protocol.admin_messages import Action, Altered, OffsetChanges
from coordinator.protocol.errors import ShareGroupError, UnusableFile
from coordinator.protocol.messages import Message
from coordinator.protocol.rights import RIGHT_OF, Caller, Right
from coordinator.service.process.log_format import JsonLines, PrivateRotatingFile
from coordinator.service.process.rate_limited_log import RateLimitedLog

AUDIT = "sharegroup.audit"
MOST_BYTES, FILES_KEPT = 10_000_000, 10
"""The file is rotated at MOST_BYTES bytes, and FILES_KEPT earlier files are kept."""
MOST_NAMED = 200
"""One line names up to this many changes."""

_audit = logging.getLogger(AUDIT)


def audit_to(path: str) -> Callable[[], None]:
    """Write the audit log to this file alone, an object of JSON a line, readable by its user only. Returns a function
    that ends this; without a path the lines stay in the process's log.

    Raises:
        UnusableFile: the file can't be written.
    """
    if not path:
        return lambda: None
    try:
        handler = PrivateRotatingFile(path, MOST_BYTES, FILES_KEPT, JsonLines())
    except OSError as error:
        raise UnusableFile(key="share.coordinator.audit.file", path=path, reason=str(error)) from error
    _audit.addHandler(handler)
    _audit.setLevel(logging.INFO)
    _audit.propagate = False

    def end() -> None:
        _audit.removeHandler(handler)
        _audit.propagate = True
        handler.close()

    return end


def audit(caller: Caller, peer: str, request: Action[Message], answer: Message | Exception) -> None:
    """Write the line of an action: who, from where, what, and what it changed from and to. A dry run has no line."""
    if not request.execute:
        return
    # As JSON, so that a text of the request can't look like a line of its own.
    asked = msgspec.json.encode(request).decode()
    who = f"who={caller} from={peer}"
    if isinstance(answer, Exception):
        unknown = isinstance(answer, ShareGroupError) and answer.fields.get("outcome_unknown")
        what = "unknown outcome" if unknown else "refused"
        _audit.warning("%s: %s request=%s %s", what, who, asked, _in_words(answer))
        return
    _audit.info("done: %s request=%s changed=%s", who, asked, msgspec.json.encode(_changed(answer)).decode())


class Refusals:
    """Logs the refusals of requests whose caller lacks the right, or whose token's allow lists lack the group or topic:
    one line a minute for each holder and request name, with the number of skipped ones."""

    def __init__(self) -> None:
        self._limited = RateLimitedLog(_audit)

    def __repr__(self) -> str:
        return "<Refusals>"

    def log(self, caller: Caller, peer: str, name: str, error: ShareGroupError) -> None:
        """Log a refused request of this name, if the name is one of an administrator's."""
        if RIGHT_OF.get(name) is Right.ADMIN:
            line = f"refused: who={caller} from={peer} request={name} {_in_words(error)}"
            self._limited.warn(f"{caller} {name}", line)


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
