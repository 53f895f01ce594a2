"""A state partition in memory, with a reader and a writer in the place of Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from coordinator.service.runtime.runtime import CoordinatorRuntime
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.stores.kafka.group_writer import LogShrunk
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.foreign_records import ForeignRecords
from coordinator.state_log.owner_record import Owner
from tests.support.asked_hosts import GROUP

Entries = list[tuple[bytes, bytes | None] | None]
"""A state partition: keys and values, and None for a transaction's marker."""


class Reader:
    """Reads the partition by the rules of LogReader."""

    was_pruned = False

    def __init__(self, topic: Any, partition: int, *, start: int | None = None, committed: bool = True) -> None:
        self.copies = ForeignRecords()
        self._log: Entries = topic.log
        self.position = start if start is not None and start <= len(self._log) else 0

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None: ...

    def end(self) -> int:
        return len(self._log)

    def read_to(self, end: int) -> Iterator[Any]:
        found = [(n, entry) for n, entry in enumerate(self._log) if entry is not None and self.position <= n < end]
        self.position = max(self.position, end)
        for n, (key, value) in found:
            yield SimpleNamespace(key=lambda k=key: k, value=lambda v=value: v, offset=lambda n=n: n, headers=list)


class Writer:
    """Appends to the partition by the rules of GroupWriter."""

    def __init__(self, topic: Any, partition: int, group_id: str) -> None:
        self._log: Entries = topic.log

    def connect(self) -> None: ...

    def fence(self) -> None: ...

    def close(self) -> None: ...

    def write(self, entries: Sequence[Any], *, end: int = 0) -> int:
        first = len(self._log)
        if first < end:
            self._log.extend([None] * (len(entries) + 1))
            raise LogShrunk(f"it ended at {end}, and the next record got offset {first}")
        self._log.extend([*entries, None])
        return first


class Host:
    """A coordinator on demand of a host, over a partition that all hosts share. The module's Reader and Writer have to
    stand in kafka_store for Kafka's. Each question takes ten milliseconds. ``answers``: as in the owner's record."""

    def __init__(self, log: Entries, name: str = "host-1", *, answers: int = 0, **topic: Any) -> None:
        known = {"name": "share-group-state", "verify": lambda: None, "offset": lambda *_, **__: len(log), "log": log}
        self.topic: Any = SimpleNamespace(**known, **topic)
        self.living = LivingOwner(Owner(installation_id=name, process=name, host=name, pid=1, answers=answers))
        self.store = KafkaStore(self.topic, 0, self.living, updates_per_snapshot=500)
        self.runtime = CoordinatorRuntime(self.store, snapshot_after=10)
        self._now_ms = 1_000_000

    def ask(self, command: Any, access: Access = Access.SERVE, group_id: str = GROUP) -> Any:
        """The answer, or the error."""
        answer = self.runtime.submit(group_id, one(command), access)
        self.step()
        return answer.exception() or answer.result()

    def step(self, ms: int = 10) -> None:
        self._now_ms += ms
        self.runtime.step(self._now_ms)
