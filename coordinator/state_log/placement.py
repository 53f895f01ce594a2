"""Places share groups in partitions of the state topic; reads and writes the record with the number of partitions.

The rule is Kafka's own for group ids (``GroupCoordinatorService.partitionFor``), so that Kafka would look for a group
in the same partition. All records of a group are in one partition, those in Kafka's formats among them."""

from __future__ import annotations

import struct

import msgspec

from coordinator.state_log.record_keys import PLACEMENT, key_head
from coordinator.state_log.value_version import content_of, versioned

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def state_partition_of(group_id: str, partitions: int) -> int:
    """The group's partition of ``partitions``: ``Utils.abs(groupId.hashCode()) % partitions``.

    ``Utils.abs`` is the absolute value, and 0 for the smallest int; it is not Kafka's ``toPositive``, which masks the
    sign away and is used for message keys."""
    code = java_hash_code(group_id)
    return 0 if code == -_SIGN else abs(code) % partitions


def java_hash_code(text: str) -> int:
    """``String.hashCode()``: over UTF-16 code units, in 32 bits with sign."""
    units = text.encode("utf-16-le", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack("<H", units):
        code = (31 * code + unit) & _MASK
    return code - 2 * _SIGN if code & _SIGN else code


class _Placement(msgspec.Struct, frozen=True):
    partitions: int


PLACEMENT_KEY = key_head(PLACEMENT, "")
"""The key of the placement record in partition 0 of the state topic. It names no group."""


def encode_placement(partitions: int) -> bytes:
    """The value of a placement record: the format version, then the number of partitions in msgpack."""
    return versioned(msgspec.msgpack.encode(_Placement(partitions)))


def decode_placement(key: bytes | None, value: bytes | None) -> int | None:
    """Returns the number of partitions in a placement record; None for any other record, and for a damaged one. Raises
    UnknownFormat if another version of sharegroup wrote the placement record."""
    if key != PLACEMENT_KEY or value is None:
        return None
    content = content_of(value)
    try:
        return msgspec.msgpack.decode(content, type=_Placement).partitions
    except msgspec.DecodeError:
        return None
