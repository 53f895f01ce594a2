"""A store around another one that fails when a test orders it: before the append, after it, or by dying."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import GroupTakenOver
from coordinator.service.stores.store import Append, Store, StoredRecord, StoreFenced, StoreOutcomeUnknown, StoreRefused

Fault = Literal[
    "refuse", "fence", "doubt, not written", "doubt, written", "die before the append", "die after the append"
]


class Died(BaseException):
    """The process is gone: nothing catches it, nothing is answered."""


class FaultyStore:
    """`fault` holds for the next append of records, `load_fault` for the next load, `snapshot_fault` for each snapshot;
    `appends`, `loads` and `snapshots` count those asked."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.fault: Fault | None = None
        self.load_fault = False
        self.snapshot_fault: Exception | None = None
        self.appends = self.loads = self.snapshots = 0

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def holding_back(self) -> Collection[str]:
        return self.inner.holding_back

    def load(self, group_id: str) -> Iterable[StoredRecord]:
        self.loads += 1
        if self.load_fault:
            self.load_fault = False
            raise StoreRefused("load was refused")
        return self.inner.load(group_id)

    def peek(self, group_id: str) -> Iterable[StoredRecord] | None:
        return self.inner.peek(group_id)

    def claim(self, group_id: str) -> None:
        self.inner.claim(group_id)

    def kept(self, group_id: str) -> bool:
        return self.inner.kept(group_id)

    def release(self, group_id: str) -> None:
        self.inner.release(group_id)

    def give_up(self, group_id: str) -> None:
        self.inner.give_up(group_id)

    def must_prove(self, group_id: str) -> bool:
        return self.inner.must_prove(group_id)

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        if not any(each.data for each in appends.values()):
            self.inner.append(appends, now_ms)
            return
        self.appends += 1
        fault, self.fault = self.fault, None
        if fault == "refuse":
            raise StoreRefused("append was refused")
        if fault == "fence":
            raise StoreFenced(GroupTakenOver(group_id=next(iter(appends)), owner="another coordinator"))
        if fault == "doubt, not written":
            raise StoreOutcomeUnknown("append is in doubt")
        if fault == "die before the append":
            raise Died
        self.inner.append(appends, now_ms)
        if fault == "doubt, written":
            raise StoreOutcomeUnknown("append is in doubt")
        if fault == "die after the append":
            raise Died

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        self.snapshots += 1
        if self.snapshot_fault is not None:
            raise self.snapshot_fault
        self.inner.replace_with_snapshot(group, data, now_ms)

    def snapshot_in_steps(
        self, group: ShareGroup, data: Iterator[Sequence[bytes]], tail: list[bytes], now_ms: int
    ) -> Iterator[None]:
        self.snapshots += 1
        for _ in self.inner.snapshot_in_steps(group, data, tail, now_ms):
            if self.snapshot_fault is not None:
                raise self.snapshot_fault
            yield

    def close(self) -> None:
        self.inner.close()
