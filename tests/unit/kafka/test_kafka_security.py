"""Security settings with which no broker can be reached are refused at once, by the key that is missing: each protocol
and each mechanism with all that it needs, and with one thing less. librdkafka itself is asked about each."""

import itertools

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.config.kafka_options import to_librdkafka
from coordinator.kafka.security import MECHANISMS, PROTOCOLS
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.option_errors import InvalidOption, MissingOption

SECRET = "hunter2"
LOGIN = {"sasl.username": "alice", "sasl.password": SECRET}
JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": SECRET,
}
BY_JWT = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
    "sasl.oauthbearer.assertion.private.key.file": "key.pem",
}
NEEDS = {
    "PLAIN": [LOGIN],
    "SCRAM-SHA-256": [LOGIN],
    "SCRAM-SHA-512": [LOGIN],
    "OAUTHBEARER": [OIDC, BY_JWT],
    "GSSAPI": [{"sasl.kerberos.keytab": "alice.keytab"}],
}
BESIDE = {"sasl.oauthbearer.assertion.private.key.file": {"sasl.oauthbearer.grant.type": JWT}}
"""A key of a set of needs -> what makes it the set that is needed."""
TOKENS = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "billing_iam:token"}
ALSO_FINE = [
    TOKENS,
    {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"},
    {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "OIDC",
        "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
    },
    {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
    },
    {"sasl.mechanism": "GSSAPI", "sasl.kerberos.min.time.before.relogin": "0"},
    {"sasl.mechanism": "GSSAPI", "sasl.kerberos.kinit.cmd": "kinit -k alice"},
    {"sasl.kerberos.service.name": "kafka"},
]
SASL = [protocol for protocol in PROTOCOLS if protocol.startswith("SASL")]
COMPLETE = [
    (protocol, mechanism, {**needs, **{k: v for key in needs for k, v in BESIDE.get(key, {}).items()}}, [*needs])
    for protocol, mechanism in itertools.product(SASL, MECHANISMS)
    for needs in NEEDS[mechanism]
]


def translated(config, prefix="kafka."):
    return to_librdkafka(config, {}, prefix=prefix)


def librdkafka_refuses(config):
    try:
        AdminClient({**config, "bootstrap.servers": "", "log_level": "0"})
    except KafkaException:
        return True
    return False


def test_a_mechanism_with_all_that_it_needs_is_taken():
    for protocol, mechanism, config, _ in COMPLETE:
        given = {"security.protocol": protocol, "sasl.mechanism": mechanism, **config}
        assert translated(given) == given
        is_asked = mechanism not in ("GSSAPI", "OAUTHBEARER")  # not in the wheel; it would fetch a token
        assert not (is_asked and librdkafka_refuses(given))


def test_what_a_mechanism_lacks_is_named():
    for protocol, mechanism, config, missing in [(*case[:3], key) for case in COMPLETE for key in case[3]]:
        for prefix in ["kafka.", ""]:
            for blank in [None, " "]:
                given = {"security.protocol": protocol, "sasl.mechanism": mechanism, **config}
                given = {key: value for key, value in given.items() if key != missing}
                given |= {} if blank is None else {missing: blank}
                with pytest.raises(MissingOption) as refused:
                    translated(given, prefix)
                assert refused.value.fields["option"] == prefix + missing
                assert "needs it" in str(refused.value)
                assert SECRET not in str(refused.value)


def test_other_ways_of_a_mechanism_are_taken():
    for config in ALSO_FINE:
        for protocol in SASL:
            assert translated({"security.protocol": protocol, **config})


def test_a_token_function_goes_with_oauth_alone():
    for protocol in PROTOCOLS:
        for mechanism in [*MECHANISMS, ""]:
            function = {"security.protocol": protocol, "oauth_cb": "billing_iam:token"}
            given = {**function, **({"sasl.mechanism": mechanism} if mechanism else {})}
            with pytest.raises(InvalidOption, match=r"kafka\.oauth_cb is wrong.*(remove one|=OAUTHBEARER)\."):
                translated({**given, **(OIDC if mechanism == "OAUTHBEARER" and protocol in SASL else LOGIN)})


def test_half_a_client_certificate_is_refused_where_tls_is_spoken():
    for protocol in PROTOCOLS:
        for form in ["location", "pem"]:
            for half, other in [("certificate", "key"), ("key", "certificate")]:
                given = {"security.protocol": protocol, f"ssl.{half}.{form}": "x"}
                given |= {"sasl.mechanism": "PLAIN", **LOGIN} if protocol in SASL else {}
                if not protocol.endswith("SSL"):
                    assert translated(given) == given
                    continue
                with pytest.raises(
                    MissingOption, match=rf"kafka\.ssl\.{other}\.{form} is missing: kafka\.ssl\.{half}\.{form} is"
                ):
                    translated(given)
                assert translated({**given, f"ssl.{other}.{form}": "x"})


def test_a_key_store_needs_its_password():
    given = {"security.protocol": "SSL", "ssl.keystore.location": "client.p12"}
    assert librdkafka_refuses(given)
    with pytest.raises(MissingOption, match=r"kafka\.ssl\.keystore\.password"):
        translated(given)


def test_what_librdkafka_refuses_is_refused_before_and_nothing_else():
    for mechanism in [None, *MECHANISMS[:3]]:
        for protocol in PROTOCOLS:
            for given in [{}, {"sasl.username": "alice"}, {"sasl.password": SECRET}, LOGIN]:
                config = {
                    "security.protocol": protocol,
                    **({"sasl.mechanism": mechanism} if mechanism else {}),
                    **given,
                }
                try:
                    translated(config)
                except ShareGroupError:
                    assert librdkafka_refuses(config)
                else:
                    assert not librdkafka_refuses(config)
