"""The brokers, as far as the simulation needs them: one topic, its partitions' logs as [start, end), and poison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from coordinator.service.brokers.subscription import TopicPartitionId
from coordinator.service.runtime.transactions import Facts

TOPIC, TOPIC_ID = "orders", "T"
Record = tuple[int, int]
"""A partition and an offset."""


class Broker:
    """Logs grow, lose their oldest records, and become more."""

    def __init__(self, partitions: int, records: int) -> None:
        self.starts = [0] * partitions
        self.ends = [records] * partitions
        self.poison: set[Record] = set()
        self.letters: Counter[Record] = Counter()
        """What the dead letter topic holds, by origin."""

    def partitions(self) -> list[TopicPartitionId]:
        return [TopicPartitionId(TOPIC, TOPIC_ID, index) for index in range(len(self.ends))]

    def append(self, partition: int, records: int) -> None:
        self.ends[partition] += records

    def add_partition(self) -> None:
        self.starts.append(0)
        self.ends.append(0)

    def delete_up_to(self, partition: int, offset: int) -> None:
        self.starts[partition] = max(self.starts[partition], min(offset, self.ends[partition]))

    def has(self, record: Record) -> bool:
        return self.starts[record[0]] <= record[1] < self.ends[record[0]]

    def facts(self) -> Facts:
        """What a coordinator learns that asks now."""
        known = self.partitions()
        return Facts(
            partitions=known,
            log_starts={p.where: self.starts[p.partition] for p in known},
            ends={p.where: self.ends[p.partition] for p in known},
        )

    def readable(self, records: Iterable[Record]) -> list[Record]:
        return [record for record in records if self.has(record)]
