"""Requests between the coordinators of several hosts, and their replies, as records of Kafka topics. Pure: values in,
keys, headers and bytes out.

A record's header ``sharegroup`` has the version of this format and one of the messages below; its value is a part of a
request's or an answer's body. Whoever reads the topics looks at the header alone before it decides whether the body
concerns it. A reply carries a proof, an HMAC with a key that only the request had: whoever may write replies but can't
read requests can't answer for an owner.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

VERSION = 1
"""The version of Ask, Answer and their bodies, which the owner's record in the group's log names. A reader passes over
those of another one. All other messages have the version 1 for good: hosts of any two versions find out whether the
other one lives."""
HEADER, PROOF = "sharegroup", "proof"
REQUESTS, ADMIN_REQUESTS, REPLIES = "share-group-requests", "share-group-admin-requests", "share-group-replies"
"""A principal that may write to REQUESTS is a member, and one that may write to ADMIN_REQUESTS administers groups.
Coordinators read both, and write REPLIES."""
PARTITIONS = 10
"""Each of the three topics has this many partitions; a topic with more is used up to this one."""
PART_BYTES = 512 * 1024
"""A body is sent in parts of this many bytes: brokers take records of 1 MiB by default."""


class ToOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A record for the owner ``process``, which loaded the group as ``tenure``: the asker waits for its reply."""

    id: str
    asker: str
    group_id: str
    reply_to: int
    reply_key: bytes
    process: str
    tenure: str


class Probe(ToOwner, frozen=True, tag=True, kw_only=True):
    """Asks the owner whether it serves the group. ``waiting``: the ids of the asker's requests that have no answer
    yet."""

    waiting: tuple[str, ...] = ()


class Ask(ToOwner, frozen=True, tag=True, kw_only=True):
    """A part of a request for the owner. ``not_after_ms``: it is carried out up to this time on the owner's own clock.
    ``protocol``: the client's PROTOCOL. ``name``: the request's class. ``host``: the asker's; ``by``: the name of its
    client's token, as that host tells it. ``part`` is the number of the part, from 0, of ``parts``."""

    not_after_ms: int
    protocol: str
    name: str
    host: str
    by: str = ""
    part: int = 0
    parts: int = 1


class Tick(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An owner's record to itself among the requests: when it reads it, it has read all requests before it."""

    process: str


class Alive(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to a Probe (``id``): a process serves the group. ``clock_ms``: its clock. ``unknown``: those of the
    asker's waiting requests that are not under way there: they have not come as a whole, or their answer is lost."""

    id: str
    asker: str
    tenure: str
    clock_ms: int
    unknown: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to an Ask or a Probe: the process does not serve the group, and did not carry out the request."""

    id: str
    asker: str


class Late(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to an Ask whose time was over, and that was not carried out."""

    id: str
    asker: str
    clock_ms: int


class Answer(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A part of the answer to an Ask. ``written``: an id of its own for each time that the answer is written: only its
    parts belong together."""

    id: str
    asker: str
    written: str = ""
    part: int = 0
    parts: int = 1


class Echo(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An asker's record to itself: what comes after it was written after it."""

    id: str
    asker: str


Request: TypeAlias = Probe | Ask | Tick
Reply: TypeAlias = Alive | Moved | Late | Answer | Echo
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
Headers: TypeAlias = list[tuple[str, bytes]]


def headers_of_request(message: Request) -> Headers:
    """The headers of a record to the owner of a group."""
    return [(HEADER, _versioned(message))]


def headers_of_reply(message: Reply, reply_key: bytes, body: bytes = b"") -> Headers:
    """The headers of a record to an asker, with the proof."""
    content = _versioned(message)
    return [(HEADER, content), (PROOF, _proof(reply_key, content, body))]


def read_request(headers: Any) -> Request | None:
    """The request of a record; None: the record is of another program, or of another version."""
    found: Request | None = _decoded(_requests, headers)
    return found


def read_reply(headers: Any) -> Reply | None:
    """The reply of a record, whose proof nobody has checked yet; None as for :func:`read_request`."""
    found: Reply | None = _decoded(_replies, headers)
    return found


def is_proven(headers: Any, reply_key: bytes, body: bytes) -> bool:
    """Whether a reply is of somebody who has read the request that has this key."""
    found = dict(headers or ())
    expected = _proof(reply_key, found.get(HEADER) or b"", body)
    return hmac.compare_digest(expected, found.get(PROOF) or b"")


def parts_of(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The parts of a body: the number of the part, how many there are, and its bytes."""
    count = max(1, -(-len(body) // PART_BYTES))
    for number in range(count):
        yield number, count, body[number * PART_BYTES : (number + 1) * PART_BYTES]


def _version_of(message: Request | Reply) -> int:
    return VERSION if isinstance(message, (Ask, Answer)) else 1


def _versioned(message: Request | Reply) -> bytes:
    return bytes([_version_of(message)]) + msgspec.msgpack.encode(message)


def _proof(reply_key: bytes, content: bytes, body: bytes) -> bytes:
    length = len(content).to_bytes(4, "big")
    return hmac.new(reply_key, length + content + body, hashlib.sha256).digest()


def _decoded(decoder: msgspec.msgpack.Decoder[Any], headers: Any) -> Any:
    content = next((value for name, value in headers or () if name == HEADER), None) or b""
    try:
        found = decoder.decode(content[1:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if content[0] == _version_of(found) else None
