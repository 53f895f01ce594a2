"""A store whose writes and loads are measured."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from coordinator.core.records import Record
from coordinator.core.share_group import ShareGroup
from coordinator.service.metrics.counters import Counters
from coordinator.service.stores.store import (
    NOTHING,
    Shown,
    Store,
    StoredRecord,
    StoreFenced,
    StoreOutcomeUnknown,
    StorePartlyFailed,
)
from coordinator.state_log.partition_log import KeyValue


class MeasuredStore:
    """Passes all calls on to ``store``; see :class:`Store`."""

    def __init__(self, store: Store, counters: Counters) -> None:
        self._store, self._counters = store, counters

    def __repr__(self) -> str:
        return f"<MeasuredStore {self._store!r}>"

    @property
    def holding_back(self) -> Collection[str]:
        return self._store.holding_back

    @property
    def name(self) -> str:
        return self._store.name

    @property
    def is_current(self) -> bool:
        return self._store.is_current

    def load(self, group_id: str) -> Iterator[StoredRecord]:
        """Yields the records of the store, and counts the load once the last one is taken."""
        begun = time.perf_counter()
        yield from self._store.load(group_id)
        self._counters.loaded(time.perf_counter() - begun)

    def peek(self, group_id: str) -> Iterable[StoredRecord] | None:
        return self._store.peek(group_id)

    def claim(self, group_id: str) -> None:
        self._store.claim(group_id)

    def release(self, group_id: str) -> None:
        self._store.release(group_id)

    def state_records(self, group: ShareGroup, records: Sequence[Record] | None, now_ms: int) -> Sequence[KeyValue]:
        return self._store.state_records(group, records, now_ms)

    def append(self, appends: Mapping[str, Sequence[bytes]], shown: Shown = NOTHING) -> None:
        """Appends, and counts the write, or its failure for each group."""
        begun = time.perf_counter()
        try:
            self._store.append(appends, shown)
        except StorePartlyFailed as partly:
            for error in partly.failed.values():
                self._counters.write_failed(_reason(error))
            raise
        except Exception as error:
            self._counters.write_failed(_reason(error))
            raise
        self._counters.wrote(time.perf_counter() - begun)

    def must_prove(self, group_id: str) -> bool:
        return self._store.must_prove(group_id)

    def replace_with_snapshot(self, group_id: str, records: Sequence[bytes], shown: Sequence[KeyValue] = ()) -> None:
        self._store.replace_with_snapshot(group_id, records, shown)

    def snapshot_in_steps(
        self, group: ShareGroup, records: Iterator[Sequence[bytes]], tail: list[bytes], now_ms: int
    ) -> Iterator[None]:
        return self._store.snapshot_in_steps(group, records, tail, now_ms)

    def close(self) -> None:
        self._store.close()


def _reason(error: Exception) -> str:
    if isinstance(error, StoreFenced):
        return "fenced"
    return "outcome unknown" if isinstance(error, StoreOutcomeUnknown) else "refused"
