"""The brokers, as far as the simulation needs them: topics, their partitions' logs as [start, end), and poison.

A log keeps its number when its topic is deleted, and one of that name that is created anew gets another id and other
logs: so a record is told from one that lies at its offset now.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.runtime.transactions import Facts, bounds

TOPIC = "orders"
LOGS_OF_A_TOPIC = 100
Record = tuple[int, int]
"""A log's number (of the first topic: its partition) and an offset."""


def log_of(topic_id: str, partition: int) -> int:
    """The number of the log."""
    return int(topic_id[1:]) * LOGS_OF_A_TOPIC + partition


def topic_partition_of(log: int) -> tuple[str, int]:
    """A log's topic id and partition."""
    return f"T{log // LOGS_OF_A_TOPIC}", log % LOGS_OF_A_TOPIC


class Topic(NamedTuple):
    """A topic that exists."""

    name: str
    topic_id: str
    partitions: int

    @property
    def logs(self) -> range:
        first = log_of(self.topic_id, 0)
        return range(first, first + self.partitions)


class Broker:
    """Topics come and go; logs grow, lose their oldest records, and become more. What is gone keeps its ``starts`` and
    ``ends``."""

    def __init__(self, partitions: int, records: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.names: dict[str, str] = {}
        """By topic id, the names of all topics that ever existed."""
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.gone: set[int] = set()
        self.added: set[int] = set()
        """Logs that were added as partitions to an existing topic."""
        self.clock: Callable[[], int] = lambda: 0
        self._written_ms: dict[int, list[int]] = {}
        """By log, when the record of each offset was written."""
        self._created_ms: dict[int, int] = {}
        self.poison: set[Record] = set()
        self.letters: Counter[Record] = Counter()
        """The number of dead letters in the topic, by origin."""
        self.stopped_until_ms = 0
        """All brokers stand still until this time."""
        self.create(TOPIC, partitions, records)

    # --- topics

    def create(self, name: str, partitions: int, records: int = 0, now_ms: int = 0) -> Topic:
        """The topic gets an id that none had before."""
        topic = self.topics[name] = Topic(name, f"T{len(self.names)}", partitions)
        self.names[topic.topic_id] = name
        for log in topic.logs:
            self.starts[log], self.ends[log], self._created_ms[log] = 0, 0, now_ms
            self.append(log, records)
        return topic

    def delete(self, name: str) -> None:
        self.gone.update(self.topics.pop(name).logs)

    def add_partition(self, name: str = TOPIC, records: int = 0, now_ms: int = 0) -> int:
        """The new partition's log."""
        topic = self.topics[name] = self.topics[name]._replace(partitions=self.topics[name].partitions + 1)
        log = topic.logs[-1]
        self.starts[log], self.ends[log], self._created_ms[log] = 0, 0, now_ms
        self.append(log, records)
        self.added.add(log)
        return log

    def created_ms(self, log: int) -> int:
        """When the log was created; 0: it was there from the beginning, or is gone."""
        return 0 if log in self.gone else self._created_ms[log]

    def is_remade(self, topic_id: str, before_ms: int) -> bool:
        """Whether another topic has had the name since before that time."""
        topic = self.topics.get(self.names[topic_id])
        return topic is not None and topic.topic_id != topic_id and self.created_ms(topic.logs[0]) < before_ms

    # --- logs

    def logs(self) -> list[int]:
        """The logs of all topics that exist."""
        return [log for topic in self.topics.values() for log in topic.logs]

    def partitions(self) -> list[TopicIdPartition]:
        return [
            TopicIdPartition(t.name, t.topic_id, index) for t in self.topics.values() for index in range(t.partitions)
        ]

    def append(self, log: int, records: int) -> None:
        self.ends[log] += records
        self._written_ms.setdefault(log, []).extend([self.clock()] * records)

    def timestamp_ms(self, record: Record) -> int:
        """The record's timestamp: some are older than the records before them."""
        return self._written_ms[record[0]][record[1]] - record[1] * 7_919 % 7 * 3_000

    def first_since(self, log: int, at_ms: int) -> int:
        """The first offset with a record at or after this time; the end if there is none."""
        found = (n for n in range(self.starts[log], self.ends[log]) if self.timestamp_ms((log, n)) >= at_ms)
        return next(found, self.ends[log])

    def delete_up_to(self, log: int, offset: int) -> None:
        self.starts[log] = max(self.starts[log], min(offset, self.ends[log]))

    def has(self, record: Record) -> bool:
        return record[0] not in self.gone and self.starts[record[0]] <= record[1] < self.ends[record[0]]

    def facts(self) -> Facts:
        """The facts that a coordinator gets from the brokers now."""
        known = self.partitions()
        facts = Facts(
            partitions=known,
            log_starts={p.topic_partition: self.starts[log_of(p.topic_id, p.partition)] for p in known},
            ends={p.topic_partition: self.ends[log_of(p.topic_id, p.partition)] for p in known},
        )
        return dataclasses.replace(facts, of_plan=bounds(known, facts, None))

    def readable(self, records: Iterable[Record]) -> list[Record]:
        return [record for record in records if self.has(record)]
