"""Bounded lists of the offsets that plans lost or left out: the counts are exact, and few ranges are named.

If a log loses scattered records, there are as many ranges as records. Every list that is kept, stored or sent goes
through :func:`bounded`, so that no log record and no reply grows with the number of ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from coordinator.protocol.messages import LeftOut
from coordinator.protocol.values import Int64, Offset

MOST = 300
"""A list has up to this many entries, so that it is small in a log record even with the longest topic names."""
FEW = 20
"""If a list would have more than MOST ranges, only this many of each partition are named."""


class LeftOutRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that a plan, or the group, goes on without, as the log stores them. The fields are those of
    :class:`~coordinator.protocol.messages.LeftOut`, which clients get."""

    topic: str
    topic_id: str
    partition: Int64
    first: Int64
    last: Int64
    count: Offset
    reason: str


def in_reply(left_out: Iterable[LeftOutRange]) -> tuple[LeftOut, ...]:
    """The entries for a reply."""
    return tuple(LeftOut(**msgspec.structs.asdict(entry)) for entry in left_out)


def bounded(left_out: Iterable[LeftOutRange]) -> tuple[LeftOutRange, ...]:
    """Returns up to MOST entries that count the same offsets, ascending by topic and partition. No offset is named
    twice. Neighbours, and ranges that overlap, are joined. If that leaves too many entries, these steps follow until
    they are few enough:

    1. The first FEW ranges of each partition stay. One entry sums up its others: it counts some of the offsets between
       its first and its last one.
    2. Each partition has one such entry.
    3. One entry without a topic counts the offsets of all partitions that have none.
    """
    entries = sorted(left_out, key=_order)
    if not entries:  # as in nearly every plan
        return ()
    for few in (len(entries), FEW, 0):
        entries = [entry for same in _by_partition(entries) for entry in _summed(_joined(same), few)]
        if len(entries) <= MOST:
            return tuple(sorted(entries, key=_order))
    unnamed = [entry for entry in entries if not entry.topic]
    named = [entry for entry in entries if entry.topic]
    rest = [*unnamed, *named[MOST - 1 :]]
    reasons = {entry.reason for entry in rest}
    total = LeftOutRange(
        topic="",
        topic_id="",
        partition=-1,
        first=-1,
        last=-1,
        count=count(rest),
        reason=reasons.pop() if len(reasons) == 1 else "several",
    )
    return (total, *named[: MOST - 1])


def count(left_out: Iterable[LeftOutRange | LeftOut]) -> int:
    """Returns how many offsets the entries count together."""
    return sum(entry.count for entry in left_out)


def _order(entry: LeftOutRange) -> tuple[str, str, int, int]:
    return entry.topic, entry.topic_id, entry.partition, entry.first


def _by_partition(entries: list[LeftOutRange]) -> Iterator[list[LeftOutRange]]:
    """Yield the entries of each partition and reason, ascending."""
    for _, of_partition in groupby(entries, key=lambda entry: (entry.topic, entry.topic_id, entry.partition)):
        by_reason: dict[str, list[LeftOutRange]] = {}
        for entry in of_partition:
            by_reason.setdefault(entry.reason, []).append(entry)
        yield from by_reason.values()


def _joined(entries: list[LeftOutRange]) -> list[LeftOutRange]:
    """The entries with neighbours, and entries that overlap, joined. Entries may overlap, since a log can lose an
    offset again after a reset to an earlier offset."""
    joined: list[LeftOutRange] = []
    first = entries[0]
    last, counted = first.last, first.count
    for entry in entries[1:]:
        if entry.first <= last + 1 and entry.topic:
            last = max(last, entry.last)
            counted = min(counted + entry.count, last - first.first + 1)
            continue
        joined.append(_one(first, last, counted))
        first, last, counted = entry, entry.last, entry.count
    joined.append(_one(first, last, counted))
    return joined


def _summed(entries: list[LeftOutRange], few: int) -> list[LeftOutRange]:
    """The first ``few`` entries, and one for all others."""
    rest = entries[few:]
    if len(rest) <= 1:
        return entries
    return [*entries[:few], _one(rest[0], max(entry.last for entry in rest), count(rest))]


def _one(first: LeftOutRange, last: int, counted: int) -> LeftOutRange:
    if (last, counted) == (first.last, first.count):
        return first
    return msgspec.structs.replace(first, last=last, count=counted)
