"""Requests between hosts are read across versions: fields that this version does not know are passed over, and so are
whole records whose form another version has changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator.protocol import host_records
from coordinator.protocol.host_records import (
    HEADER,
    VERSION,
    Alive,
    Answer,
    Ask,
    Echo,
    Late,
    Moved,
    Probe,
    Tick,
    headers_of_reply,
    headers_of_request,
    is_proven,
    parts_of,
    read_reply,
    read_request,
)
from coordinator.state_log.owner_record import Owner, decode_owner, encode_owner

KEY = b"the key of a request"
_OF_BOTH = {"id": "i", "asker": "a", "group_id": "billing", "reply_to": 3, "reply_key": KEY, "process": "p"}
PROBE = Probe(**_OF_BOTH, tenure="t", waiting=("r1", "r2"))
ASK = Ask(**_OF_BOTH, tenure="t", not_after_ms=5, protocol="4", name="Heartbeat", host="h", part=1, parts=2)
REQUESTS: list[Any] = [PROBE, ASK, Tick(process="p")]
REPLIES: list[Any] = [
    Alive(id="i", asker="a", tenure="t", clock_ms=7, unknown=("r1",)),
    Moved(id="i", asker="a"),
    Late(id="i", asker="a", clock_ms=7),
    Answer(id="i", asker="a", part=1, parts=2),
    Echo(id="i", asker="a"),
]
NOT_OURS: list[Any] = [None, [], [("other", b"\x01x")], [(HEADER, b"")], [(HEADER, b"\x01")], [(HEADER, b"\x01\xff{")]]


def with_more_fields(message: Any) -> Any:
    """The message as a later version has it, with a field more."""
    kind = type(message)
    config: dict[str, Any] = {"frozen": True, "kw_only": True, "tag": kind.__struct_config__.tag}
    config["omit_defaults"] = False
    later = msgspec.defstruct(kind.__name__, [("later", tuple, ("a", 1))], bases=(kind,), **config)
    return later(**msgspec.structs.asdict(message))


def read(message: Any) -> Any:
    """The message as it is read of the record that has it."""
    if type(message) in map(type, REQUESTS):
        return read_request(headers_of_request(message))
    return read_reply(headers_of_reply(message, KEY))


@pytest.mark.parametrize("message", [*REQUESTS, *REPLIES])
def test_a_message_is_read_as_it_was_written_also_with_more_fields(message: Any) -> None:
    assert read(message) == message
    headers = headers_of_reply(message, KEY)
    headers[0] = (HEADER, headers[0][1][:1] + msgspec.msgpack.encode(with_more_fields(message)))
    assert (read_request if message in REQUESTS else read_reply)(headers) == message


def test_an_owner_is_read_with_fewer_and_with_more_fields() -> None:
    before = Owner(installation_id="i", process="p", host="h", pid=1)
    earlier = decode_owner(encode_owner(before), "billing")
    assert (earlier.tenure, earlier.answers, earlier.released) == ("", 0, False)
    now = msgspec.structs.replace(before, tenure="t", answers=VERSION, patience_s=12.0)
    assert decode_owner(encode_owner(with_more_fields(now)), "billing") == now


@pytest.mark.parametrize("message", [*REQUESTS, *REPLIES])
def test_requests_and_answers_alone_have_the_version(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an owner lives is asked and answered alike by all versions."""
    written = headers_of_reply(message, KEY)
    monkeypatch.setattr(host_records, "VERSION", VERSION + 1)
    of_one_version = isinstance(message, (Ask, Answer))
    reads = read_request if message in REQUESTS else read_reply
    assert reads(written) == (None if of_one_version else message)
    later = headers_of_reply(message, KEY)
    assert reads(later) == message
    monkeypatch.undo()
    assert reads(later) == (None if of_one_version else message)


@pytest.mark.parametrize("headers", NOT_OURS)
def test_records_of_other_programs_are_passed_over(headers: Any) -> None:
    assert read_request(headers) is None
    assert read_reply(headers) is None
    assert not is_proven(headers, KEY, b"")


def test_a_reply_is_proven_only_as_it_was_written() -> None:
    headers = headers_of_reply(REPLIES[3], KEY, b"body")
    assert is_proven(headers, KEY, b"body")
    assert not is_proven(headers, b"another key", b"body")
    assert not is_proven(headers, KEY, b"another body")
    assert not is_proven([*headers_of_reply(REPLIES[1], KEY)[:1], headers[1]], KEY, b"body")


@pytest.mark.parametrize("size", [0, 1, host_records.PART_BYTES, host_records.PART_BYTES + 1])
def test_the_parts_of_a_body_are_the_body(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    parts = list(parts_of(body[:size]))
    assert b"".join(part for _, _, part in parts) == body[:size]
    assert [(number, count) for number, count, _ in parts] == [(n, len(parts)) for n in range(len(parts))]


@pytest.mark.parametrize(
    "fields",
    [
        {"part": 2, "parts": 2},
        {"part": -1},
        {"parts": host_records.MOST_BODY_BYTES // host_records.PART_BYTES + 1},
        {"host": "h" * host_records.MOST_ASK_BYTES},
        {"reply_to": host_records.PARTITIONS},
        {"reply_to": -1},
    ],
)
def test_a_request_that_no_asker_writes_is_passed_over(fields: dict[str, Any]) -> None:
    assert read_request(headers_of_request(msgspec.structs.replace(ASK, **fields))) is None


def test_a_message_of_any_size_is_passed_over_unread() -> None:
    waiting = ("r" * 64,) * (host_records.MOST_HEADER_BYTES // 64)
    assert read_request(headers_of_request(msgspec.structs.replace(PROBE, waiting=waiting[:1000]))) is not None
    assert read_request(headers_of_request(msgspec.structs.replace(PROBE, waiting=waiting))) is None
    assert read_request([(HEADER, b"\x01" + b"\x91" * 100_000)]) is None
