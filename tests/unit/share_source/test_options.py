"""The source's options and columns: taken as Spark hands them over, or refused by name before the query starts."""

from __future__ import annotations

import pickle
import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from coordinator.client.options import OptionTable
from coordinator.kafka.java_keys import SERIALIZERS, SHARE_GROUPS_FORBID
from coordinator.protocol.errors import InvalidTopicPattern, ShareGroupError
from coordinator.protocol.option_errors import MissingOption, RefusedOption, TableRefused
from pyspark_sharegroup import DefaultSource
from share_sink.options import SinkOptions
from share_sink.sink_option_table import TABLE as SINK_TABLE
from share_source.arrow_schema import spark_schema
from share_source.errors import SchemaRefused
from share_source.options import SourceOptions
from share_source.source_option_table import TABLE

BASE = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}


def options(**more: str | None) -> SourceOptions:
    return SourceOptions.parse({**BASE, **more})


def test_the_first_programs_options_are_parsed() -> None:
    assert options(startingOffsets="earliest") == SourceOptions(
        bootstrap_servers="localhost:9092", group_id="billing", kafka_config={"bootstrap.servers": "localhost:9092"},
        topics=("orders",), starting_offsets="earliest", poll_timeout_ms=300_000,
    )  # fmt: skip
    assert options().state_store == "kafka"


def test_names_are_taken_in_any_case_and_absent_values_are_absent() -> None:
    spelled = {name.upper(): value for name, value in BASE.items()}
    parsed = SourceOptions.parse({**spelled, "MAXOFFSETSPERTRIGGER": "10", "minpartitions": None})
    assert parsed.max_offsets_per_trigger == 10
    assert parsed.min_partitions is None


def test_every_option_can_be_set() -> None:
    parsed = options(
        subscribe="orders, refunds,orders",
        maxOffsetsPerTrigger="1000",
        maxBytesPerTrigger="5000000",
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


def test_a_pattern_and_an_assignment_are_parsed() -> None:
    assert subscribed(subscribePattern="orders.*").topic_pattern == "orders.*"
    assert subscribed(assign='{"orders":[1,0,1]}').assign == {"orders": (0, 1)}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("(.{0,999}.{0,999}.{0,999})" * 100, "too large"),
        ("a" * 10_001, "longer than 10000 characters"),
        ("orders\ud800", "no text"),
    ],
)
def test_a_pattern_that_is_too_large_or_no_text_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidTopicPattern, match=fault):
        subscribed(subscribePattern=text)


# --- where to begin


def test_starting_offsets_as_json_are_sorted() -> None:
    assert options(startingOffsets='{"orders": {"1": -2, "0": 23}}').starting_offsets == '{"orders":{"0":23,"1":-2}}'
    assert options(startingOffsets=" Latest ").starting_offsets == "latest"
    assert options().starting_offsets is None


# --- names


@pytest.mark.parametrize(
    ("table", "parse"), [(TABLE, SourceOptions.parse), (SINK_TABLE, SinkOptions.parse)], ids=["source", "sink"]
)
def test_each_option_of_others_is_refused_with_its_replacement(table: OptionTable, parse: Any) -> None:
    """tests/bad_input has the sentences of some, and of options and values that are wrong in other ways."""
    refused = {name: instead for name, (_, instead) in table.refused.items()}
    refused |= {
        f"kafka.{key}": instead for key, instead in {**SHARE_GROUPS_FORBID, **SERIALIZERS, **table.owned}.items()
    }
    base = {name: value for name, value in BASE.items() if name.startswith("kafka.") or table is TABLE}
    for name, instead in refused.items():
        with pytest.raises(RefusedOption, match=re.escape(name)) as caught:
            parse({**base, name: "x"})
        assert instead in str(caught.value)


def test_a_key_store_is_taken_in_the_format_of_librdkafka() -> None:
    assert options(**{"kafka.ssl.keystore.location": "/etc/client.p12"})


# --- what librdkafka knows


LOGIN = {"kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}


def test_librdkafka_checks_the_rest_without_starting_anything() -> None:
    before = set(threading.enumerate())
    options(**{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", **LOGIN}).check_kafka_config()
    assert set(threading.enumerate()) <= before


# --- secrets

SECRET_KEYS = [
    *("kafka.sasl.password", "kafka.sasl.pasword", "kafka.sasl.jaas.config", "kafka.ssl.key.password"),
    *("kafka.ssl.key.pem", "kafka.ssl.keystore.key", "kafka.ssl.truststore.password", "kafka.value.deserializer"),
    *("kafka.sasl.oauthbearer.client.secret", "kafka.sasl.oauthbearer.config", "kafka.sasl.oauthbearer.extensions"),
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


def test_columns_that_are_not_the_sources_are_refused() -> None:
    wanted = StructType().add("value", "string").add("more", "integer")
    with pytest.raises(
        SchemaRefused, match=r"deliveryCount, receipt\), .* others: value:string,more:int\. Remove \.schema"
    ):
        DefaultSource(BASE).streamReader(wanted).initialOffset()
    with pytest.raises(SchemaRefused, match="deliveryCount, receipt"):  # a schema from before receipts
        DefaultSource(BASE).streamReader(StructType(spark_schema().fields[:-1])).initialOffset()
    with pytest.raises(SchemaRefused):
        DefaultSource({**BASE, "includeHeaders": "true"}).streamReader(spark_schema()).getDefaultReadLimit()


def test_a_sql_table_is_refused_before_its_options_are_read() -> None:
    for options in ({"provider": "sharegroup", "owner": "me"}, {**BASE, "PROVIDER": "sharegroup"}):
        with pytest.raises(TableRefused, match="createOrReplaceTempView"):
            DefaultSource(_as_spark(options)).schema()


def test_a_writer_without_options_is_a_sql_table_s() -> None:
    with pytest.raises(TableRefused):
        DefaultSource({}).writer(spark_schema(), overwrite=False)
    with pytest.raises(MissingOption):
        DefaultSource({"kafka.group.id": "billing"}).writer(spark_schema(), overwrite=False)


def _as_spark(options: dict[str, str]) -> dict[str, str]:
    """Spark's map of options finds a name in any case."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    return CaseInsensitiveDict(options)
