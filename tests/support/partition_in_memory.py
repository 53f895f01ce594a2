"""A state partition in memory, with a reader and a writer in the place of Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from coordinator.service.stores.kafka.group_writer import LogShrunk
from coordinator.state_log.foreign_records import ForeignRecords

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
