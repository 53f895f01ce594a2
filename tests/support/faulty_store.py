"""A store around another one that fails when a test says so: before the append, after it, or by dying."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from coordinator.service.store import Store, StoreDoubtful, StoredRecord, StoreRefused

Fault = Literal["refuse", "doubt, not written", "doubt, written", "die before the append", "die after the append"]


class Died(BaseException):
    """The process is gone: nothing catches it, nothing is answered."""


class FaultyStore:
    """`fault` holds for the next append (or, with `on_load`, the next load); `appends` counts those that were asked."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.fault: Fault | None = None
        self.load_fault = False
        self.appends = 0

    @property
    def name(self) -> str:
        return self.inner.name

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        if self.load_fault:
            self.load_fault = False
            raise StoreRefused("load was refused")
        return self.inner.load(group_id)

    def append(self, appends: Mapping[str, Sequence[bytes]]) -> None:
        self.appends += 1
        fault, self.fault = self.fault, None
        if fault == "refuse":
            raise StoreRefused("append was refused")
        if fault == "doubt, not written":
            raise StoreDoubtful("append is in doubt")
        if fault == "die before the append":
            raise Died
        self.inner.append(appends)
        if fault == "doubt, written":
            raise StoreDoubtful("append is in doubt")
        if fault == "die after the append":
            raise Died

    def replace_with_snapshot(self, group_id: str, records: Sequence[bytes]) -> None:
        self.inner.replace_with_snapshot(group_id, records)

    def group_ids(self) -> Sequence[str]:
        return self.inner.group_ids()

    def close(self) -> None:
        self.inner.close()
