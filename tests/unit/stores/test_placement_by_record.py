"""Among how many partitions of the state topic groups are placed, on a topic in memory; with a real broker:
tests/integration/test_group_placement.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from coordinator.protocol.errors import StateTopicUnfit
from coordinator.service.brokers.cluster import TopicInfo
from coordinator.service.stores.kafka import partition_count as group_placement
from coordinator.state_log.placement import PLACEMENT_KEY, encode_placement, state_partition_of
from coordinator.state_log.record_keys import GROUP_RECORD, key_head

GROUP = next(f"billing-{n}" for n in range(100) if state_partition_of(f"billing-{n}", 3) not in (0, 1))
"""The group's state partition among 1, 2 or 4 differs from that among 3."""
GROUP_KEY = key_head(GROUP_RECORD, GROUP)


@dataclass(frozen=True)
class Message:
    """A record of the topic."""

    at: int
    its_key: bytes | None
    its_value: bytes | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value


@dataclass
class Log:
    """A partition, whose records before ``start`` are deleted. ``meanwhile`` happens once, while somebody reads."""

    records: list[Message] = field(default_factory=list)
    start: int = 0
    meanwhile: Callable[[], None] | None = None

    def write(self, key: bytes | None, value: bytes | None) -> None:
        self.records.append(Message(len(self.records), key, value))


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A state topic that exists. ``partitions``: what is configured, before it is prepared."""

    logs: list[Log]
    partitions: int
    name: str = "share-group-state"
    topic_id: str = ""
    broker_timeout_ms: int = 1_000
    timeout_s: float = 1.0

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(
            topics=lambda names: {self.name: TopicInfo(self.name, "id", len(self.logs))},
            offsets=lambda partitions, at: {each: self.offset(each[1], at) for each in partitions},
        )

    def ensure(self) -> int:
        return len(self.logs)

    def offset(self, partition: int, at: int) -> int:
        return len(self.logs[partition].records)

    def client_config(self, **config: Any) -> Any:
        return {"logs": self.logs}

    def prepared(self, configured: int) -> int:
        """The number that a coordinator with this setting uses."""
        topic: Any = Topic(logs=self.logs, partitions=configured)
        return group_placement.prepared(topic).partitions


class Reader:
    """:class:`coordinator.service.stores.kafka.log_reader.LogReader` on these logs."""

    def __init__(self, topic: Topic, partition: int, *, committed: bool = True) -> None:
        self._log = topic.logs[partition]
        self._began = self._log.start

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing, since a list needs no closing."""

    def end(self) -> int:
        return len(self._log.records)

    def read_to(self, end: int) -> Iterator[Message]:
        """The records below an end that was looked up before."""
        meanwhile, self._log.meanwhile = self._log.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        yield from self._log.records[self._log.start : end]

    @property
    def was_pruned(self) -> bool:
        return self._log.start > self._began


class Writer:
    """A producer on these logs."""

    def __init__(self, config: dict[str, list[Log]]) -> None:
        self._logs = config["logs"]

    def produce(
        self, name: str, value: bytes, key: bytes, partition: int, *, on_delivery: Callable[[Any, Any], None]
    ) -> None:
        self._logs[partition].write(key, value)
        on_delivery(None, None)

    def flush(self, seconds: float) -> int:
        return 0


@contextmanager
def topic_of(partitions: int) -> Iterator[Topic]:
    """A state topic without records."""
    with mock.patch.multiple(group_placement, LogReader=Reader, Producer=Writer):
        yield Topic(logs=[Log() for _ in range(partitions)], partitions=partitions)


def test_a_partition_that_is_added_moves_no_group() -> None:
    with topic_of(3) as topic:
        assert topic.prepared(3) == 3
        topic.logs[state_partition_of(GROUP, 3)].write(GROUP_KEY, b"a")
        topic.logs.append(Log())
        assert [topic.prepared(configured) for configured in (1, 3, 4, 50)] == [3, 3, 3, 3]


def test_a_topic_that_is_found_without_records_keeps_its_number() -> None:
    with topic_of(2) as topic:
        assert topic.prepared(50) == 2
        assert topic.prepared(1) == 2


def test_of_two_coordinators_that_begin_at_once_the_first_record_decides() -> None:
    with topic_of(3) as topic:
        log = topic.logs[0]
        log.meanwhile = lambda: log.write(PLACEMENT_KEY, encode_placement(2))
        assert topic.prepared(3) == 2
        assert len(log.records) == 2, "both have written"
        assert topic.prepared(3) == 2


def test_fewer_partitions_than_groups_are_placed_among_are_refused() -> None:
    with topic_of(3) as topic:
        topic.logs[0].write(PLACEMENT_KEY, encode_placement(4))
        with pytest.raises(StateTopicUnfit, match="has 3 partitions, and its groups are placed among 4"):
            topic.prepared(3)


def test_without_a_placement_record_a_group_in_another_partition_is_named() -> None:
    with topic_of(4) as topic:
        topic.logs[state_partition_of(GROUP, 3)].write(GROUP_KEY, b"a")
        with pytest.raises(StateTopicUnfit, match=rf"share group {GROUP} lies in its partition .* among 4 partitions"):
            topic.prepared(50)
        assert topic.logs[0].records == [], "nothing is written"
        assert topic.prepared(3) == 3
        assert topic.prepared(50) == 3, "the number is written again"


def test_a_placement_record_that_pruning_moves_during_the_read_is_found() -> None:
    """Pruning writes the number at the end of the log, and then deletes the record in front."""
    with topic_of(3) as topic:
        assert topic.prepared(3) == 3
        log = topic.logs[0]
        topic.logs.append(Log())

        def prune() -> None:
            log.write(PLACEMENT_KEY, encode_placement(3))
            log.start = len(log.records) - 1

        log.meanwhile = prune
        assert topic.prepared(50) == 3
        assert len(log.records) == 2, "the number is not written anew"
