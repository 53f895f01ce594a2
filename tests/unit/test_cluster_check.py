"""Tests of the checks that load() makes on the cluster, against metadata of their own, and of the first contact with
brokers that fail."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from coordinator.client.cluster_metadata import CLOSED_S, FirstContact
from coordinator.protocol.errors import BrokerHostUnknown, DeadLetterTopicMissing, DeadLetterTopicSubscribed
from share_source import cluster_check
from share_source.options import SourceOptions


@pytest.fixture
def check(monkeypatch):
    """A function that checks these options on a cluster with these topics, of which none is denied."""
    topics = {name: SimpleNamespace(error=None, partitions={0: None}) for name in ("orders", "orders-dlq")}
    monkeypatch.setattr(cluster_check, "cluster_metadata", lambda *_: SimpleNamespace(topics=topics, cluster_id="c"))
    monkeypatch.setattr(cluster_check, "denied_topics", lambda *_: set())

    def run(**options):
        given = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing"}
        cluster_check.check_cluster(SourceOptions.parse({**given, **options}))

    return run


@pytest.mark.parametrize("pattern", [".*", "[a-z]*", "orders.*"])
def test_a_pattern_is_fine_where_there_is_no_dead_letter_topic(check, pattern):
    check(subscribePattern=pattern)
    check(subscribePattern=pattern, **{"errors.deadletterqueue.topic.name": ""})


def test_a_pattern_that_matches_the_dead_letter_topic_is_refused(check):
    with pytest.raises(DeadLetterTopicSubscribed, match="orders-dlq"):
        check(subscribePattern="orders.*", **{"errors.deadletterqueue.topic.name": "orders-dlq"})


def test_a_standalone_coordinator_checks_the_dead_letter_topic_with_its_own_credentials(check, tmp_path):
    missing = {"subscribe": "orders", "errors.deadletterqueue.topic.name": "elsewhere"}
    with pytest.raises(DeadLetterTopicMissing):
        check(**missing)
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    check(
        **missing,
        **{"share.coordinator.endpoint": "localhost:9099", "share.coordinator.token.file": str(token)},
    )


# --- the first contact


def unresolved(host: str) -> KafkaError:
    return KafkaError(KafkaError._RESOLVE, f"{host}: Failed to resolve '{host}': Name or service not known")


def test_an_unknown_host_is_final_only_if_no_other_broker_may_answer():
    contact = FirstContact()
    contact(unresolved("old.invalid:9092"))
    assert contact.error("old.invalid:9092,new:9093", "PLAINTEXT", CLOSED_S) is None
    assert isinstance(contact.error("old.invalid", "PLAINTEXT", 0.0), BrokerHostUnknown)
    contact(unresolved("new:9093"))
    both = contact.error("SASL_SSL://old.invalid, new:9093", "PLAINTEXT", 0.0)
    assert isinstance(both, BrokerHostUnknown)
