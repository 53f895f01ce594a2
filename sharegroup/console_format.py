"""Writes a record as Kafka's console consumers do: with the properties of DefaultMessageFormatter, and its
deserializers.

Rule: the bytes of keys, values and headers are written unchanged, unless a deserializer is named."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from coordinator.config.keys import hint
from coordinator.kafka.record_headers import headers_of

Decode = Callable[[bytes], str]

_TIMESTAMPS = {1: "CreateTime", 2: "LogAppendTime"}
_PRINTED = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
_SEPARATORS = {"key.separator": "\t", "line.separator": "\n", "headers.separator": ",", "null.literal": "null"}
_DESERIALIZERS = ("key.deserializer", "value.deserializer", "headers.deserializer")
PROPERTIES = (*(f"print.{name}" for name in _PRINTED), *_SEPARATORS, *_DESERIALIZERS)
"""The properties that a formatter takes."""


class RecordUnreadable(click.ClickException):
    """A deserializer can't read a record."""


def _number(form: str) -> Decode:
    def decode(data: bytes) -> str:
        if len(data) != struct.calcsize(form):
            raise ValueError(f"such a number has {struct.calcsize(form)} bytes")
        return str(struct.unpack(form, data)[0])

    return decode


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


DESERIALIZERS: dict[str, Decode] = {
    "String": _text,
    "ByteArray": _text,
    "Bytes": _text,
    "Short": _number(">h"),
    "Integer": _number(">i"),
    "Long": _number(">q"),
    "Float": _number(">f"),
    "Double": _number(">d"),
    "Boolean": lambda data: {b"\0": "false", b"\1": "true"}[data],
    "UUID": lambda data: str(uuid.UUID(_text(data))),
}


class _Named(NamedTuple):
    """A deserializer, with the name that the user gave."""

    name: str
    decode: Decode


class RecordFormat:
    """Formats records; its properties are those of DefaultMessageFormatter."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises UsageError if a property or a deserializer is unknown, or a print property neither true nor false."""
        for name in properties:
            if name not in PROPERTIES:
                raise click.UsageError(f"The formatter has no property {name}: {hint(name, PROPERTIES, 'try others')}")
        self._prints = []
        for name in _PRINTED:
            text = properties.get(f"print.{name}", str(name == "value"))
            if (said := text.strip().lower()) not in {"true", "false"}:
                raise click.UsageError(f"print.{name}={text} is neither true nor false")
            if said == "true":
                self._prints.append(name)
        self._separators = {name: properties.get(name, text).encode() for name, text in _SEPARATORS.items()}
        self._decoders: dict[str, _Named] = {}
        for option in _DESERIALIZERS:
            if given := properties.get(option):
                name = given.rpartition(".")[2]
                if (kind := name.removesuffix("Deserializer")) not in DESERIALIZERS:
                    known = ", ".join(DESERIALIZERS)
                    raise click.UsageError(f"{option}={given} is not known; Kafka's own are: {known}")
                self._decoders[option.partition(".")[0]] = _Named(name, DESERIALIZERS[kind])

    def line(self, message: Any) -> bytes:
        """Returns the bytes of one record, with the line separator. Raises RecordUnreadable if a deserializer fails."""
        parts = [self._printed(name, message) for name in self._prints]
        return self._separators["key.separator"].join(parts) + (self._separators["line.separator"] if parts else b"")

    def json(self, message: Any) -> str:
        """Returns everything known of one record as a JSON object, with keys, values and headers as texts."""
        kind, time_ms = message.timestamp()
        return json.dumps(
            {
                "topic": message.topic(),
                "partition": message.partition(),
                "offset": message.offset(),
                "delivery_count": message.delivery_count(),
                "leader_epoch": message.leader_epoch(),
                "timestamp_type": _TIMESTAMPS.get(kind),
                "timestamp": time_ms if kind in _TIMESTAMPS else None,
                "headers": [
                    [name, self._as_text("headers", each, message)] for name, each in headers_of(message) or ()
                ],
                "key": self._as_text("key", message.key(), message),
                "value": self._as_text("value", message.value(), message),
            }
        )

    def _printed(self, name: str, message: Any) -> bytes:
        match name:
            case "timestamp":
                kind, time_ms = message.timestamp()
                return f"{_TIMESTAMPS[kind]}:{time_ms}".encode() if kind in _TIMESTAMPS else b"NO_TIMESTAMP"
            case "delivery":
                return b"Delivery:%d" % message.delivery_count()
            case "epoch":
                epoch = message.leader_epoch()
                return b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch
            case "headers":
                headers = headers_of(message) or ()
                shown = [key.encode() + b":" + self._data(name, data, message) for key, data in headers]
                return self._separators["headers.separator"].join(shown) if shown else b"NO_HEADERS"
            case "key" | "value":
                return self._data(name, getattr(message, name)(), message)
        return f"{name.capitalize()}:{getattr(message, name)()}".encode()

    def _data(self, part: str, data: bytes | None, message: Any) -> bytes:
        if data is None:
            return self._separators["null.literal"]
        if part not in self._decoders:
            return data
        return (self._as_text(part, data, message) or "").encode()

    def _as_text(self, part: str, data: bytes | None, message: Any) -> str | None:
        if data is None:
            return None
        deserializer = self._decoders.get(part, _Named("String", _text))
        try:
            return deserializer.decode(data)
        except (struct.error, KeyError, ValueError) as error:
            record = f"{message.topic()}-{message.partition()}@{message.offset()} ({part}, {len(data)} bytes)"
            raise RecordUnreadable(
                f"Record {record} can't be read by {deserializer.name}: {error}. With --reject-message-on-error such a "
                "record is rejected."
            ) from None
