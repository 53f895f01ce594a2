"""Requests between the coordinators of several hosts, and their replies, as records of Kafka topics.

The header ``sharegroup`` of a record has the version of this format and one of the messages below. The record's value
is a part of a request's or an answer's body. Readers decide by the header alone whether the body concerns them. A reply
has a proof, an HMAC with a key that was in the request: whoever may write replies, but can't read requests, can't
answer for an owner.

Rule: the id of a request contains the digest of its name and its whole body. Only its client, and whoever may read
requests, know the id; all other places have :func:`shown_id` of it. So nobody else can write a request, or a part of
one, with that id."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

VERSION = 2
"""The version of Ask, Answer and their bodies. The owner's record in the group's log names it. If that is another
version, an asker gets GroupOfAnotherVersion; readers skip records of another version. All other messages stay at
version 1, so that hosts of any two versions can find out whether the other one lives."""
HEADER, PROOF = "sharegroup", "proof"
REQUESTS, ADMIN_REQUESTS, REPLIES = "share-group-requests", "share-group-admin-requests", "share-group-replies"
"""The right to write to REQUESTS lets a principal act as a member; the right to write to ADMIN_REQUESTS, administer
groups. Coordinators read both topics, and write REPLIES."""
PARTITIONS = 10
"""Each of the three topics has this many partitions. If a topic has more, only the first ones are used."""
PART_BYTES = 512 * 1024
"""A body is sent in parts of this many bytes: brokers take records of 1 MiB by default."""
MOST_BODY_BYTES = 100 << 20
"""An asker does not send a larger body, and an owner refuses parts of one. The number is the default of
socket.request.max.bytes."""
MOST_ASK_BYTES, MOST_HEADER_BYTES = 4 << 10, 128 << 10
"""A record is skipped if its Ask has more bytes than the first number, or another message more than the second. (A
Probe is long, because it names each request that waits.)"""


class ToOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of records to the owner ``process``, which loaded the group as ``tenure``. The asker waits."""

    id: str
    asker: str
    group_id: str
    reply_to: int
    reply_key: bytes
    process: str
    tenure: str


class Probe(ToOwner, frozen=True, tag=True, kw_only=True):
    """Asks the owner whether it serves the group. ``waiting``: the shown ids of the asker's unanswered requests."""

    waiting: tuple[str, ...] = ()


class Ask(ToOwner, frozen=True, tag=True, kw_only=True):
    """A part of a request for the owner.

    not_after_ms: the request is not carried out after this time, by the owner's clock.
    protocol: the client's PROTOCOL. name: the request's class.
    host: the asker's host. by: the name of the client's token, according to that host.
    part: the number of this part, from 0, of ``parts``."""

    not_after_ms: int
    protocol: str
    name: str
    host: str
    by: str = ""
    part: int = 0
    parts: int = 1


class Tick(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An owner's record to itself among the requests. When the owner reads the record, it has read all requests before.
    ``secret``: only this owner knows it."""

    process: str
    secret: str = ""


class Alive(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to a Probe: the process serves the group. ``id``: the Probe's; in the answers to an Ask it is the
    shown id of the request. ``clock_ms``: the time of the process's clock. ``unknown``: those of the asker's waiting
    requests that the process is not working on, because a part has not arrived, or because the answer was lost."""

    id: str
    asker: str
    tenure: str
    clock_ms: int
    unknown: tuple[str, ...] = ()


class Moved(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to an Ask or a Probe if the process does not serve the group. The request was not carried out."""

    id: str
    asker: str


class Late(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The answer to an Ask that came after its ``not_after_ms``. The request was not carried out."""

    id: str
    asker: str
    clock_ms: int


class Answer(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A part of the answer to an Ask. ``written``: another id each time that the answer is written; only parts with the
    same one belong together."""

    id: str
    asker: str
    written: str = ""
    part: int = 0
    parts: int = 1


class Echo(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An asker's record to itself: all replies that it reads after this record were written later."""

    id: str
    asker: str


Request: TypeAlias = Probe | Ask | Tick
Reply: TypeAlias = Alive | Moved | Late | Answer | Echo
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
Headers: TypeAlias = list[tuple[str, bytes]]


def id_of_request(client_id: str, name: str, body: bytes) -> str:
    """The id of a request, the same in all its tries. ``client_id``: the client's own id of the request."""
    return f"{client_id}.{_digest(name, body)}"


def is_whole(ask: Ask, body: bytes) -> bool:
    """Whether the body is that with which the request was sent."""
    return hmac.compare_digest(ask.id.rpartition(".")[2].encode(), _digest(ask.name, body).encode())


def shown_id(request_id: str) -> str:
    """The id of a request as everybody may see it: no request with the real id can be made from it."""
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
    """Returns the request in a record's headers; None if another program or version wrote the record, or if it can't be
    an asker's."""
    found: Request | None = _decoded(_requests, headers)
    if isinstance(found, ToOwner) and not 0 <= found.reply_to < PARTITIONS:
        return None
    if isinstance(found, Ask) and not 0 <= found.part < found.parts <= -(-MOST_BODY_BYTES // PART_BYTES):
        return None
    return found


def read_reply(headers: Any) -> Reply | None:
    """Returns the reply in a record's headers; None as for :func:`read_request`. See :func:`is_proven` too."""
    found: Reply | None = _decoded(_replies, headers)
    return found


def is_proven(headers: Any, reply_key: bytes, body: bytes) -> bool:
    """Whether the writer of a reply has read the request with this key."""
    found = dict(headers or ())
    expected = _proof(reply_key, found.get(HEADER) or b"", body)
    return hmac.compare_digest(expected, found.get(PROOF) or b"")


def parts_of(body: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the parts of a body: the number of the part, the number of parts, and the bytes."""
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
