"""The writer of a group: the settings of its producer, and a process that can open no more Kafka clients."""

import contextlib
from types import SimpleNamespace

import pytest

from coordinator.dead_letters.producer import DeadLetterProducer
from coordinator.service.hosts.topic_clients import Writer
from coordinator.service.stores.kafka import group_writer
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.store import StoreRefused


def topic_of(kafka_config, write_timeout_ms=5_000):
    """A state topic of brokers that nobody asks."""
    fields = {"cluster": None, "bootstrap_servers": "127.0.0.1:9", "partitions": 1, "broker_timeout_ms": 15_000}
    return StateTopic(kafka_config=kafka_config, write_timeout_ms=write_timeout_ms, **fields)


@pytest.mark.parametrize(
    "given",
    [
        {"socket.timeout.ms": "60000"},  # Java's request.timeout.ms
        {"acks": "1"},
        {"request.required.acks": "0"},
        {"enable.idempotence": "false"},
        {"enable.idempotence": "true"},
        {"max.in.flight.requests.per.connection": "10"},
        {"max.in.flight": "10"},
        {"retries": "0"},
        {"message.send.max.retries": "0"},
        {"transactional.id": "billing"},
        {"queuing.strategy": "lifo"},
    ],
    ids=lambda given: "=".join(*given.items()),
)
def test_no_producers_setting_of_a_query_stops_its_coordinator(given):
    topic = topic_of(given)
    for writer in (group_writer.GroupWriter(topic, 0, "billing"), Writer(topic)):
        writer.close()
    with contextlib.closing(DeadLetterProducer(topic.bootstrap_servers, given)) as dead_letters:
        dead_letters._producer(singly=False)


@pytest.mark.parametrize("write_timeout_ms", [500, 3_600_000])
def test_a_producer_takes_any_timeout_of_a_write(write_timeout_ms):
    group_writer.GroupWriter(topic_of({}, write_timeout_ms), 0, "billing").close()


def test_a_group_beyond_the_limit_of_kafka_clients_is_refused_with_advice(monkeypatch):
    def no_more(config):
        raise RuntimeError("Failed to initialize thread local storage")

    monkeypatch.setattr(group_writer, "Producer", no_more)
    topic = SimpleNamespace(name="share-group-state", write_timeout_ms=5_000, kafka_config={}, client_config=dict)
    with pytest.raises(StoreRefused, match=r"as many Kafka clients as it can have.*more coordinators"):
        group_writer.GroupWriter(topic, 0, "billing")
