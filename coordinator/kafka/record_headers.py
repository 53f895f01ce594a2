"""The headers of a record that confluent_kafka has read, whatever their names are.

Rule: a name that is not UTF-8 is shown as U+FFFD, and the record is read. confluent_kafka 2.16 raises SystemError at
the first access to such headers. Later accesses return pairs whose first place is empty, and reading that place ends
the process (docs/trust/facts.md, C13). Nothing gives the name's bytes.

Rule: only a methodcaller calls confluent_kafka's method, which returns a list and leaves an exception behind. Python
finds the exception by a check of the result. From Python 3.11 on, calls in code that ran often lack that check, and the
exception would come up at any later line of the program."""

from __future__ import annotations

from contextlib import suppress
from operator import methodcaller
from typing import Any

from confluent_kafka import Message

COPY = "__dlq."
"""The first header of each dead letter and each redriven record, and of no other record, begins with this text."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_FAILURES = (SystemError, UnicodeDecodeError)
_EMPTY = "(<NULL>,"
_checked_headers = methodcaller("headers")


def headers_of(message: Any) -> Any:
    """The headers of a message, of confluent_kafka or of a ShareConsumer, as its ``headers`` returns them: a list of
    pairs, or None. Names that are not UTF-8 are replaced, also in the message."""
    try:
        return _checked_headers(message)
    except _FAILURES:
        return mended_headers(message)


def is_copy(message: Message) -> bool:
    """Whether the record is a dead letter or was redriven: a copy that was written for somebody else's record."""
    return any(name.startswith(COPY) for name, _ in headers_of(message) or ())


def mended_headers(message: Message) -> Any:
    """The same as ``headers_of``, for a message whose headers may have been read, and may have failed, before."""
    with suppress(*_FAILURES):
        _checked_headers(message)
    headers: Any = _checked_headers(message)
    if headers:
        message.set_headers(headers := [(_name(pair), pair[1]) for pair in headers])
    return headers


def _name(pair: Any) -> str:
    return REPLACEMENT if repr(pair).startswith(_EMPTY) else pair[0]
