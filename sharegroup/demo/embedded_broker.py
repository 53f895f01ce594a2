"""A Kafka broker inside this process: librdkafka's mock cluster.

Rule: it is for demos and tests only. It keeps everything in memory and ends with its owner; other processes of this
host can use it. It creates topics when they are first named, with PARTITIONS_PER_TOPIC partitions. It has no
controller: no topic ids, no topic configs, no delete-records, no create-topics. It knows no offset of a timestamp."""

from __future__ import annotations

import time
from types import TracebackType

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

PARTITIONS_PER_TOPIC = 4
"""Partitions of every topic of librdkafka's mock cluster; the number can't be changed."""

_ANSWER_TIMEOUT_S = 10.0
_READ_AT_ONCE = 1_000


class EmbeddedBroker:
    """A broker that runs for the length of its `with` block.

    >>> with EmbeddedBroker() as broker:  # doctest: +SKIP
    ...     broker.create_topic("orders")
    ...     print(broker.bootstrap_servers)
    127.0.0.1:40161"""

    def __init__(self, brokers: int = 1) -> None:
        """Prepare a cluster of `brokers`; it starts with the `with` block, or with `start()`."""
        if brokers < 1:
            raise ValueError(f"an embedded cluster needs at least 1 broker, not {brokers}")
        self._brokers = brokers
        self._owner: Producer | None = None
        self._bootstrap_servers = ""

    def __repr__(self) -> str:
        return f"<EmbeddedBroker {self._bootstrap_servers or 'stopped'}>"

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of each broker, for clients in any process on this host."""
        if self._owner is None:
            raise RuntimeError("the embedded broker is not running: use it inside `with EmbeddedBroker() as broker:`")
        return self._bootstrap_servers

    def start(self) -> EmbeddedBroker:
        """Start the broker, unless it runs already. Returns this object."""
        if self._owner is None:
            # The mock cluster replaces this address by its own.
            owner = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": self._brokers, "log_level": 0})
            brokers = owner.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers.values()
            self._bootstrap_servers = ",".join(sorted(f"{broker.host}:{broker.port}" for broker in brokers))
            self._owner = owner
        return self

    def stop(self) -> None:
        """Stop the broker; all topics and records are lost."""
        self._owner = None  # the cluster ends with the client that owns it
        self._bootstrap_servers = ""

    def create_topic(self, name: str) -> None:
        """Create an empty topic. Returns when its partitions have leaders."""
        for _ in range(20):  # the first request creates the topic, a later one finds it
            metadata = self._running().list_topics(name, timeout=_ANSWER_TIMEOUT_S).topics[name]
            if metadata.error is None and len(metadata.partitions) == PARTITIONS_PER_TOPIC:
                return
            self._running().poll(0.05)
        raise KafkaException(metadata.error)

    def topic_names(self) -> set[str]:
        return set(self._running().list_topics(timeout=_ANSWER_TIMEOUT_S).topics)

    def bounds(self, topic: str) -> list[tuple[int, int]]:
        """The first offset and the exclusive end of each partition's log now."""
        reader = self._reader()
        try:
            places = [TopicPartition(topic, number) for number in range(PARTITIONS_PER_TOPIC)]
            return [reader.get_watermark_offsets(place, _ANSWER_TIMEOUT_S) for place in places]
        finally:
            reader.close()

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        """The timestamp and the offset of the partition's first record at or after the timestamp; None: it has none.
        The partition is read from its start."""
        reader = self._reader()
        try:
            reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            deadline = time.monotonic() + _ANSWER_TIMEOUT_S
            while time.monotonic() < deadline:
                for message in reader.consume(_READ_AT_ONCE, 0.5):
                    if message.error():  # the end of the log
                        return None
                    if message.timestamp()[1] >= timestamp_ms:
                        return int(message.timestamp()[1]), int(message.offset() or 0)
            return None
        finally:
            reader.close()

    def _reader(self) -> Consumer:
        where = {"bootstrap.servers": self.bootstrap_servers, "group.id": "embedded-broker"}
        return Consumer({**where, "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})

    def _running(self) -> Producer:
        if self._owner is None:
            raise RuntimeError("the embedded broker is not running")
        return self._owner
