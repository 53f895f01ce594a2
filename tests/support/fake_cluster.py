"""A Kafka cluster for the service's tests: topics with ids and partitions, logs as [start, end), and what was asked."""

from collections.abc import Iterable, Sequence
from itertools import count
from threading import Event

from coordinator.protocol.allowed_topics import ALL_TOPICS
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.cluster import EARLIEST, LATEST, Seen, TopicInfo


class FakeCluster:
    """`add` and `delete` topics, `move` log ends and starts; at `gaps` no log has a record. `asked` counts the calls
    for offsets, `read` has the ranges that were scanned. While `answers` is cleared, each call waits. The leaders of
    the `silent` partitions do not answer."""

    addresses = "fake:9092"
    allowed = ALL_TOPICS

    def __init__(self, *, topic_ids: bool = True) -> None:
        self.topic_ids = topic_ids
        self.found: dict[str, TopicInfo] = {}
        self.logs: dict[TopicAndPartition, list[int]] = {}
        self.stable: dict[TopicAndPartition, int] = {}
        self.timestamps: dict[TopicAndPartition, dict[int, int]] = {}
        self.asked = 0
        self.gaps: set[int] = set()
        self.read: list[tuple[TopicAndPartition, int, int]] = []
        self.unreachable = False
        self.answers = Event()
        self.answers.set()
        self.unreadable: set[TopicAndPartition] = set()
        self.silent: set[TopicAndPartition] = set()
        self.read_only: set[str] = set()
        self._ids = (f"id-{number}" for number in count(1))

    def add(self, name: str, partitions: int = 1, *, end: int = 0, start: int = 0) -> str:
        """Create a topic, or add partitions to it; its id."""
        topic_id = self.found[name].topic_id if name in self.found else next(self._ids)
        self.found[name] = TopicInfo(name, topic_id if self.topic_ids else "", partitions)
        for partition in range(partitions):
            self.logs.setdefault((name, partition), [start, end])
        return topic_id

    def delete(self, name: str) -> None:
        del self.found[name]
        self.logs = {where: log for where, log in self.logs.items() if where[0] != name}

    def move(self, name: str, end: int, partition: int = 0, *, start: int = 0) -> None:
        self.logs[name, partition] = [start, end]

    # --- what the service asks

    def gives_topic_ids(self) -> bool:
        self._answer()
        return self.topic_ids

    def topic_names(self) -> list[str]:
        self._answer()
        return sorted(self.found)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        self._answer()
        return {name: self.found[name] for name in names if name in self.found}

    def offsets(
        self, partitions: Iterable[TopicAndPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicAndPartition, int]:
        self._answer()
        self.asked += 1
        wanted = list(partitions)
        if self.silent.intersection(wanted):
            raise BrokerNotReachable(addresses=self.addresses, timeout_ms=15_000, reason="_TIMED_OUT")
        return {where: self._offset(where, at, read_committed) for where in wanted if where in self.logs}

    def answered_offsets(
        self, partitions: Iterable[TopicAndPartition], at: int, *, read_committed: bool = False
    ) -> tuple[dict[TopicAndPartition, int], set[TopicAndPartition]]:
        wanted = list(partitions)
        away = self.silent.intersection(wanted)
        if away and away.issuperset(wanted):
            raise BrokerNotReachable(addresses=self.addresses, timeout_ms=15_000, reason="_TIMED_OUT")
        return self.offsets([w for w in wanted if w not in away], at, read_committed=read_committed), away

    def existing(self, where: TopicAndPartition, first: int, last: int, *, most: int, read_committed: bool) -> Seen:
        self._answer()
        self.read.append((where, first, last))
        if where not in self.logs or where in self.unreadable:  # librdkafka gets no answer for it
            raise BrokerNotReachable(addresses=self.addresses, timeout_ms=3_000, reason="no record came")
        start, end = self.logs[where][0], self._offset(where, LATEST, read_committed)
        if not first <= end or last < start:
            return Seen([], first, first)
        first = max(first, start)
        held = [n for n in range(first, min(last, end - 1) + 1) if n not in self.gaps]
        return (
            Seen(held, first, min(end, last + 1)) if len(held) < most else Seen(held[:most], first, held[most - 1] + 1)
        )

    def absent(
        self, where: TopicAndPartition, offsets: Sequence[int], *, read_committed: bool, until_s: float
    ) -> tuple[list[int], int]:
        self._answer()
        return [offset for offset in offsets if offset in self.gaps], len(offsets)

    def may_write(self, topic: str) -> bool:
        self._answer()
        return topic not in self.read_only

    def create_topic(self, name: str, *, only_ask: bool = False) -> None:
        self._answer()
        if name not in self.found and not only_ask:
            self.add(name)

    def _offset(self, where: TopicAndPartition, at: int, read_committed: bool) -> int:
        start, end = self.logs[where]
        if at == EARLIEST:
            return start
        if at == LATEST:
            return self.stable.get(where, end) if read_committed else end
        return next((offset for time, offset in sorted(self.timestamps[where].items()) if time >= at), end)

    def _answer(self) -> None:
        self.answers.wait()
        if self.unreachable:
            raise BrokerNotReachable(addresses=self.addresses, timeout_ms=15_000, reason="_TRANSPORT")


def cluster_with_orders(end: int) -> FakeCluster:
    """Brokers with the topic orders: one partition, whose log ends at ``end``."""
    cluster = FakeCluster()
    cluster.add("orders", end=end)
    return cluster
