"""A configuration that librdkafka refuses is named by its key, never by its value."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from coordinator.dead_letters.source_records import SourceRecordReader
from coordinator.kafka.librdkafka import LONGEST_POLL_S, WITHOUT_A_GROUP, Silence, is_refused, new_client
from coordinator.protocol.errors import InvalidKafkaConfig
from coordinator.service.stores.kafka.state_topic import StateTopic
from share_source.executor.consumers import client_config
from tests.support.imports import ROOT

SECRET = "s3cret"
OURS = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "group.id": "unused"}


@pytest.mark.parametrize("client", [AdminClient, Producer, Consumer])
@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"no.such.key": SECRET}, "no.such.key"),
        ({"socket.timeout.ms": SECRET}, "socket.timeout.ms"),
        ({"client.id": SECRET, "sasl.jaas.config": SECRET}, "sasl.jaas.config"),
        ({"security.protocol": "ssl", "ssl.key.pem": SECRET}, "ssl.key.pem"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": SECRET}, "sasl.password"),
    ],
)
def test_a_property_that_librdkafka_refuses_is_named(client, config, key):
    with pytest.raises(InvalidKafkaConfig) as refused:
        new_client(client, {**OURS, **config})
    assert refused.value.fields["key"] == key
    assert refused.value.fields["reason"]
    assert SECRET not in str(refused.value)


def test_the_invalid_property_is_named_beside_a_callback():
    with pytest.raises(InvalidKafkaConfig, match=r"sasl\.jaas\.config"):
        new_client(Consumer, {**OURS, "on_commit": lambda *_: None, "sasl.jaas.config": "x"})


def test_only_whole_values_are_redacted_and_no_part_of_a_word():
    def refuses(config):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "recompile librdkafka: kafka refuses it"))

    with pytest.raises(InvalidKafkaConfig, match=r"recompile librdkafka: \*\*\* refuses it"):
        new_client(refuses, {**OURS, "sasl.password": "kafka"})
    with pytest.raises(InvalidKafkaConfig, match=r"recompile librdkafka: kafka refuses it"):
        new_client(refuses, {**OURS, "sasl.kerberos.service.name": "kafka"})


def test_a_wheel_without_kerberos_says_how_to_get_one_with_it():
    with pytest.raises(InvalidKafkaConfig, match=r"recompile librdkafka with libsasl2 .*docs/run/brokers\.md"):
        new_client(Consumer, {**OURS, "security.protocol": "SASL_SSL", "sasl.kerberos.service.name": "kafka"})


def test_a_conflict_between_several_properties_is_named():
    def refuses(config):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "they don't go together"))

    with pytest.raises(InvalidKafkaConfig, match="several"):
        new_client(refuses, OURS)


def test_silence_is_counted_from_the_last_that_came():
    now = [100.0]
    silence = Silence(lambda: now[0])
    for _ in range(3):
        now[0] += 0.5
        silence.lasts_s()
    assert silence.lasts_s() == 1.5
    silence.ends()
    now[0] += 0.5
    assert silence.lasts_s() == 0.5


def test_a_pause_of_the_process_is_no_silence_of_the_brokers():
    now = [100.0]
    silence = Silence(lambda: now[0])
    now[0] += 3_600.0
    assert silence.lasts_s() == LONGEST_POLL_S


ALERT = "ssl://b:1/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls alert {}: SSL alert number 42"
TOKEN = "Failed to acquire SASL OAUTHBEARER token: {}"


@pytest.mark.parametrize(
    ("code", "text", "refused"),
    [
        *((KafkaError._TRANSPORT, ALERT.format(alert), True) for alert in ("bad certificate", "certificate required")),
        *((KafkaError._TRANSPORT, ALERT.format(alert), True) for alert in ("certificate expired", "unknown ca")),
        (KafkaError._TRANSPORT, ALERT.format("access denied"), True),
        (KafkaError._TRANSPORT, "ssl://b:1/bootstrap: Receive failed: Broken pipe", False),
        (KafkaError._AUTHENTICATION, TOKEN.format("Could not connect to server"), False),
        (KafkaError._AUTHENTICATION, TOKEN.format("Could not resolve host: identity.invalid"), False),
        (KafkaError._AUTHENTICATION, TOKEN.format("Connection timed out after 10001 milliseconds"), False),
        (KafkaError._AUTHENTICATION, TOKEN.format('{"error": "invalid_client"}'), True),
        (KafkaError._AUTHENTICATION, TOKEN.format("Must supply an unexpired token: now=2ms, exp=1ms"), True),
    ],
)
def test_a_refusal_is_told_from_an_endpoint_out_of_reach(code: int, text: str, refused: bool) -> None:
    assert is_refused(KafkaError(code, text)) is refused


SHOWN = {"sasl.oauthbearer.extensions", "sasl.oauthbearer.token.endpoint.url"}
HIDDEN = {
    "sasl.username",
    "sasl.password",
    "ssl.key.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
}


def test_debug_lines_of_librdkafka_show_the_secrets_that_the_page_names(capfd: pytest.CaptureFixture[str]) -> None:
    secrets = {key: f"of-{key}" for key in SHOWN | HIDDEN}
    values = {
        **secrets,
        "sasl.oauthbearer.extensions": f"secret={secrets['sasl.oauthbearer.extensions']}",
        "sasl.oauthbearer.token.endpoint.url": f"http://me:{secrets['sasl.oauthbearer.token.endpoint.url']}@127.0.0.1:1/",
    }
    oauth = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "me"}
    security = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", **oauth}
    new_client(Producer, {**security, **values, "debug": "all"})
    lines = capfd.readouterr().err
    assert "sasl.oauthbearer.client.id = me" in lines
    assert {key for key, secret in secrets.items() if secret in lines} <= SHOWN
    page = (ROOT / "docs/run/start-and-stop.md").read_text(encoding="utf-8")
    assert all(f"`kafka.{key}`" in page for key in SHOWN)


def test_tasks_read_in_a_rack_and_the_coordinator_from_leaders():
    """A follower's log may end before a record that the leader has: that is no proof that there is none."""
    rack = {"client.rack": "r2"}
    assert dict(client_config(rack, "read_committed"))["client.rack"] == "r2"
    assert dict(client_config({}, "read_committed"))["client.rack"] == ""
    assert SourceRecordReader("a:1", rack, read_committed=True)._config["client.rack"] == ""
    of_state = {"cluster": None, "partitions": 1, "write_timeout_ms": 1, "broker_timeout_ms": 1}
    state = StateTopic(bootstrap_servers="a:1", kafka_config=rack, **of_state)
    assert state.client_config(**WITHOUT_A_GROUP)["client.rack"] == ""
