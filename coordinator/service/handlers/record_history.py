"""Reads the history of a record from the state log, for a person.

Rule: a read is limited in time and in bytes, and one runs at a time. No read runs on the thread of an event loop, so no
member waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from coordinator.core.looks.history import Logged, RecordHistory
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import HistoryRead, ReadHistory
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupIdNotFound, InvalidRequest, UnknownSharePartition
from coordinator.protocol.values import SharePartitionKey
from coordinator.service.runtime.transaction import Transaction, looking

MOST_BYTES = 64 << 20
"""One history reads up to this many bytes of the group's records, from the newest on."""
MOST_S = 5.0
"""A history reads no further part of the log after this many seconds."""
MOST_ENTRIES = 1_000
WAIT_S = 2.0
"""A read waits this many seconds for the previous read to end; then its client tries again."""


class StoredLogs(Protocol):
    """The logs of a state store's groups."""

    def log_parts(self, group_id: str) -> Iterator[list[Logged]]:
        """The group's records, the newest part of the log first, each part in the order of the log."""


class RecordLocation(NamedTuple):
    """A share partition of a group, and the group's incarnation, with which the ids of its plans begin."""

    key: SharePartitionKey
    incarnation: str


def locate(request: ReadHistory) -> Transaction[RecordLocation]:
    """Find the share partition that the request names.

    Raises:
        GroupIdNotFound, UnknownSharePartition: there is none.
        InvalidRequest: the offset is negative."""

    def look(group: ShareGroup) -> RecordLocation:
        if not group.exists:
            raise GroupIdNotFound(group_id=group.group_id)
        if request.offset < 0:
            raise InvalidRequest(what=f"{request.offset} is no offset.")
        key = SharePartitionKey(group.topics.get(request.topic, ""), request.partition)
        if key not in group.partitions:
            raise UnknownSharePartition(group_id=group.group_id, partition=f"{request.topic}-{request.partition}")
        return RecordLocation(key, group.incarnation)

    return looking(look)


class Histories:
    """Reads histories from these logs, one at a time."""

    def __init__(self, stored: StoredLogs) -> None:
        self._stored = stored
        self._reading = threading.Lock()

    def read(self, request: ReadHistory, location: RecordLocation) -> HistoryRead:
        """The history of the record at the request's offset. Raises CoordinatorNotAvailable if others are read."""
        if not self._reading.acquire(timeout=WAIT_S):
            raise CoordinatorNotAvailable(group_id=request.group_id, reason="it reads other histories; try again soon")
        try:
            return self._read(request, location)
        finally:
            self._reading.release()

    def _read(self, request: ReadHistory, location: RecordLocation) -> HistoryRead:
        history, began_s = RecordHistory(location.key, request.offset), time.monotonic()
        read_bytes, is_cut = 0, False
        for part in self._stored.log_parts(request.group_id):
            history.add(part)
            read_bytes += sum(len(data) for _, data in part)
            if history.is_whole:
                break
            if read_bytes > MOST_BYTES or time.monotonic() - began_s > MOST_S:
                is_cut = True
                break
        entries = history.entries()
        most = max(1, min(request.limit, MOST_ENTRIES))
        shown = tuple(
            msgspec.structs.replace(each, plan_id=f"{location.incarnation}.{each.plan_id}") if each.plan_id else each
            for each in entries[-most:]
        )
        return HistoryRead(
            entries=shown,
            is_whole=history.is_whole and len(entries) <= most,
            more=len(entries) - len(shown),
            is_cut=is_cut,
        )
