"""The writer of a group where the process can open no more Kafka clients."""

from types import SimpleNamespace

import pytest

from coordinator.service.stores.kafka import group_writer
from coordinator.service.stores.store import StoreRefused


def test_a_group_beyond_the_limit_of_kafka_clients_is_refused_with_advice(monkeypatch):
    def no_more(config):
        raise RuntimeError("Failed to initialize thread local storage")

    monkeypatch.setattr(group_writer, "Producer", no_more)
    topic = SimpleNamespace(name="share-group-state", write_timeout_ms=5_000, client_config=lambda **config: config)
    with pytest.raises(StoreRefused, match=r"as many Kafka clients as it can have.*more coordinators"):
        group_writer.GroupWriter(topic, 0, "billing")
