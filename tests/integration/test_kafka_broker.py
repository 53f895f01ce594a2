"""The real broker that other tests lean on does what they lean on it for."""

import pytest
from confluent_kafka import Consumer, KafkaException

from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_log import read_all
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.broker]


def can_list(kafka_address: str) -> bool:
    """Whether a new client reaches the broker at this address."""
    client = Consumer({"bootstrap.servers": kafka_address, "group.id": "x", "log_level": 0})
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
    finally:
        client.close()


def test_produced_records_can_be_read(kafka, topic):
    name = topic(partitions=2)
    kafka.produce(name, ["a", "b", "c"], partition=1)
    assert read_all(kafka.bootstrap, name, partition=1) == {0: b"a", 1: b"b", 2: b"c"}
    assert read_all(kafka.bootstrap, name, partition=0) == {}


def test_an_aborted_transaction_is_not_read_and_each_leaves_a_marker(kafka, topic):
    name = topic()
    kafka.produce_transaction(name, ["kept"], partition=0)
    kafka.produce_transaction(name, ["dropped"], commit=False, partition=0)
    kafka.produce(name, ["last"], partition=0)
    assert read_all(kafka.bootstrap, name) == {0: b"kept", 4: b"last"}
    assert read_all(kafka.bootstrap, name, isolation="read_uncommitted") == {0: b"kept", 2: b"dropped", 4: b"last"}


def test_deleted_records_move_the_log_start(kafka, topic):
    name = topic()
    kafka.produce(name, [str(n) for n in range(10)], partition=0)
    kafka.delete_records(name, before_offset=7)
    assert sorted(read_all(kafka.bootstrap, name)) == [7, 8, 9]


def test_compaction_leaves_gaps(kafka, topic):
    name = topic(cleanup_policy="compact", segment_ms=200, min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=200)
    kafka.produce(name, [str(n) for n in range(20)], keys=[str(n % 2) for n in range(20)], partition=0)

    def compacted() -> bool:
        kafka.produce(name, ["rolls the segment"], keys=["roller"], partition=0)
        return sorted(read_all(kafka.bootstrap, name))[:2] == [18, 19]

    wait_until(compacted, interval_s=0.3, what="only the last record of each key is left")


def test_a_recreated_topic_has_another_id(kafka, topic):
    name = topic()
    first = kafka.topic_id(name)
    assert first == kafka.topic_id(name)
    kafka.delete_topic(name)
    kafka.create_topic(name)
    assert kafka.topic_id(name) != first


def test_partitions_can_be_added(kafka, topic):
    name = topic(partitions=1)
    kafka.add_partitions(name, 3)
    kafka.produce(name, ["new"], partition=2)
    assert read_all(kafka.bootstrap, name, partition=2) == {0: b"new"}


def test_share_groups_are_on(kafka):
    arguments = ["--bootstrap-server", kafka.bootstrap, "describe"]
    features = kafka.run_tool("org.apache.kafka.tools.FeatureCommand", *arguments).splitlines()
    assert any("share.version" in line and "FinalizedVersionLevel: 1" in line for line in features), features


def test_the_data_path_can_be_cut_and_healed(kafka, topic):
    name = topic()
    kafka.produce(name, ["through"], partition=0)
    assert read_all(kafka.proxied_bootstrap, name) == {0: b"through"}
    kafka.proxy.cut()
    try:
        assert not can_list(kafka.proxied_bootstrap)
        wait_until(lambda: can_list(kafka.bootstrap), what="the direct address answers")
    finally:
        kafka.proxy.heal()
    assert read_all(kafka.proxied_bootstrap, name) == {0: b"through"}


def test_connections_continue_after_a_silent_cut_heals(kafka):
    kafka.proxy.cut(silent=True)
    try:
        assert not can_list(kafka.proxied_bootstrap)
    finally:
        kafka.proxy.heal()
    wait_until(lambda: can_list(kafka.proxied_bootstrap), what="it goes on")


def test_the_broker_can_be_paused_and_resumed(kafka):
    kafka.pause()
    try:
        assert not can_list(kafka.bootstrap)
    finally:
        kafka.resume()
    wait_until(lambda: can_list(kafka.bootstrap), what="it answers again")


@pytest.mark.parametrize("end", ["shut_down", "kill"])
def test_a_restarted_broker_has_its_records_and_its_address(kafka, topic, end):
    name, before = topic(), kafka.bootstrap
    kafka.produce(name, ["stays"], partition=0)
    getattr(kafka, end)()
    try:
        assert not can_list(before)
    finally:
        kafka.start()
    assert kafka.bootstrap == before
    assert wait_until(lambda: read_all(before, name)) == {0: b"stays"}


def test_missing_jars_raise_an_error_with_the_make_target(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.support.kafka_broker.jars_of", lambda version: tmp_path)
    with pytest.raises(RuntimeError, match="make test-all"):
        KafkaBroker()
