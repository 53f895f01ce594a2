"""The source's options: taken as Spark hands them over, or refused by name before the query starts."""

from __future__ import annotations

import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.errors import (
    ConfigConflict,
    ConfigOutOfBounds,
    InvalidTopicPattern,
    ShareGroupError,
    TopicKept,
    UnknownConfig,
)
from coordinator.protocol.option_errors import (
    InvalidOption,
    MissingOption,
    RefusedOption,
    UnknownKafkaOption,
    UnknownOption,
)
from share_source.errors import NoSubscription, SeveralSubscriptions
from share_source.options import SourceOptions

BASE = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}


def options(**more: str | None) -> SourceOptions:
    return SourceOptions.parse({**BASE, **more})


def test_the_first_programs_options_are_parsed() -> None:
    parsed = options(startingOffsets="earliest")
    assert parsed.bootstrap_servers == "localhost:9092"
    assert parsed.group_id == "billing"
    assert parsed.topics == ("orders",)
    assert parsed.starting_offsets == "earliest"
    assert parsed.fail_on_data_loss
    assert not parsed.include_headers
    assert parsed.poll_timeout_ms == 300_000
    assert parsed.state_store == "kafka"
    assert parsed.kafka_config == {"bootstrap.servers": "localhost:9092"}


def test_names_are_taken_in_any_case_and_absent_values_are_absent() -> None:
    spelled = {name.upper(): value for name, value in BASE.items()}
    parsed = SourceOptions.parse({**spelled, "MAXOFFSETSPERTRIGGER": "10", "minpartitions": None})
    assert parsed.max_offsets_per_trigger == 10
    assert parsed.min_partitions is None


def test_every_option_can_be_set() -> None:
    parsed = options(
        subscribe="orders, refunds,orders",
        maxOffsetsPerTrigger="1000",
        minPartitions="4",
        maxRecordsPerPartition="50",
        includeHeaders="TRUE",
        failOnDataLoss="false",
        **{
            "kafkaConsumer.pollTimeoutMs": "512",
            "share.session.timeout.ms": "60000",
            "share.state.store": "sqlite:/var/lib/state.db",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.ssl.endpoint.identification.algorithm": "",
        },
    )
    assert parsed.topics == ("orders", "refunds")
    assert (parsed.max_offsets_per_trigger, parsed.min_partitions, parsed.max_records_per_partition) == (1000, 4, 50)
    assert parsed.include_headers
    assert not parsed.fail_on_data_loss
    assert parsed.poll_timeout_ms == 512
    assert parsed.group_configs == {"share.session.timeout.ms": "60000"}
    assert parsed.state_store == "sqlite:/var/lib/state.db"
    assert parsed.kafka_config["fetch.wait.max.ms"] == "100"
    assert parsed.kafka_config["ssl.endpoint.identification.algorithm"] == "none"
    assert pickle.loads(pickle.dumps(parsed)) == parsed


# --- what to read


def subscribed(**strategy: str) -> SourceOptions:
    return SourceOptions.parse({**{k: v for k, v in BASE.items() if k != "subscribe"}, **strategy})


def test_a_query_without_a_subscription_is_refused() -> None:
    with pytest.raises(NoSubscription, match="subscribe, subscribePattern and assign"):
        subscribed()


def test_two_subscriptions_are_refused() -> None:
    with pytest.raises(SeveralSubscriptions, match="subscribe, assign contradict"):
        options(assign='{"orders":[0]}')


def test_a_pattern_and_an_assignment_are_parsed() -> None:
    assert subscribed(subscribePattern="orders.*").topic_pattern == "orders.*"
    assert subscribed(assign='{"orders":[1,0,1]}').assign == {"orders": (0, 1)}


@pytest.mark.parametrize("text", ["", " , ", "a b", "orders/x", "..", "x" * 250])
def test_an_impossible_topic_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="subscribe"):
        options(subscribe=text)


