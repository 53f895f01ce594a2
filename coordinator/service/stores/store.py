"""The Persister: where groups' records become durable. Every store keeps the promises that are written here.

``tests/support/store_contract.py`` runs them against each store. A store neither reads nor makes records: records are
bytes to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from coordinator.core.records import Record
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import ShareGroupError
from coordinator.state_log.partition_log import KeyValue

Shown: TypeAlias = Mapping[str, Sequence[KeyValue]]
"""By group, records of the state log that are not ours, as Kafka's tools read them."""
NOTHING: Shown = MappingProxyType({})


class StoreRefused(Exception):
    """The append surely was not written, and never will be."""


class StoreFenced(StoreRefused):
    """Another owner has the group. ``error`` is what its members are told."""

    def __init__(self, error: ShareGroupError) -> None:
        super().__init__(str(error))
        self.error = error


class StoreOutcomeUnknown(Exception):
    """The append may have been written, or may still be. The next ``load`` settles it."""


class StorePartlyFailed(Exception):
    """The append of these groups failed, each with one of the errors above; the others' is durable."""

    def __init__(self, failed: Mapping[str, Exception]) -> None:
        super().__init__("; ".join(f"{group_id}: {error}" for group_id, error in failed.items()))
        self.failed = dict(failed)


class StoredRecord(NamedTuple):
    """A record with its place in the store, for errors that name it. ``data`` None: a snapshot begins here, and what
    came before it is not the group any more."""

    sequence: int
    data: bytes | None


class Store(Protocol):
    """One owner of a group at a time; used by one thread at a time."""

    @property
    def holding_back(self) -> Collection[str]:
        """Groups that ought to have a new snapshot, since their old one keeps other groups' records from going."""

    @property
    def name(self) -> str:
        """Which store this is, for people."""

    @property
    def is_current(self) -> bool:
        """Whether its owner may end sessions by itself: false while others may have taken its groups."""

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        """The group's records in append order; none for an unknown group. After it nothing that was in doubt before
        can still arrive, and whoever owned the group before can append nothing. StateRecordUnreadable names a damaged
        one; StoreRefused if the store can't answer; a ShareGroupError if the group is somebody else's."""

    def peek(self, group_id: str) -> Iterable[StoredRecord] | None:
        """As ``load``, to look at a group that stays whose it is; None: only its owner can look at it."""

    def claim(self, group_id: str) -> None:
        """A new member asks for the group here: the next load may take it from whoever has it."""

    def release(self, group_id: str) -> None:
        """Nobody asks for it any more: what is kept open for it can go."""

    def state_records(self, group: ShareGroup, records: Sequence[Record] | None, now_ms: int) -> Sequence[KeyValue]:
        """What the group's replayed ``records`` (None: all that is known of it) come to for Kafka's tools; nothing in a
        store that they don't read."""

    def append(self, appends: Mapping[str, Sequence[bytes]], shown: Shown = NOTHING) -> None:
        """Durable when this returns: of each group all of it or nothing, ``shown`` (its state records) with it. An
        append of nothing proves that the group is still ours. Raises StoreRefused or StoreOutcomeUnknown, which then
        hold for all groups, or StorePartlyFailed."""

    def must_prove(self, group_id: str) -> bool:
        """Whether an answer about the group may be given only after an append: it may be somebody else's by now."""

    def replace_with_snapshot(self, group_id: str, records: Sequence[bytes], shown: Sequence[KeyValue] = ()) -> None:
        """The group's log is these records from now on, and what is shown of it ``shown``; when it fails, the old log
        or the new one, never a mixture. Raises StoreRefused or StoreOutcomeUnknown."""

    def close(self) -> None:
        """Let the next owner in."""


class SoleOwner:
    """The part of a store that has one owner for all its groups: nobody else's are in it, and Kafka's tools don't read
    it. Each answer is proven, which costs it little."""

    holding_back: Collection[str] = ()
    is_current = True

    def peek(self, group_id: str) -> None:
        """Its owner has all groups."""

    def claim(self, group_id: str) -> None:
        """Nobody else has the group."""

    def release(self, group_id: str) -> None:
        """Nothing is kept open for a group."""

    def state_records(self, group: ShareGroup, records: Sequence[Record] | None, now_ms: int) -> tuple[KeyValue, ...]:
        return ()

    def must_prove(self, group_id: str) -> bool:
        return True
