"""Brokers that lack a request, as services that speak Kafka's protocol may: what is missing is told by name, with the
state store that works; and with that store a group works."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from coordinator.protocol.errors import StateTopicUnfit, TransactionsMissing
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.stores.kafka.pruning import Pruning
from tests.support.kafka_broker import KafkaBroker
from tests.support.lacking_brokers import DELETE_RECORDS, METADATA, NONE, TRANSACTIONS
from tests.support.reader_query import Query
from tests.support.state_topics import state_topic

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("own_runtime")]

BEFORE_TOPIC_IDS = 9
"""The last version of Metadata without topic ids."""


@pytest.fixture
def lacking(kafka: KafkaBroker) -> Iterator[Callable[..., str]]:
    """`lacking({LIST_GROUPS: NONE})`: the address of the broker that seems to lack that."""

    def address(newest: dict[int, int]) -> str:
        kafka.proxy.lacks(newest)
        return kafka.proxied_bootstrap

    yield address
    kafka.proxy.lacks({})


def batch(bootstrap: str, topic: str, group: str, **options: str) -> list[int]:
    """The offsets that a query reads first."""
    kafka = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": group}
    query = Query(**kafka, subscribe=topic, startingOffsets="earliest", **options)
    try:
        return [row["offset"] for row in query.run()]
    finally:
        query.reader.stop()


def test_missing_transactions_are_named_and_a_state_file_works(kafka, topic, unique, lacking, tmp_path) -> None:
    orders, bootstrap = topic(), lacking(dict.fromkeys(TRANSACTIONS, NONE))
    kafka.produce(orders, ["a", "b"])
    with pytest.raises(TransactionsMissing, match=r"have none .*share\.state\.store=sqlite:PATH"):
        batch(bootstrap, orders, unique("group"))
    file = {"share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    assert batch(bootstrap, orders, unique("group"), **file) == [0, 1]


def test_missing_topic_ids_are_named_and_a_state_file_works(kafka, topic, unique, lacking, tmp_path) -> None:
    orders, others, bootstrap = topic(), topic(), lacking({METADATA: BEFORE_TOPIC_IDS})
    kafka.produce(orders, ["a", "b"])
    kafka.produce(others, ["c"])
    cluster = KafkaCluster(bootstrap, {}, 15_000)
    assert not cluster.gives_topic_ids()
    assert cluster.topics([orders]) == {orders: (orders, "", 1)}
    with pytest.raises(StateTopicUnfit, match=r"gives topics no ids.*share\.state\.store=sqlite:PATH"):
        batch(bootstrap, orders, unique("group"))
    file = {"share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    assert sorted(batch(bootstrap, f"{orders},{others}", unique("group"), **file)) == [0, 0, 1]


def test_brokers_without_delete_records_are_named_once_by_the_pruning(kafka, lacking, caplog) -> None:
    name, bootstrap = kafka.create_topic(), lacking({DELETE_RECORDS: NONE})
    topic = replace(state_topic(kafka, name), bootstrap_servers=bootstrap)
    never = {"interval_ms": 3_600_000}
    with contextlib.closing(Pruning(topic, list, **never)) as pruning, caplog.at_level(logging.WARNING):
        for _ in range(2):
            pruning._delete_below(0, 0)
    (told,) = [record.getMessage() for record in caplog.records if "delete-records" in record.getMessage()]
    assert told.startswith(f"{name} is not pruned")
    assert "share.state.store=sqlite:PATH" in told