def test_an_empty_pattern_is_refused() -> None:
    with pytest.raises(InvalidOption, match="subscribePattern"):
        subscribed(subscribePattern="")


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("orders(", r"missing \)"),
        ("a{1001}", r"\{1001\}"),
        ("(?!internal).*", r"\(\?!"),
        ("orders(?=-eu)", r"\(\?="),
        (r"(a+)\1", r"\\1"),
        ("a++", r"\+\+"),
        ("(?>a)", r"\(\?>"),
        ("(.{0,999}.{0,999}.{0,999})" * 100, "too large"),
        ("a" * 10_001, "longer than 10000 characters"),
        ("orders\ud800", "no text"),
    ],
)
def test_an_unusable_pattern_is_named_with_the_fault_and_the_remedy(text, construct) -> None:
    with pytest.raises(InvalidTopicPattern, match=rf"subscribePattern.*{construct}.*RE2.*by name\.$"):
        subscribed(subscribePattern=text)


@pytest.mark.parametrize(
    "topic", ["share-group-state", "__consumer_offsets", "__transaction_state", "__share_group_state"]
)
@pytest.mark.parametrize("text", ["{0}", "orders,{0}"])
def test_a_topic_kept_by_kafka_or_sharegroup_is_refused(topic: str, text: str) -> None:
    with pytest.raises(TopicKept, match=topic):
        options(subscribe=text.format(topic))
    with pytest.raises(TopicKept, match=topic):
        subscribed(assign=f'{{"{topic}": [0]}}')


@pytest.mark.parametrize(
    "text",
    ["", "orders", "{}", "[]", '{"orders":[]}', '{"orders":[-1]}', '{"orders":["0"]}', '{"orders":0}', "[" * 9999],
)
def test_an_invalid_assignment_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="assign"):
        subscribed(assign=text)


@pytest.mark.parametrize("name", ["kafka.group.id", "kafka.bootstrap.servers"])
@pytest.mark.parametrize("value", [None, "  "])
def test_a_missing_required_option_is_named(name: str, value: str | None) -> None:
    with pytest.raises(MissingOption, match=name):
        options(**{name: value})


# --- where to begin


def test_starting_offsets_as_json_are_sorted() -> None:
    assert options(startingOffsets='{"orders": {"1": -2, "0": 23}}').starting_offsets == '{"orders":{"0":23,"1":-2}}'
    assert options(startingOffsets=" Latest ").starting_offsets == "latest"
    assert options().starting_offsets is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("newest", "earliest, latest, or JSON"),
        ('{"orders": 5}', "an offset from -2 on"),
        ('{"orders": {"0": -3}}', "an offset from -2 on"),
        ('{"orders": {"0": true}}', "an offset from -2 on"),
        ('{"orders": {"x": 1}}', "an offset from -2 on"),
        ('{"orders": {"' + "9" * 5000 + '": 1}}', "an offset from -2 on"),
        ('{"refunds": {"0": 1}}', "refunds is not subscribed"),
    ],
)
def test_invalid_starting_offsets_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem) as caught:
        options(startingOffsets=text)
    assert caught.value.fields["option"] == "startingOffsets"


def test_starting_offsets_of_an_unassigned_partition_are_refused() -> None:
    with pytest.raises(InvalidOption, match="orders-1 is not assigned"):
        subscribed(assign='{"orders":[0]}', startingOffsets='{"orders":{"1":5}}')


# --- values


def test_a_count_is_a_whole_number_from_one_on() -> None:
    for name in ["maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs"]:
        for text in ["0", "-1", "many", "1.5", "", "9" * 19, "9" * 5000, "²"]:
            with pytest.raises(InvalidOption, match="whole number between 1 and") as caught:
                options(**{name: text})
            assert caught.value.fields["option"] == name


@pytest.mark.parametrize("name", ["includeHeaders", "failOnDataLoss"])
def test_a_flag_is_true_or_false(name: str) -> None:
    with pytest.raises(InvalidOption, match="'yes' is not true or false"):
        options(**{name: "yes"})


# --- names


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(UnknownOption, match=r"maxoffsetpertrigger is not an option .* maxOffsetsPerTrigger"):
        options(maxOffsetPerTrigger="5")


