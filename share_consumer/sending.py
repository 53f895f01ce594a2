"""Acknowledgements of a ShareConsumer on their way to the coordinator. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.protocol.messages import AckBatch, PartitionAcks
from share_consumer.message import Message
from share_consumer.record_runs import Unread, batch
from share_source.executor.range_cursor import Key


class Sending:
    """Acknowledgements that are sent together. ``renewed``: the records whose locks are to be renewed, with their
    messages and delivery counts."""

    __slots__ = ("_batches", "_keys", "_records", "renewed")

    def __init__(self) -> None:
        self._batches: dict[tuple[str, int], list[AckBatch]] = {}
        self._keys: dict[str, Key] = {}
        self._records: dict[Key, list[AckBatch]] = {}
        self.renewed: dict[Key, dict[int, tuple[Message, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, key: Key, topic_id: str, batches: list[AckBatch]) -> None:
        self._batches_of(key, topic_id).extend(batches)
        self._records.setdefault(key, []).extend(batches)

    def add_unread(self, unread: Iterable[Unread]) -> None:
        """Add offsets without a record. No callback and no commit result names them."""
        for key, topic_id, missing, kind in unread:
            self._batches_of(key, topic_id).append(batch(*missing, kind))

    @property
    def partitions(self) -> tuple[PartitionAcks, ...]:
        return tuple(
            PartitionAcks(topic_id=topic_id, partition=partition, batches=tuple(batches))
            for (topic_id, partition), batches in self._batches.items()
        )

    @property
    def records(self) -> Iterable[Key]:
        return self._records.keys()

    @property
    def counts(self) -> dict[Key, int]:
        """How many records of each partition have an acknowledgement."""
        return {key: sum(of.last - of.first + 1 for of in batches) for key, batches in self._records.items()}

    @property
    def offsets(self) -> dict[Key, set[int]]:
        return {
            key: {offset for of in batches for offset in range(of.first, of.last + 1)}
            for key, batches in self._records.items()
        }

    def errors(self, by_name: Mapping[str, str]) -> dict[Key, str]:
        return {self._keys[name]: code for name, code in by_name.items() if name in self._keys}

    def all_failed(self, code: str) -> dict[Key, str]:
        return dict.fromkeys(self._keys.values(), code)

    def _batches_of(self, key: Key, topic_id: str) -> list[AckBatch]:
        self._keys[f"{topic_id}:{key[1]}"] = key
        return self._batches.setdefault((topic_id, key[1]), [])


class UnreadOffsets:
    """The offsets that a ShareConsumer acquired and that have no record. The next request acknowledges them.
    ``ordered``: the group of the acquired records is ordered."""

    def __init__(self) -> None:
        self.ordered = False
        self._unread: list[Unread] = []

    def add_unread(self, unread: Iterable[Unread]) -> None:
        self._unread += unread

    def take_unread(self) -> Sending:
        """Take these offsets, to send their acknowledgements."""
        sending = Sending()
        unread, self._unread = self._unread, []
        sending.add_unread(unread)
        return sending
