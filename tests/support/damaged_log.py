"""Damages record batches of a topic in a running broker's log files.

The broker sends a segment's bytes as they are on the disk, so that the next fetch has the damage. Rule: the broker is
not killed afterwards: its recovery would cut the log off at a batch with a wrong checksum.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from tests.support.kafka_broker import KafkaBroker

CRC, PAYLOAD, RECORD = "crc", "payload", "record"
"""What is wrong: the checksum; with a right one the compressed records; with a right one the first record's length."""

_LENGTH_AT, _CRC_AT, _CHECKED_AT, _LAST_DELTA_AT, _RECORDS_AT = 8, 17, 21, 23, 61
_POLYNOMIAL = 0x82F63B78


class Batch(NamedTuple):
    """A record batch in a segment: its place in the file, and its offsets."""

    at: int
    size: int
    first: int
    last: int


def damage(kafka: KafkaBroker, topic: str, offset: int, what: str, *, partition: int = 0) -> Batch:
    """Damage the batch that has this offset. Returns the batch."""
    log = _log(kafka, topic, partition)
    content = bytearray(log.read_bytes())
    (found,) = (batch for batch in _batches(content) if batch.first <= offset <= batch.last)
    end = found.at + found.size
    if what == CRC:
        content[end - 3] ^= 0x01
    elif what == PAYLOAD:
        middle = (found.at + _RECORDS_AT + end) // 2
        content[middle:end] = bytes(byte ^ 0xFF for byte in content[middle:end])
    else:
        content[found.at + _RECORDS_AT : found.at + _RECORDS_AT + 2] = b"\xff\x7f"  # a length beyond the batch
    if what != CRC:
        crc = crc32c(bytes(content[found.at + _CHECKED_AT : end]))
        struct.pack_into(">I", content, found.at + _CRC_AT, crc)
    with log.open("r+b") as file:
        file.seek(found.at)
        file.write(content[found.at : end])
    return found


def batches_of(kafka: KafkaBroker, topic: str) -> list[Batch]:
    """The batches of the topic's only segment."""
    return _batches(_log(kafka, topic, 0).read_bytes())


def _log(kafka: KafkaBroker, topic: str, partition: int) -> Path:
    (log,) = kafka.directory.rglob(f"{topic}-{partition}/*.log")
    return log


def _batches(content: bytes | bytearray) -> list[Batch]:
    found, at = [], 0
    while at < len(content):
        first, length = struct.unpack_from(">qi", content, at)
        if length == 0:
            break  # a segment's file is allocated ahead
        (last_delta,) = struct.unpack_from(">i", content, at + _LAST_DELTA_AT)
        found.append(Batch(at, length + 12, first, first + last_delta))
        at += length + 12
    return found


def crc32c(content: bytes) -> int:
    """The checksum of a record batch (Castagnoli)."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
