"""A Kafka broker inside this process, to try things out: librdkafka's mock cluster.

The rule: for demos and tests only. It keeps everything in memory and is gone with its owner, yet other processes of
this host can use it. Topics come by themselves, with PARTITIONS_PER_TOPIC partitions. It has no controller: no topic
ids, no topic configs, no delete-records, no create-topics.
"""

from __future__ import annotations

from types import TracebackType

from confluent_kafka import KafkaException, Producer

PARTITIONS_PER_TOPIC = 4
"""What librdkafka gives to every topic of its mock cluster; there is no way to ask for another number."""

_ANSWER_TIMEOUT_S = 10.0


class EmbeddedBroker:
    """A broker for as long as the `with` block lasts.

    >>> with EmbeddedBroker() as broker:  # doctest: +SKIP
    ...     broker.create_topic("orders")
    ...     print(broker.bootstrap_servers)
    127.0.0.1:40161
    """

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
        """`host:port` of each broker, as clients of any process on this host want it."""
        if self._owner is None:
            raise RuntimeError("the embedded broker is not running: use it inside `with EmbeddedBroker() as broker:`")
        return self._bootstrap_servers

    def start(self) -> EmbeddedBroker:
        """Start it, once; the one that was started."""
        if self._owner is None:
            # The address given here is never used: the mock cluster puts its own in its place.
            owner = Producer({"bootstrap.servers": "unused", "test.mock.num.brokers": self._brokers, "log_level": 0})
            brokers = owner.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers.values()
            self._bootstrap_servers = ",".join(sorted(f"{broker.host}:{broker.port}" for broker in brokers))
            self._owner = owner
        return self

    def stop(self) -> None:
        """Stop it; every topic and record is gone."""
        self._owner = None  # the cluster ends with the client that owns it
        self._bootstrap_servers = ""

    def create_topic(self, name: str) -> None:
        """Let the topic be there, empty. Returns when its partitions have leaders."""
        if self._owner is None:
            raise RuntimeError("the embedded broker is not running")
        for _ in range(20):  # the first question creates it, one of the next finds it
            metadata = self._owner.list_topics(name, timeout=_ANSWER_TIMEOUT_S).topics[name]
            if metadata.error is None and len(metadata.partitions) == PARTITIONS_PER_TOPIC:
                return
            self._owner.poll(0.05)
        raise KafkaException(metadata.error)
