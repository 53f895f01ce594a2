"""Authentication, authorization, TLS and name resolution: the reason is librdkafka's or gRPC's own, comes at once, and
is not called unreachable."""

import pytest
from confluent_kafka.admin import ResourceType

from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import (
    BrokerClosesConnection,
    BrokerHostUnknown,
    BrokerSecurityFailed,
    BrokerSpeaksOtherwise,
    DeadLetterTopicNotAuthorized,
    TopicNotAuthorized,
)
from pyspark_sharegroup import DefaultSource
from tests.support.guarded_broker import ALICE, grant, guarded_broker

pytestmark = pytest.mark.broker

UNKNOWN_HOST = "nosuch.invalid:9092"


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
        ({"sasl.password": "wrong-secret"}, "Authentication failed: Invalid username or password"),
        ({"sasl.username": "bob"}, "Authentication failed: Invalid username or password"),
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
