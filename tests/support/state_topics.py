"""State topics of a test's own on a real broker, and stores on them as coordinators of several hosts have them."""

from __future__ import annotations

import uuid

from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.owner_record import Owner
from tests.support.kafka_broker import KafkaBroker


def state_topic(
    kafka: KafkaBroker, name: str = "", partitions: int = 1, *, write_timeout_ms: int = 20_000
) -> StateTopic:
    """Not made yet: ``ensure()`` does it."""
    return StateTopic(
        cluster=KafkaCluster(kafka.bootstrap, {}, 15_000),
        bootstrap_servers=kafka.bootstrap,
        kafka_config={},
        partitions=partitions,
        write_timeout_ms=write_timeout_ms,
        broker_timeout_ms=15_000,
        name=name or f"state-{uuid.uuid4().hex[:8]}",
    )


def owner(host: str = "here") -> Owner:
    return Owner(installation_id=host, process=uuid.uuid4().hex, host=host, pid=1)


class Hosts:
    """`hosts("one")`: partition 0 as a coordinator of that host has it."""

    def __init__(self, topic: StateTopic) -> None:
        self._topic = topic
        self._opened: list[KafkaStore] = []

    def __call__(self, host: str = "here") -> KafkaStore:
        self._opened.append(KafkaStore(self._topic, 0, LivingOwner(owner(host)), updates_per_snapshot=500))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()


def in_mid_write(writer: GroupWriter, key: bytes, value: bytes) -> None:
    """The broker has the record, and its transaction is open."""
    writer._producer.begin_transaction()
    writer._producer.produce(writer._topic.name, value, key, writer._partition)
    assert writer._producer.flush(30) == 0


def taken(store: KafkaStore, group_id: str = "billing", *, claim: bool = True) -> list[bytes | None]:
    """The records that the group's owner loads."""
    if claim:
        store.claim(group_id)
    return [data for _, data in store.load(group_id)]
