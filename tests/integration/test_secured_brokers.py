"""SCRAM, TLS, mutual TLS and OAuth: the source's reading, the coordinator's state topic and the dead letters work with
each, and what the brokers do not accept is told by name, with librdkafka's reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from coordinator.client.cluster_metadata import cluster_metadata
from coordinator.dead_letters.record_format import Origin
from coordinator.protocol.errors import BrokerNotReachable, BrokerSecurityFailed
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from pyspark_sharegroup import DefaultSource
from share_source.reader_choice import NATIVE, PYTHON
from sharegroup import AcknowledgeType, Admin, ShareConsumer
from tests.support.coordinator_process import kill_coordinators
from tests.support.reader_query import Query
from tests.support.rejecting import origins, read_all
from tests.support.secured_broker import CLIENT_SECRET, PASSWORD, SecuredBroker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("own_runtime")]

KINDS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "TLS", "mutual TLS", "OAUTHBEARER"]
IN_SOAK = "OAUTHBEARER without TLS"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """One broker with a listener for each kind."""
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"))
    yield broker
    broker.close()


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (NATIVE, KINDS[0]),
        *(pytest.param(NATIVE, kind, marks=pytest.mark.slow) for kind in KINDS[1:] if kind != "SCRAM-SHA-512"),
        pytest.param(NATIVE, "SCRAM-SHA-512", marks=pytest.mark.soak),
        pytest.param(PYTHON, KINDS[0], marks=pytest.mark.slow),
        *(pytest.param(PYTHON, kind, marks=pytest.mark.soak) for kind in KINDS[1:]),
        *(pytest.param(reader, IN_SOAK, marks=pytest.mark.soak) for reader in (NATIVE, PYTHON)),
    ],
    indirect=["reader"],
)
def test_reading_state_and_dead_letters_work(
    secured: SecuredBroker, unique: Callable[[str], str], reader: str, kind: str
) -> None:
    kafka, config, group = secured.broker, secured.configs[kind], unique("group")
    orders, dlq = kafka.create_topic(), kafka.create_topic()
    kafka.produce(orders, ["read", "rejected"])
    options = {f"kafka.{key}": value for key, value in config.items()}
    query = Query(**options, **{"kafka.group.id": group}, subscribe=orders, startingOffsets="earliest")
    assert [row["value"] for row in query.run(most=1)] == [b"read"]
    kill_coordinators()
    assert not query.next_batch(0)
    query.reader.stop()

    more = {"group.id": group, "errors.deadletterqueue.topic.name": dlq, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({**config, **more}) as consumer, Admin(config) as admin:
        consumer.subscribe([orders])
        (message,) = wait_until(lambda: list(consumer.poll(1.0)), what="the second record comes")
        consumer.acknowledge(message, AcknowledgeType.REJECT)
        consumer.commit_sync()
        wait_until(lambda: read_all(kafka, dlq), what="its dead letter is written")
        assert list(origins(read_all(kafka, dlq))) == [Origin(orders, 0, 1, group, 1)]
        wait_until(lambda: [p.start_offset for p in admin.list_offsets(group).partitions] == [2], what="all is done")
    assert read_all(kafka, STATE_TOPIC)


def wrong(secured: SecuredBroker, case: str) -> dict[str, str]:
    """A client's configuration that is wrong in one place."""
    configs = secured.configs
    foreign = str(secured.stranger.issue("foreign"))
    return {
        "another password": {**configs["SCRAM-SHA-256"], "sasl.password": "wrong-s3cret"},
        "another user": {**configs["SCRAM-SHA-512"], "sasl.username": "bob"},
        "another authority": {**configs["TLS"], "ssl.ca.location": str(secured.stranger.ca)},
        "no certificate": {**configs["TLS"], "bootstrap.servers": configs["mutual TLS"]["bootstrap.servers"]},
        "a foreign certificate": {
            **configs["mutual TLS"],
            "ssl.certificate.location": foreign,
            "ssl.key.location": foreign,
        },
    }[case]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("another password", "Authentication failed during authentication due to invalid credentials"),
        pytest.param(
            "another user",
            "Authentication failed during authentication due to invalid credentials",
            marks=pytest.mark.slow,
        ),
        ("another authority", "certificate verify failed"),
        pytest.param("no certificate", "certificate", marks=pytest.mark.slow),
        pytest.param("a foreign certificate", "certificate", marks=pytest.mark.slow),
    ],
)
def test_a_refusal_is_raised_by_name_with_its_reason(secured: SecuredBroker, case: str, reason: str) -> None:
    assert_refused(wrong(secured, case), reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"lifetime_s": -60}, "unexpired token"),
        ({"audience": "another service"}, "invalid_token"),
        ({"status": 401}, "invalid_client"),
    ],
    ids=["expired", "for another service", "refused"],
)
def test_a_refused_token_is_raised_by_name_with_its_reason(
    secured: SecuredBroker, change: dict[str, object], reason: str
) -> None:
    with secured.tokens.changed(**change):
        assert_refused(secured.configs["OAUTHBEARER"], reason)


@pytest.mark.slow
def test_a_token_endpoint_that_is_away_is_named_as_the_reason(secured: SecuredBroker) -> None:
    config = {**secured.configs["OAUTHBEARER"], "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:9/token"}
    bootstrap = config.pop("bootstrap.servers")
    with pytest.raises(BrokerNotReachable, match=r"OAUTHBEARER token: .*onnect to 127\.0\.0\.1") as raised:
        cluster_metadata(bootstrap, config, timeout_s=4.0)
    assert raised.value.retriable


def assert_refused(config: dict[str, str], reason: str) -> None:
    """Where the query asks first, and at its load()."""
    rest = {key: value for key, value in config.items() if key != "bootstrap.servers"}
    with pytest.raises(BrokerSecurityFailed) as raised:
        cluster_metadata(config["bootstrap.servers"], rest)
    assert reason in str(raised.value)
    options = {f"kafka.{key}": value for key, value in config.items()}
    with pytest.raises(BrokerSecurityFailed, match=reason) as loaded:
        DefaultSource({**options, "kafka.group.id": "g", "subscribe": "orders"}).schema()
    for text in (str(raised.value), str(loaded.value)):
        assert not any(secret in text for secret in (PASSWORD, CLIENT_SECRET, "s3cret"))
