"""SCRAM, TLS, mutual TLS and OAuth: the source's reading, the coordinator's state topic and the dead letters work with
each, and what the brokers do not accept is told by name, with librdkafka's reason."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from coordinator.dead_letters.record_format import Origin
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import BrokerNotReachable, BrokerSecurityFailed
from coordinator.protocol.option_errors import InvalidOption
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from pyspark_sharegroup import DefaultSource
from share_source.executor.reader_choice import NATIVE, PYTHON
from sharegroup import ShareConsumer
from tests.support.iam_signer import LIFETIME_VARIABLE
from tests.support.kafka_log import messages_of
from tests.support.reader_query import Query
from tests.support.rejecting import origins
from tests.support.secured_broker import CLIENT_SECRET, PASSWORD, SecuredBroker
from tests.support.secured_story import read_and_reject
from tests.support.standalone import sharegroup, write_properties
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
    read_and_reject(config, group, orders, dlq)
    assert list(origins(messages_of(kafka.bootstrap, dlq))) == [Origin(orders, 0, 1, group, 1)]
    assert messages_of(kafka.bootstrap, STATE_TOPIC)


@pytest.fixture
def signing(secured: SecuredBroker, tmp_path: Path) -> dict[str, str]:
    """A client's configuration whose tokens a function signs, and no endpoint gives."""
    config = {key: value for key, value in secured.configs["OAUTHBEARER"].items() if "oauthbearer" not in key}
    key = secured.tokens.write_key(tmp_path / "signer.pem")
    return {**config, "oauth_cb": "tests.support.iam_signer:token", "sasl.oauthbearer.config": str(key)}


def calls(signing: dict[str, str]) -> Counter[int]:
    """How often the function was called, by process."""
    path = Path(signing["sasl.oauthbearer.config"]).with_name("calls")
    return Counter(map(int, path.read_text().split()))


@pytest.mark.slow
def test_a_function_signs_the_tokens_of_every_client(
    secured: SecuredBroker,
    signing: dict[str, str],
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(LIFETIME_VARIABLE, "5")
    kafka, group = secured.broker, unique("group")
    orders, dlq = kafka.create_topic(), kafka.create_topic()
    kafka.produce(orders, ["read", "rejected"])
    read_and_reject(signing, group, orders, dlq)
    assert list(origins(messages_of(kafka.bootstrap, dlq))) == [Origin(orders, 0, 1, group, 1)]
    coordinators = [pid for pid in calls(signing) if pid != os.getpid()]
    assert coordinators
    newest = coordinators[-1]  # that has begun to call last: process numbers may begin anew
    before = calls(signing)[newest]
    wait_until(lambda: calls(signing)[newest] > before, what="an idle coordinator renews its token")

    file = write_properties(
        tmp_path / "client.properties", {k: v for k, v in signing.items() if k != "bootstrap.servers"}
    )
    bootstrap = signing["bootstrap.servers"]
    done = sharegroup(
        "groups", "--bootstrap-server", bootstrap, "--command-config", file, "--group", group, "--describe"
    )
    assert orders in done.stdout, done.stderr


@pytest.mark.slow
def test_a_signer_that_is_away_for_a_while_is_called_again(
    secured: SecuredBroker, signing: dict[str, str], unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LIFETIME_VARIABLE, "10")
    topic, group = secured.broker.create_topic(), unique("group")
    options = {f"kafka.{key}": value for key, value in signing.items()}
    query = Query(**options, **{"kafka.group.id": group}, subscribe=topic, startingOffsets="earliest")
    secured.broker.produce(topic, ["before"])
    assert [row["value"] for row in query.run()] == [b"before"]
    away = Path(signing["sasl.oauthbearer.config"]).with_name("away")
    away.touch()
    before = calls(signing)
    # It is called again 10 s after it raised: by then each token has ended.
    wait_until(lambda: max((calls(signing) - before).values(), default=0) > 1, what="it is called in vain, twice")
    away.unlink()
    secured.broker.produce(topic, ["after"])
    assert [row["value"] for row in query.run()] == [b"after"]
    query.reader.stop()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("tests.support.iam_signer:milliseconds", "returned an expiry in milliseconds; return expiry_ms / 1000"),
        ("tests.support.nowhere:token", "can't be imported here (ModuleNotFoundError"),
    ],
)
def test_a_wrong_token_function_is_refused_by_queries_and_share_consumers(
    signing: dict[str, str], function: str, says: str
) -> None:
    wrong = {**signing, "oauth_cb": function}
    options = {f"kafka.{key}": value for key, value in wrong.items()}
    with pytest.raises(InvalidOption, match=r"kafka\.oauth_cb") as loaded:
        DefaultSource({**options, "kafka.group.id": "g", "subscribe": "orders"}).schema()
    with pytest.raises(KafkaException, match="oauth_cb") as consumer:
        ShareConsumer({**wrong, "group.id": "g"})
    assert says in str(loaded.value)
    assert says in str(consumer.value)


NO_CREDENTIALS = "tests.support.iam_signer:token raised ConnectionError: the signer has no credentials"


def test_a_function_that_raises_is_named_with_its_error(signing: dict[str, str]) -> None:
    Path(signing["sasl.oauthbearer.config"]).with_name("away").touch()
    options = {f"kafka.{key}": value for key, value in signing.items()}
    with pytest.raises(InvalidOption, match=NO_CREDENTIALS):
        DefaultSource({**options, "kafka.group.id": "g", "subscribe": "orders"}).schema()


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
