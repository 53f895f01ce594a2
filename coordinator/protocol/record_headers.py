"""The headers of a record that confluent_kafka has read, whatever their names are.

Rule: a name that is not UTF-8 is shown as U+FFFD, and the record is read. confluent_kafka 2.16 raises SystemError at
the first look at such headers, and from the second on returns pairs whose first place is empty: a look at that place
ends the process (docs/facts.md, C13). The name's bytes are nowhere to be had.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from confluent_kafka import Message

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_FAILURES = (SystemError, UnicodeDecodeError)
_EMPTY = "(<NULL>,"


def headers_of(message: Message) -> Any:
    """A message's headers, as its ``headers`` returns them: a list of pairs, or None. Names that are not UTF-8 are
    replaced, also in the message."""
    try:
        return message.headers()
    except _FAILURES:
        return mended_headers(message)


def mended_headers(message: Message) -> Any:
    """As ``headers_of``, of a message whose headers may have been looked at, and may have failed, before."""
    with suppress(*_FAILURES):
        message.headers()
    headers: Any = message.headers()
    if headers:
        message.set_headers(headers := [(_name(pair), pair[1]) for pair in headers])
    return headers


def _name(pair: Any) -> str:
    return REPLACEMENT if repr(pair).startswith(_EMPTY) else pair[0]
