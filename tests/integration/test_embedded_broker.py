"""The embedded broker serves what the demo needs of it."""

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sharegroup.demo.embedded_broker import PARTITIONS_PER_TOPIC, EmbeddedBroker


def test_a_created_topic_has_its_partitions_at_once(embedded, unique):
    name = unique("orders")
    embedded.create_topic(name)
    client = Producer({"bootstrap.servers": embedded.bootstrap_servers})
    assert len(client.list_topics(name, timeout=60).topics[name].partitions) == PARTITIONS_PER_TOPIC


def test_records_of_another_process_can_be_read(embedded, unique):
    name = unique("orders")
    embedded.create_topic(name)
    program = (
        "import sys; from confluent_kafka import Producer; p = Producer({'bootstrap.servers': sys.argv[1]});"
        "p.produce(sys.argv[2], 'from outside', partition=0); sys.exit(p.flush(60))"
    )
    subprocess.run([sys.executable, "-c", program, embedded.bootstrap_servers, name], check=True, timeout=120)
    reader = Consumer({"bootstrap.servers": embedded.bootstrap_servers, "group.id": "g", "log_level": 0})
    try:
        reader.assign([TopicPartition(name, 0, 0)])
        assert [message.value() for message in reader.consume(1, 60)] == [b"from outside"]
        assert reader.get_watermark_offsets(TopicPartition(name, 0), timeout=60) == (0, 1)
    finally:
        reader.close()


def test_a_stopped_embedded_broker_has_no_address():
    with EmbeddedBroker() as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers
    assert "stopped" in repr(broker)


def test_no_broker_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        EmbeddedBroker(brokers=0)
