"""Records that anybody with Write on a topic can put before other people's records."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from logging import Logger
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

from tests.support.kafka_broker import KafkaBroker
from tests.support.raw_headers import produce_raw_headers

BOMB_BYTES = 110_000_000
"""More than receive.message.max.bytes: librdkafka unpacks no such batch. zstd makes 4 kB of it."""

OPEN, UNREADABLE = "an open transaction", "a batch that can't be unpacked"


def _bomb(kafka: KafkaBroker, topic: str) -> None:
    large = {"message_max_bytes": 200_000_000, "queue_buffering_max_kbytes": 2_000_000}
    kafka.produce(topic, [bytes(BOMB_BYTES)], partition=0, compression_type="zstd", **large)


def _junk(kafka: KafkaBroker, topic: str) -> None:
    headers = [("sharegroup", b"\xff"), ("__dlq.errors.topic", b"\xff"), ("__dlq.errors.offset", b"x"), ("", b"")]
    kafka.produce(topic, [b"\x00\xff{"], keys=[b"\x00\xff"], partition=0, headers=headers)


HOSTILE: MappingProxyType[str, Callable[[KafkaBroker, str], Any]] = MappingProxyType(
    {
        "a header's name is no text": lambda kafka, topic: produce_raw_headers(kafka.bootstrap, topic, (b"\xff\xfe",)),
        OPEN: lambda kafka, topic: kafka.open_transaction(topic, [b"open"], partition=0),
        UNREADABLE: _bomb,
        "large headers": lambda kafka, topic: kafka.produce(
            topic, [b"x"], partition=0, headers=[("n" * 1_000, b"v" * 400_000), *[("h", b"")] * 50_000]
        ),
        "no key, no value": lambda kafka, topic: kafka.produce(topic, [None], partition=0),
        "junk with our names": _junk,
    }
)
"""By its name, a function that writes such a record to partition 0 of a topic; what it returns must be kept."""


def bytes_kept(thing: Any) -> int:
    """The bytes of all texts and bytes that the thing keeps from being freed."""
    todo, seen, kept = [thing], {id(thing)}, 0
    while todo:
        each = todo.pop()
        kept += sys.getsizeof(each) if isinstance(each, (bytes, bytearray, str)) else 0
        for other in gc.get_referents(each):
            if id(other) not in seen and not isinstance(other, (type, ModuleType, FunctionType, Logger)):
                seen.add(id(other))
                todo.append(other)
    return kept
