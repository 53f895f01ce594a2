"""Kafka's primitive types as bytes: integers, strings, uuids, and the compact forms of KIP-482.

Integers are big-endian. A topic id has 16 bytes in Kafka, and is a text of 22 characters here. Bytes that can't be read
raise an UnreadableRecord that names the position. A value that can't be written raises a ValueError: that is a mistake
of the caller."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import Any

from coordinator.core.record_codec import UnreadableRecord

INT16, INT32, INT64 = (struct.Struct(f">{code}") for code in "hiq")


class ByteReader:
    """Reads the bytes of one key or value from the front. ``group_id`` stands in the errors; "?" until it is known.
    Raises UnreadableRecord: from any method, where the bytes are not what it reads."""

    __slots__ = ("_at", "_data", "group_id")

    def __init__(self, data: bytes, group_id: str = "?") -> None:
        self._data = data
        self._at = 0
        self.group_id = group_id

    def __repr__(self) -> str:
        return f"<ByteReader {self.group_id} byte {self._at} of {len(self._data)}>"

    def unreadable(self, reason: str) -> UnreadableRecord:
        """Returns the error to raise, with the reason and the position in the record."""
        return UnreadableRecord(group_id=self.group_id, reason=f"{reason}, at byte {self._at} of {len(self._data)}")

    def number(self, layout: struct.Struct) -> int:
        (value,) = self.fields(layout)
        return int(value)

    def natural(self, layout: struct.Struct) -> int:
        """Reads an integer that is not negative."""
        value = self.number(layout)
        if value < 0:
            raise self.unreadable(f"{value} is negative")
        return value

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise self.unreadable(f"{count} more bytes are needed and {len(self._data) - self._at} are there")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def string(self) -> str:
        """Reads a string after a length of two bytes; it may not be null."""
        data = self.take(self.number(INT16))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.unreadable("a text is not UTF-8") from error

    def uuid(self) -> str:
        """Reads a uuid, as the 22 characters that Kafka shows."""
        return base64.urlsafe_b64encode(self.take(16)).decode("ascii").rstrip("=")

    def end(self) -> None:
        """Checks that no byte is left."""
        if self._at != len(self._data):
            raise self.unreadable(f"{len(self._data) - self._at} bytes too many")


def number(layout: struct.Struct, *values: int) -> bytes:
    """Integers in a row, as bytes. Raises ValueError if a number does not fit."""
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise ValueError(f"{values} can't be written as {layout.format!r}: {error}") from error


def optional(value: int | None) -> int:
    """The number that Kafka writes: -1 for ``None``."""
    return -1 if value is None else value


def string(text: str) -> bytes:
    """UTF-8 after a length of two bytes: up to 32,767 bytes."""
    data = text.encode("utf-8")
    return number(INT16, len(data)) + data


def uuid(text: str) -> bytes:
    """The 16 bytes of a topic id's text. Raises ValueError if the text is no uuid."""
    try:
        data = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is no topic id: {error}") from error
    if len(data) != 16 or ByteReader(data).uuid() != text:
        raise ValueError(f"{text!r} is no topic id: it has to be 16 bytes as 22 characters")
    return data


def unsigned_varint(value: int) -> bytes:
    """An unsigned varint of up to 32 bits: seven bits a byte, the lowest first."""
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} can't be written as an unsigned varint")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """The fields by rising tag, each after its tag and size."""
    parts = [unsigned_varint(len(fields))]
    for tag, data in sorted(fields.items()):
        parts += [unsigned_varint(tag), unsigned_varint(len(data)), data]
    return b"".join(parts)