def test_an_option_ruled_out_by_share_groups_is_refused_with_the_replacement() -> None:
    for name, instead in [
        ("groupIdPrefix", "kafka.group.id"),
        ("startingTimestamp", "by_duration"),
        ("startingOffsetsByTimestamp", "by_duration"),
        ("startingOffsetsByTimestampStrategy", "Remove it"),
        ("endingOffsets", "availableNow"),
        ("endingTimestamp", "availableNow"),
        ("endingOffsetsByTimestamp", "availableNow"),
        ("minOffsetsPerTrigger", "processingTime"),
        ("maxTriggerDelay", "processingTime"),
        ("fetchOffset.numRetries", "share.broker.outage.timeout.ms"),
        ("fetchOffset.retryIntervalMs", "share.broker.outage.timeout.ms"),
        ("group.id", "kafka.group.id"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("auto.offset.reset", "startingOffsets"),
        ("topic", "subscribe"),
        ("checkpointLocation", "writeStream"),
        ("path", "subscribe"),
    ]:
        with pytest.raises(RefusedOption) as caught:
            options(**{name: "x"})
        assert name in str(caught.value)
        assert instead in str(caught.value)


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_an_option_that_cuts_partitions_contradicts_an_order(option: str) -> None:
    with pytest.raises(RefusedOption, match=rf"{option} can't .*share\.order=partition.*sortWithinPartitions"):
        options(**{option: "4", "share.order": "partition"})
    assert options(**{option: "4", "share.order": ""})


def test_a_ruled_out_kafka_property_is_refused_with_the_replacement() -> None:
    for key, instead in [
        ("auto.offset.reset", "startingOffsets"),
        ("auto.offset.reset", "share.auto.offset.reset"),
        ("enable.auto.commit", "Remove it"),
        ("group.instance.id", "checkpoint"),
        ("isolation.level", "share.isolation.level"),
        ("partition.assignment.strategy", "Remove it"),
        ("interceptor.classes", "in the query"),
        ("session.timeout.ms", "share.session.timeout.ms"),
        ("heartbeat.interval.ms", "share.heartbeat.interval.ms"),
        ("group.protocol", "Remove it"),
        ("group.remote.assignor", "Remove it"),
        ("key.deserializer", "CAST"),
        ("value.deserializer", "CAST"),
        ("key.serializer", "CAST"),
        ("value.serializer", "CAST"),
        ("enable.partition.eof", "Remove it"),
        ("max.poll.records", "maxOffsetsPerTrigger"),
        ("ssl.truststore.type", "kafka.ssl.ca.location"),
        ("ssl.truststore.location", "kafka.ssl.ca.location"),
        ("ssl.truststore.password", "kafka.ssl.ca.location"),
        ("share.session.timeout.ms", "Use share.session.timeout.ms"),
        ("error_cb", "Remove it"),
    ]:
        with pytest.raises(RefusedOption) as caught:
            options(**{f"kafka.{key}": "x"})
        assert f"kafka.{key}" in str(caught.value)
        assert instead in str(caught.value)


def test_a_java_key_store_is_refused_with_the_conversion_tool() -> None:
    with pytest.raises(RefusedOption, match="keytool"):
        options(**{"kafka.ssl.keystore.location": "/etc/client.JKS"})
    assert options(**{"kafka.ssl.keystore.location": "/etc/client.p12"})


def test_javas_and_librdkafkas_name_of_one_property_conflict() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.request\.timeout\.ms .* same as kafka\.socket\.timeout\.ms"):
        options(**{"kafka.socket.timeout.ms": "1000", "kafka.request.timeout.ms": "2000"})


# --- share.*


def test_an_unknown_share_key_names_the_nearest() -> None:
    with pytest.raises(UnknownConfig, match=r"share\.delivery\.limit .* share\.delivery\.count\.limit"):
        options(**{"share.delivery.limit": "5"})
    with pytest.raises(UnknownConfig, match=r"share\.state\.store"):
        options(**{"share.state.stor": "sqlite"})
    for gone in ("share.coordinator.fleet.group.id", "share.coordinator.session.timeout.ms"):
        with pytest.raises(UnknownConfig, match=f"{gone} .*remove it"):
            options(**{gone: "1"})


def test_a_share_key_out_of_bounds_is_refused_with_the_bounds() -> None:
    with pytest.raises(ConfigOutOfBounds, match=r"share\.delivery\.count\.limit=1 .* between 2 and 10"):
        options(**{"share.delivery.count.limit": "1"})


def test_an_endpoint_is_an_address_or_several_and_goes_with_no_store() -> None:
    assert options(**{"share.coordinator.endpoint": "a:1, b:2"}).coordinator_configs["share.coordinator.endpoint"]
    with pytest.raises(ConfigOutOfBounds, match=r"host:port, or several"):
        options(**{"share.coordinator.endpoint": "a:1,b"})
    with pytest.raises(ConfigConflict, match=r"a standalone coordinator has its own store"):
        options(**{"share.coordinator.endpoint": "a:1", "share.state.store": "sqlite"})


# --- what librdkafka knows


LOGIN = {"kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}


def test_librdkafka_checks_the_rest_without_starting_anything() -> None:
    before = set(threading.enumerate())
    options(**{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", **LOGIN}).check_kafka_config()
    assert set(threading.enumerate()) <= before


def test_an_unknown_kafka_property_names_the_nearest() -> None:
    with pytest.raises(UnknownKafkaOption, match=r"kafka\.sasl\.pasword .* kafka\.sasl\.password") as caught:
        options(**{"kafka.sasl.pasword": "hunter2"}).check_kafka_config()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("security.protocol", "SSLL", 'Invalid value "SSLL"'),
        ("fetch.min.bytes", "-5", "allowed range 0"),
        ("enable.metrics.push", "hunter2", "Expected bool value"),
        ("receive.buffer.bytes", "-5", r'"receive\.buffer\.bytes" value -5 is outside allowed range 0'),
        ("retry.backoff.ms", "0", r"outside allowed range 1\.\.300000"),
    ],
)
def test_a_kafka_value_that_librdkafka_refuses_is_named(key: str, value: str, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem) as caught:
        options(**{f"kafka.{key}": value}).check_kafka_config()
    assert caught.value.fields["option"] == f"kafka.{key}"
    assert "hunter2" not in str(caught.value)


# --- secrets

SECRET_KEYS = [
    "kafka.sasl.password",
    "kafka.sasl.pasword",
    "kafka.sasl.jaas.config",
    "kafka.ssl.key.password",
    "kafka.ssl.key.pem",
    "kafka.ssl.keystore.key",
    "kafka.ssl.truststore.password",
    "kafka.sasl.oauthbearer.client.secret",
    "kafka.sasl.oauthbearer.config",
    "kafka.sasl.oauthbearer.extensions",
    "kafka.value.deserializer",
    "kafka.made.up.token",
]
FAULTS: list[dict[str, str | None]] = [
    {},
    {"subscribe": None},
    {"kafka.group.id": None},
    {"kafka.security.protocol": "SSLL"},
    {"share.session.timeout.ms": "1"},
    {"share.sesion": "1"},
    {"assign": "{}"},
    {"minPartitions": "x"},
]
secrets = st.dictionaries(
    st.sampled_from(SECRET_KEYS), st.text(alphabet="αβγδεζηθ", min_size=8, max_size=20).map(lambda s: "§" + s)
)


@given(secrets, st.sampled_from(FAULTS))
def test_secrets_are_in_no_repr_and_in_no_error(hidden: dict[str, str], fault: dict[str, str | None]) -> None:
    shown = ""
    try:
        parsed = options(**hidden, **fault)
        shown = f"{parsed} {parsed!r} {[parsed]}"
        parsed.check_kafka_config()
    except ShareGroupError as error:
        shown += f"{error} {error!r} {error.fields} {error.__cause__}"
    assert shown
    for secret in hidden.values():
        assert secret not in shown
        assert repr(secret)[1:-1] not in shown


@given(
    st.dictionaries(st.sampled_from([*BASE, "assign", "startingOffsets", "kafka.x", "foo", "minPartitions"]), st.text())
)
def test_any_options_are_taken_or_refused_by_name(given_options: dict[str, str]) -> None:
    code = "INVALID_CONFIG"
    try:
        SourceOptions.parse(given_options)
    except ShareGroupError as error:
        code = error.kafka_error
    assert code in ("INVALID_CONFIG", "INVALID_GROUP_ID")
