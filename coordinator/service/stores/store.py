"""The state store: makes groups' records durable. Every store keeps the promises of this module, which
``tests/support/store_contract.py`` checks.

A store is given decisions, and gives back the bytes that it was given. It derives formats of its own, such as Kafka's,
from the decisions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from coordinator.core.log_records import Record
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import ShareGroupError


class StoreRefused(Exception):
    """The append was not written, and never will be."""


class StoreFenced(StoreRefused):
    """Another owner has fenced this one. ``error`` is the error for the group's members."""

    def __init__(self, error: ShareGroupError) -> None:
        super().__init__(str(error))
        self.error = error


class StoreOutcomeUnknown(Exception):
    """The append may have been written, or may still be written. The next ``load`` finds out."""


class StorePartlyFailed(Exception):
    """The append failed for some groups: ``failed`` has one of the errors above for each. For the others it is
    durable."""

    def __init__(self, failed: Mapping[str, Exception]) -> None:
        super().__init__("; ".join(f"{group_id}: {error}" for group_id, error in failed.items()))
        self.failed = dict(failed)


class Append(NamedTuple):
    """The part of one group in an append: ``records``, which ``group`` has replayed, and ``data``, the same records as
    the bytes that a load gives back."""

    group: ShareGroup
    records: Sequence[Record]
    data: Sequence[bytes]


class StoredRecord(NamedTuple):
    """A record, and its sequence number in the store for error texts. ``data`` None: a snapshot begins here, and
    replaces everything before it."""

    sequence: int
    data: bytes | None


@contextlib.contextmanager
def reading(records: Iterable[StoredRecord]) -> Iterator[None]:
    """A context manager that ends the reading of a log, also of one that can't be read to its end: SQLite would go on
    showing the file as it was then."""
    try:
        yield
    finally:
        if isinstance(records, Generator):
            records.close()


class Store(Protocol):
    """Keeps groups' records. A group has one owner at a time. One thread at a time uses a store, except where a method
    says otherwise."""

    @property
    def holding_back(self) -> Collection[str]:
        """Groups that should get a new snapshot: their old one keeps other groups' records from being pruned."""

    @property
    def name(self) -> str:
        """The store's name for logs and error texts."""

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        """Yields the group's records in append order; none for an unknown group. After the load no append with an
        unknown outcome can still become durable, and no former owner can append.

        Raises:
            StateRecordUnreadable, StateBatchUnreadable: a record is damaged; the error names it.
            StoreRefused: the store can't answer.
            ShareGroupError: another process owns the group, or another version of sharegroup wrote it."""

    def peek(self, group_id: str) -> Iterable[StoredRecord] | None:
        """Yields the records as ``load`` does, and leaves the group to its owner. None: only the owner can read it."""

    def claim(self, group_id: str) -> None:
        """Note that a new member wants the group here: the next load may take the group from its owner."""

    def tenure(self, group_id: str) -> str:
        """The id of the load by which this process took the group; empty if this process does not serve it, or other
        processes can't ask. Any thread may call it."""

    def kept(self, group_id: str) -> bool:
        """Whether this process alone has owned the group between its last two loads."""

    def release(self, group_id: str) -> None:
        """Closes the group: this process does not serve it any more."""

    def give_up(self, group_id: str) -> None:
        """Writes that any process may take the group at once, and closes it. If the write fails, the next owner has to
        ask this process first."""

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        """Appends records of several groups, by group id. They are durable when this returns: for each group all of
        them or none. An append of no records proves that this process still owns the group.

        Raises:
            StoreRefused, StoreOutcomeUnknown: for all groups.
            StorePartlyFailed: for some of the groups."""

    def must_prove(self, group_id: str) -> bool:
        """Whether an answer about the group needs an append first, because another process may own the group by now."""

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        """Replaces the group's log by ``data``, the records that rebuild the group as it is now. After a failure the
        log is the old one or the new one, never a mixture.

        Raises:
            StoreRefused: the log is the old one.
            StoreOutcomeUnknown: the log is the old one or the new one."""

    def snapshot_in_steps(
        self, group: ShareGroup, data: Iterator[Sequence[bytes]], tail: list[bytes], now_ms: int
    ) -> Iterator[None]:
        """Replaces the group's log as ``replace_with_snapshot`` does, in steps between which the group goes on.
        ``data``: the records of the group as it was before the first step, some for each step. ``tail``: the records
        that were appended since, which the caller adds, and which the last step writes at the snapshot's end. Until
        then the log is the old one with these records; a snapshot that is not finished changes nothing. Raises
        StoreRefused or StoreOutcomeUnknown as ``replace_with_snapshot`` does, at any step."""

    def close(self) -> None:
        """Closes the store, so that the next owner can open it."""


class SoleOwner:
    """The part of a store that has one owner for all its groups. Each answer needs an append, which is cheap here."""

    holding_back: Collection[str] = ()

    def peek(self, group_id: str) -> Iterable[StoredRecord] | None:
        """Returns None: the store's owner owns all groups."""

    def claim(self, group_id: str) -> None:
        """Does nothing: the store's owner owns every group."""

    def tenure(self, group_id: str) -> str:
        return ""

    def kept(self, group_id: str) -> bool:
        return True

    def release(self, group_id: str) -> None:
        """Does nothing: no group has anything open."""

    def give_up(self, group_id: str) -> None:
        """Does nothing: no other process can take a group."""

    def must_prove(self, group_id: str) -> bool:
        return True

    def snapshot_in_steps(
        self: Store, group: ShareGroup, data: Iterator[Sequence[bytes]], tail: list[bytes], now_ms: int
    ) -> Iterator[None]:
        """Collects some records in each step, and writes all of them in the last step."""
        made: list[bytes] = []
        for each in data:
            made += each
            yield
        self.replace_with_snapshot(group, [*made, *tail], now_ms)
