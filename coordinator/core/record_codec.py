"""Encodes log records as msgpack, a large record in several parts, and decodes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar, Union

import msgspec

from coordinator.core.log_records import (
    MembersForgotten,
    OffsetsAltered,
    PlanAcquired,
    PlanKept,
    PlanStaged,
    RangesAdded,
    Record,
    RunsChanged,
)
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.values import SharePartitionKey

Cut = TypeVar("Cut")
Decoded = TypeVar("Decoded")
ByPartition: TypeAlias = tuple[tuple[str, int, tuple[Cut, ...]], ...]

MOST_BYTES = 512 * 1024
"""One stored record has up to this many bytes, half of what a broker accepts by default. A larger log record is stored
in parts."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Union[tuple(Record.__subclasses__())])  # noqa: UP007


class RecordHead(msgspec.Struct, frozen=True):
    """A log record without its lists, which take most of the time to decode. Fields that the record's class does not
    have are None."""

    type: str
    topic_id: str | None = None
    partition: int | None = None
    plan_id: int | None = None
    member_id: str | None = None
    acquired_ms: int | None = None
    query_id: str | None = None
    query_name: str | None = None
    member_name: str | None = None
    client_id: str | None = None
    client_host: str | None = None


_head_decoder = msgspec.msgpack.Decoder(RecordHead)


class UnreadableRecord(ShareGroupError):
    """A state record of share group {group_id} can't be read ({reason}). The record was written by a newer version, or
    is damaged. It is not skipped, so the group is not loaded. Run the version that wrote it, or restore the state
    store."""


def encode_record(record: Record) -> bytes:
    """Returns the record as msgpack, tagged with its name."""
    return _encoder.encode(record)


def encode_records(records: Iterable[Record]) -> list[bytes]:
    """The durable records, encoded. A record of more than MOST_BYTES becomes several with the same effect together."""
    return [data for record in records if record.durable for data in _encoded(record)]


def _encoded(record: Record) -> Iterator[bytes]:
    data = encode_record(record)
    if len(data) <= MOST_BYTES:
        yield data
        return
    parts = _parts(record, 2 * len(data) // MOST_BYTES)
    for part in parts:
        yield from _encoded(part) if len(parts) > 1 else (data,)


def _parts(record: Record, wanted: int) -> list[Record]:
    """Returns the record as about ``wanted`` records; the record itself if it has no list that can be cut."""
    if isinstance(record, OffsetsAltered):
        return [msgspec.structs.replace(record, starts=starts) for starts in _cut(record.starts, wanted)]
    if isinstance(record, RunsChanged):
        return [msgspec.structs.replace(record, runs=runs) for runs in _cut(record.runs, wanted)]
    if isinstance(record, PlanStaged):
        # Replay adds the outcomes of one record to those of the other.
        return [msgspec.structs.replace(record, partitions=part) for part in _spread(record.partitions, wanted)]
    if isinstance(record, PlanAcquired | PlanKept) and record.ranges:
        first, *rest = _spread(record.ranges, wanted)
        added = RangesAdded(plan_id=record.plan_id, member_id=record.member_id, ranges=())
        return [
            msgspec.structs.replace(record, ranges=first),
            *(msgspec.structs.replace(added, ranges=part) for part in rest),
        ]
    if isinstance(record, MembersForgotten):
        of_first, *of_others = _cut(record.member_ids, wanted)
        return [
            msgspec.structs.replace(record, member_ids=of_first),
            *(msgspec.structs.replace(record, member_ids=ids, unreported_losses=None) for ids in of_others),
        ]
    if isinstance(record, RangesAdded):
        return [msgspec.structs.replace(record, ranges=part) for part in _spread(record.ranges, wanted)]
    return [record]


def _spread(partitions: ByPartition[Cut], wanted: int) -> list[ByPartition[Cut]]:
    """Returns the partitions with their entries in about ``wanted`` parts of the same form, with equal numbers of
    entries."""
    total = sum(len(entries) for _, _, entries in partitions)
    most = max(1, -(-total // wanted))
    parts: list[list[tuple[str, int, tuple[Cut, ...]]]] = [[]]
    room = most
    for topic_id, index, entries in partitions:
        at = 0
        while at < len(entries):
            if not room:
                parts.append([])
                room = most
            taken = entries[at : at + room]
            parts[-1].append((topic_id, index, taken))
            at, room = at + len(taken), room - len(taken)
    return [tuple(part) for part in parts]


def _cut(entries: tuple[Cut, ...], wanted: int) -> list[tuple[Cut, ...]]:
    most = max(1, -(-len(entries) // wanted))
    return [entries[at : at + most] for at in range(0, len(entries), most)]


def decode_record(data: bytes, group_id: str = "?") -> Record:
    """Returns the record that was encoded.

    Raises:
        UnreadableRecord: the bytes are damaged, or a version wrote them that this one can't read.
    """
    record = _decoded(_decoder, data, group_id)
    for runs in _runs_of(record):
        reached = -1
        for first, last, _ in runs:
            if not reached < first <= last:
                reason = f"offsets {first} to {last} come after {reached}"
                raise UnreadableRecord(group_id=group_id, reason=reason)
            reached = last
    return record


def _runs_of(record: Record) -> Iterable[Iterable[tuple[int, int, Any]]]:
    """The lists of (first, last, anything) in the record. Each must be ascending and disjoint."""
    if isinstance(record, RunsChanged):
        return (record.runs,)
    if isinstance(record, PlanStaged):
        return (runs for _, _, runs in record.partitions)
    if isinstance(record, PlanAcquired | PlanKept | RangesAdded):
        return (((first, last, None) for first, last in ranges) for _, _, ranges in record.ranges)
    return ()


def decode_head(data: bytes, group_id: str = "?") -> RecordHead:
    """The record that was encoded, without its lists. Raises as :func:`decode_record`."""
    return _decoded(_head_decoder, data, group_id)


_NAME_AT = 7
"""The name of a record's class begins at this byte: after the number of fields, and the key ``type``."""


class RunsFilter:
    """Tells by the first bytes of a record whether it needs to be decoded for the history of a share partition's
    record. While a large record is decoded, no other thread of the process runs."""

    def __init__(self, key: SharePartitionKey) -> None:
        self._of_key = encode_record(RunsChanged(**key._asdict(), runs=()))[:-1]  # the last byte is the number of runs

    def __repr__(self) -> str:
        return f"<RunsFilter {self._of_key!r}>"

    def skips(self, data: bytes) -> bool:
        """Whether the record has nothing but runs of another share partition, or further ranges of a plan."""
        return data.startswith((b"RunsChanged", b"RangesAdded"), _NAME_AT) and not data.startswith(self._of_key)

    def has_outcomes_alone(self, data: bytes) -> bool:
        """Whether the record has outcomes that sinks decided, and names no query."""
        return data.startswith(b"PlanStaged", _NAME_AT) and b"query_" not in data


def _decoded(decoder: msgspec.msgpack.Decoder[Decoded], data: bytes, group_id: str) -> Decoded:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecord(group_id=group_id, reason=str(error)) from error
