"""Requests between the coordinators of several hosts, and their replies, as records of Kafka topics. Pure: values in,
keys, headers and bytes out.

A record's header ``sharegroup`` has the version of this format and one of the messages below; its value is a part of a
request's or an answer's body. Whoever reads the topics looks at the header alone before it decides whether the body
concerns it. A reply carries a proof, an HMAC with a key that only the request had: whoever may write replies but can't
read requests can't answer for an owner.

Rule: the id of a request has the digest of its name and its whole body, and is a secret between its client and who may
read requests. Everything else shows :func:`shown_id` of it: nobody can write a request, or a part, with another's id.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

VERSION = 2
"""The version of Ask, Answer and their bodies, which the owner's record in the group's log names. An asker refuses an
owner of another version by name (GroupOfAnotherVersion), and a reader passes over records of another one. All other
messages have the version 1 for good: hosts of any two versions find out whether the other one lives."""
HEADER, PROOF = "sharegroup", "proof"
REQUESTS, ADMIN_REQUESTS, REPLIES = "share-group-requests", "share-group-admin-requests", "share-group-replies"
"""A principal that may write to REQUESTS is a member, and one that may write to ADMIN_REQUESTS administers groups.
Coordinators read both, and write REPLIES."""
PARTITIONS = 10
"""Each of the three topics has this many partitions; a topic with more is used up to this one."""
PART_BYTES = 512 * 1024
"""A body is sent in parts of this many bytes: brokers take records of 1 MiB by default."""
MOST_BODY_BYTES = 100 << 20
"""A larger body is refused by the asker, and its parts by the owner: socket.request.max.bytes by default."""
MOST_ASK_BYTES, MOST_HEADER_BYTES = 4 << 10, 128 << 10
"""A record with a longer message is passed over: an Ask, and any other one (a Probe names each request that waits)."""


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
    """Asks the owner whether it serves the group. ``waiting``: the shown ids of the asker's requests that have no
    answer yet."""

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
    """An owner's record to itself among the requests: when it reads it, it has read all requests before it. ``secret``
    is known to that owner alone."""

    process: str
    secret: str = ""


class Alive(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to a Probe (``id``): a process serves the group. ``clock_ms``: its clock. ``unknown``: those of the
    asker's waiting requests that are not under way there: they have not come as a whole, or their answer is lost. A
    reply's ``id`` is that of a Probe, and the shown id of an Ask."""

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


def id_of_request(client_id: str, name: str, body: bytes) -> str:
    """The id of a request in all its tries. ``client_id``: the client's own id of it."""
    return f"{client_id}.{_digest(name, body)}"


def is_whole(ask: Ask, body: bytes) -> bool:
    """Whether the body is the one that the request was sent with."""
    return hmac.compare_digest(ask.id.rpartition(".")[2].encode(), _digest(ask.name, body).encode())


def shown_id(request_id: str) -> str:
    """The id of a request as all may see it: it stands for the request, and no request can be made of it."""
    return hashlib.sha256(request_id.encode()).hexdigest()


def size_of(message: Request) -> int:
    """The bytes of the message in its record's header."""
    return len(_versioned(message))


def headers_of_request(message: Request) -> Headers:
    """The headers of a record to the owner of a group."""
    return [(HEADER, _versioned(message))]


def headers_of_reply(message: Reply, reply_key: bytes, body: bytes = b"") -> Headers:
    """The headers of a record to an asker, with the proof."""
    content = _versioned(message)
    return [(HEADER, content), (PROOF, _proof(reply_key, content, body))]


def read_request(headers: Any) -> Request | None:
    """The request of a record; None: the record is of another program or version, or no asker writes such a one."""
    found: Request | None = _decoded(_requests, headers)
    if isinstance(found, ToOwner) and not 0 <= found.reply_to < PARTITIONS:
        return None
    if isinstance(found, Ask) and not 0 <= found.part < found.parts <= -(-MOST_BODY_BYTES // PART_BYTES):
        return None
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


def _digest(name: str, body: bytes) -> str:
    return hashlib.sha256(len(name.encode()).to_bytes(4, "big") + name.encode() + body).hexdigest()


def _version_of(message: Request | Reply) -> int:
    return VERSION if isinstance(message, (Ask, Answer)) else 1


def _versioned(message: Request | Reply) -> bytes:
    return bytes([_version_of(message)]) + msgspec.msgpack.encode(message)


def _proof(reply_key: bytes, content: bytes, body: bytes) -> bytes:
    length = len(content).to_bytes(4, "big")
    return hmac.new(reply_key, length + content + body, hashlib.sha256).digest()


def _decoded(decoder: msgspec.msgpack.Decoder[Any], headers: Any) -> Any:
    content = next((value for name, value in headers or () if name == HEADER), None) or b""
    if not 0 < len(content) <= MOST_HEADER_BYTES:
        return None
    try:
        found = decoder.decode(content[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_long = isinstance(found, Ask) and len(content) > MOST_ASK_BYTES
    return None if is_long or content[0] != _version_of(found) else found
