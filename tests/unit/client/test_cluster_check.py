"""Tests of the checks that load() makes on the cluster, against metadata of their own, and of the first contact with
brokers that fail."""

import re
import socket
import ssl
from contextlib import nullcontext
from itertools import combinations
from types import MappingProxyType, SimpleNamespace

import pytest
import trustme
from confluent_kafka import KafkaError

from coordinator.admin.admin import Admin
from coordinator.client.client import CoordinatorClient
from coordinator.kafka.cluster_metadata import CLOSED_S, NOBODY_S, FirstContact, cluster_metadata
from coordinator.protocol.errors import (
    BrokerHostUnknown,
    BrokerNotReachable,
    BrokerSpeaksOtherwise,
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    DeadLetterTopicSubscribed,
    UnsafeDirectory,
)
from share_source.driver import cluster_check
from share_source.errors import ReadDenied
from share_source.options import SourceOptions
from tests.support.listeners import Answer, Tls, listening


@pytest.fixture
def check(monkeypatch):
    """A function that checks these options on a cluster with these topics, rights and brokers."""

    def run(rights=MappingProxyType({}), brokers=MappingProxyType({}), **options):
        partitions = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(brokers or [1])}
        topics = {name: SimpleNamespace(error=None, partitions=partitions) for name in ("orders", "orders-dlq")}
        metadata = SimpleNamespace(topics=topics, cluster_id="c", brokers=brokers)
        monkeypatch.setattr(cluster_check, "metadata_and_rights", lambda *_: (metadata, rights))
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
    check(**missing, **{"share.coordinator.endpoint": "localhost:9099", "share.coordinator.token.file": str(token)})


RIGHTS = [{}, *({"of": frozenset(names)} for n in range(4) for names in combinations(("DESCRIBE", "READ", "WRITE"), n))]


def test_a_right_that_is_known_to_lack_is_refused_and_no_other(check):
    for orders in RIGHTS:
        for dlq in RIGHTS:
            rights = {name: each["of"] for name, each in (("orders", orders), ("orders-dlq", dlq)) if each}
            expected = []
            if "READ" not in orders.get("of", {"READ"}):
                expected.append(ReadDenied)
            elif "WRITE" not in dlq.get("of", {"WRITE"}):
                expected.append(DeadLetterTopicNotAuthorized)
            with pytest.raises(expected[0]) if expected else nullcontext():
                check(rights, subscribe="orders", **{"errors.deadletterqueue.topic.name": "orders-dlq"})


def test_leaders_out_of_reach_are_logged_and_stop_no_start(check, caplog, monkeypatch):
    monkeypatch.setattr(cluster_check, "LEADER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as open_, socket.create_server(("127.0.0.1", 0)) as closed:
        addresses = [open_.getsockname(), closed.getsockname(), ("nosuch.invalid", 9092)]
        closed.close()
        brokers = {number: SimpleNamespace(host=host, port=port) for number, (host, port) in enumerate(addresses)}
        check(brokers=brokers, subscribePattern="orders")
    told = [record.getMessage() for record in caplog.records]
    assert [f"{host}:{port}" in line for line, (host, port) in zip(told, addresses[1:], strict=True)] == [True, True]


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


def test_a_port_where_nobody_listens_ends_a_person_s_command_alone():
    """A query at its start waits on: its broker may restart."""
    said = "FAIL [thrd:k:1/bootstrap]: k:1/bootstrap: "
    of_command, of_query = FirstContact(NOBODY_S), FirstContact()
    for contact in (of_command, of_query):
        contact.log.warning("%sConnect to ipv4#10.0.0.1:1 failed: Connection refused", said)
    found = of_command.error("k:1,l:2", "PLAINTEXT", NOBODY_S)
    assert type(found) is BrokerNotReachable and "within 10000 ms (k:1/bootstrap: Connect to" in str(found)
    assert of_command.error("k:1", "PLAINTEXT", NOBODY_S - 1) is of_query.error("k:1", "PLAINTEXT", 1e9) is None
    of_command.log.warning("%sDisconnected while requesting ApiVersion", said)
    assert of_command.error("k:1", "PLAINTEXT", NOBODY_S) is None, "a broker is there, and starts"


def test_an_unusable_runtime_folder_is_told_before_the_brokers(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path / "file"))
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing", "subscribe": "orders"}
    for first in (
        lambda: Admin({"bootstrap.servers": "127.0.0.1:1"}),
        lambda: CoordinatorClient.connect("127.0.0.1:1"),
        lambda: cluster_check.check_at_load(SourceOptions.parse(given)),
    ):
        with pytest.raises(UnsafeDirectory, match="SHAREGROUP_RUNTIME_DIR"):
            first()


def speaking(protocol):
    return {"security.protocol": protocol, **(LOGIN if protocol.startswith("SASL") else {})}


LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "hunter2"}
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46\x00"
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


NO_BROKER = "Name the port of a broker's Kafka listener"
PLAIN = ("PLAINTEXT", "SASL_PLAINTEXT")


@pytest.mark.parametrize(
    ("protocol", "answer", "told"),
    [
        *((protocol, HTTP, f"answers in HTTP.*{NO_BROKER}") for protocol in PLAIN),
        *((protocol, b"SSH-2.0-x\r\n", f'answers with the text "SSH-".*{NO_BROKER}') for protocol in PLAIN),
        *((protocol, TLS_ALERT, r"answers in TLS.*Set kafka\.security\.protocol to SSL") for protocol in PLAIN),
        *((protocol, HTTP, f"answers in HTTP.*{NO_BROKER}") for protocol in ("SSL", "SASL_SSL")),
    ],
)
def test_a_listener_of_another_protocol_is_told_from_others(protocol, answer, told):
    with listening(Answer, answer) as address, pytest.raises(BrokerSpeaksOtherwise) as raised:
        cluster_metadata(address, speaking(protocol), timeout_s=5)
    assert re.search(told, str(raised.value))
    assert f"this client speaks {protocol} (kafka.security.protocol)" in str(raised.value)


@pytest.mark.parametrize("protocol", [PLAIN[0], *(pytest.param(other, marks=pytest.mark.slow) for other in PLAIN[1:])])
def test_a_tls_listener_that_closes_on_plain_text_is_named(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with listening(Tls, context) as address, pytest.raises(BrokerSpeaksOtherwise, match="answers in TLS") as raised:
        cluster_metadata(address, speaking(protocol), timeout_s=2)
    assert "Set kafka.security.protocol to SSL or SASL_SSL" in str(raised.value)
