"""Authentication, authorization, TLS and name resolution: the reason is librdkafka's or gRPC's own, comes at once, and
is not called unreachable."""

import contextlib

import pytest
from confluent_kafka.admin import ResourceType

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.source_records import SourceRecordReader
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import (
    BrokerClosesConnection,
    BrokerHostUnknown,
    BrokerNotReachable,
    BrokerSecurityFailed,
    BrokerSpeaksOtherwise,
    DeadLetterTopicNotAuthorized,
    TopicNotAuthorized,
)
from coordinator.protocol.values import AcquiredRange
from pyspark_sharegroup import DefaultSource
from share_source.executor import range_reader, task_reader
from share_source.executor.offset_ranges import PartitionRanges
from tests.support.guarded_broker import ALICE, grant, guarded_broker

pytestmark = pytest.mark.broker

UNKNOWN_HOST = "nosuch.invalid:9092"
REFUSED = "Authentication failed: Invalid username or password"
WRONG = {**ALICE, "sasl.password": "wrong-secret"}


@pytest.fixture(scope="module")
def guarded():
    with guarded_broker() as broker:
        yield broker


def load(bootstrap, **options):
    kafka = {f"kafka.{key}": value for key, value in ALICE.items()}
    return DefaultSource({"kafka.bootstrap.servers": bootstrap, "kafka.group.id": "g", **kafka, **options}).schema()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sasl.password": "wrong-secret"}, REFUSED),
        ({"sasl.username": "bob"}, REFUSED),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "Unsupported SASL mechanism: broker's supported mechanisms: PLAIN"),
    ],
)
def test_the_brokers_own_reason_is_raised_at_once(guarded, change, reason):
    with pytest.raises(BrokerSecurityFailed) as raised:
        cluster_metadata(guarded.proxied_bootstrap, {**ALICE, **change})
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "config", "error", "reason"),
    [
        ("bootstrap", {"security.protocol": "SSL"}, BrokerSpeaksOtherwise, "answers without TLS"),
        ("proxied_bootstrap", {"security.protocol": "SSL"}, BrokerSpeaksOtherwise, "answers without TLS"),
        ("proxied_bootstrap", {}, BrokerClosesConnection, "connection closed by peer"),
    ],
    ids=["SSL to plaintext", "SSL to SASL", "plaintext to SASL"],
)
def test_a_listener_of_another_protocol_is_named_within_seconds(guarded, side, config, error, reason):
    with pytest.raises(error) as raised:
        cluster_metadata(getattr(guarded, side), config)
    assert reason in str(raised.value)
    assert f"speaks {config.get('security.protocol', 'PLAINTEXT')} (kafka.security.protocol)" in str(raised.value)


def test_an_unknown_host_is_named_at_once():
    with pytest.raises(BrokerHostUnknown, match=r"Failed to resolve 'nosuch\.invalid:9092'"):
        cluster_metadata(UNKNOWN_HOST, {})


def test_a_topic_that_may_not_be_seen_is_not_called_missing(guarded):
    hidden = guarded.create_topic("hidden")
    with pytest.raises(TopicNotAuthorized, match=f"may not see topic {hidden}"):
        load(guarded.proxied_bootstrap, subscribe=hidden)


def test_an_invisible_dead_letter_topic_is_not_called_missing(guarded):
    orders, hidden = guarded.create_topic("orders"), guarded.create_topic("hidden-dlq")
    grant(guarded, ResourceType.TOPIC, orders, "READ", "DESCRIBE")
    with pytest.raises(DeadLetterTopicNotAuthorized, match=f"may not see dead letter topic {hidden}"):
        load(guarded.proxied_bootstrap, subscribe=orders, **{"errors.deadletterqueue.topic.name": hidden})


def test_a_query_with_a_wrong_password_fails_at_its_start(guarded, runtime):
    with pytest.raises(BrokerSecurityFailed, match=REFUSED):
        CoordinatorClient.connect(guarded.proxied_bootstrap, WRONG, "kafka")
    assert not list(runtime.iterdir())


def test_a_source_record_that_no_broker_returns_now_is_not_lost(guarded):
    """Else its dead letter would be written without its record, which the log still has."""
    topic = guarded.create_topic()
    guarded.produce(topic, [b"x"])
    refused = SourceRecordReader(guarded.proxied_bootstrap, WRONG, stall_s=1.0)
    with contextlib.closing(refused), pytest.raises(BrokerNotReachable):
        list(refused.read(topic, 0, [0]))


def test_a_tasks_wrong_password_is_reported_in_librdkafkas_words(guarded, reader, monkeypatch):
    monkeypatch.setattr(range_reader, "REFUSED_S", 0.5)
    ranges = PartitionRanges("orders", 0, (AcquiredRange(0, 9, 1),), "")
    config = {**WRONG, "bootstrap.servers": guarded.proxied_bootstrap}
    with pytest.raises(BrokerSecurityFailed, match=REFUSED):
        list(task_reader.read_task(range_reader.ReadTask(partitions=(ranges,), kafka_config=config)))
