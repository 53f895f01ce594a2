"""The Persister: where groups' records become durable. Every store keeps the promises that are written here.

``tests/unit/store_contract.py`` runs them against each store. A store neither reads nor makes records: they are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class StoreRefused(Exception):
    """The append surely was not written, and never will be."""


class StoreDoubtful(Exception):
    """The append may have been written, or may still be. The next ``load`` settles it."""


class StoredRecord(NamedTuple):
    """A record with its place in the group's log, for errors that name it."""

    sequence: int
    data: bytes


class Store(Protocol):
    """One owner at a time; used by one thread at a time."""

    @property
    def name(self) -> str:
        """Which store this is, for people."""

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        """The group's records in append order; none for an unknown group. After it nothing that was in doubt before
        can still arrive. StateRecordUnreadable names a damaged one; StoreRefused if the store can't answer."""

    def append(self, appends: Mapping[str, Sequence[bytes]]) -> None:
        """All of it, or nothing, is durable when this returns. Raises StoreRefused or StoreDoubtful."""

    def replace_with_snapshot(self, group_id: str, records: Sequence[bytes]) -> None:
        """The group's log is these records from now on; when it fails, the old log or the new one, never a mixture.
        Raises StoreRefused or StoreDoubtful."""

    def group_ids(self) -> Sequence[str]:
        """Groups that have records."""

    def close(self) -> None:
        """Let the next owner in."""
