"""Brokers that lack requests, as some services that speak Kafka's protocol do: their answer to ApiVersions names fewer
requests, or older versions. Clients believe that answer.

The rule: only that answer is changed; every other byte passes as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

API_VERSIONS = 18
LIST_GROUPS, DESCRIBE_GROUPS, DELETE_RECORDS, METADATA = 16, 15, 21, 3
INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN = 22, 24, 25, 26
TRANSACTIONS = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN)
FIRST_FLEXIBLE = 3
"""The version of ApiVersions from which on its answer has compact arrays."""

NONE = -1
"""As the newest version of a request: brokers do not have it."""


class Lacking:
    """The frames of one connection. ``newest``: of some API keys, the newest version that the brokers have, or NONE."""

    def __init__(self, newest: Mapping[int, int]) -> None:
        self._newest = dict(newest)
        self._asked: dict[int, int] = {}
        self._requests, self._answers = b"", b""

    def __repr__(self) -> str:
        return f"<Lacking {self._newest}>"

    def asked(self, chunk: bytes) -> None:
        """Takes note of the client's questions after the versions."""
        frames, self._requests = _frames(self._requests + chunk)
        for frame in frames:
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == API_VERSIONS:
                self._asked[correlation] = version

    def answered(self, chunk: bytes) -> bytes:
        """Returns what the client gets of the bytes so far: whole answers."""
        frames, self._answers = _frames(self._answers + chunk)
        return b"".join(struct.pack(">i", len(frame)) + frame for frame in map(self._changed, frames))

    def _changed(self, frame: bytes) -> bytes:
        (correlation,) = struct.unpack_from(">i", frame)
        version = self._asked.pop(correlation, None)
        if version is None or struct.unpack_from(">h", frame, 4)[0] != 0:
            return frame
        is_flexible = version >= FIRST_FLEXIBLE
        count, at = _uvarint(frame, 6) if is_flexible else (struct.unpack_from(">i", frame, 6)[0] + 1, 10)
        size, kept = (7 if is_flexible else 6), []
        for _ in range(count - 1):
            key, low, high = struct.unpack_from(">hhh", frame, at)
            high = min(high, self._newest.get(key, high))
            if high >= low:
                kept.append(struct.pack(">hhh", key, low, high) + frame[at + 6 : at + size])
            at += size
        length = _as_uvarint(len(kept) + 1) if is_flexible else struct.pack(">i", len(kept))
        return frame[:6] + length + b"".join(kept) + frame[at:]


def _frames(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole frames, without their lengths, and the rest."""
    found, at = [], 0
    while len(data) - at >= 4:
        (length,) = struct.unpack_from(">i", data, at)
        if len(data) - at - 4 < length:
            break
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found, data[at:]


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """The number, and where the next field begins."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return value, at + 1
        at, shift = at + 1, shift + 7


def _as_uvarint(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])
