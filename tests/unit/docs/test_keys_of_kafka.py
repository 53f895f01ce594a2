"""Each key of Kafka's share groups, and each option of Spark's Kafka source, has a counterpart here or a reason."""

from __future__ import annotations

import re

import pytest

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.server_keys import SERVER_KEYS
from share_source.source_option_table import OPTIONS, REFUSED
from tests.support.class_strings import class_strings, kafka_strings
from tests.support.readme import ROOT
from tools.generate_config_docs import SPARKS, WITHOUT_COUNTERPART
from tools.generate_java_keys import all_keys, outcome

GROUPS = ("GroupConfig", "GroupCoordinatorConfig", "modern.share.ShareGroupConfig")
KEY = re.compile(r"(group\.)?share(\.[a-z]+)+|errors\.deadletterqueue(\.[a-z]+)+")
OPTION = re.compile(
    r"(starting|ending|max|min|failon|groupid|include)[a-z]+|(fetchoffset|kafkaconsumer)\.[a-z]+|subscribe.*|assign"
)
SPARK_JARS = ROOT / ".build" / "spark-kafka"


def test_each_key_of_kafkas_groups_and_brokers_is_here_or_explained() -> None:
    strings = kafka_strings("kafka-group-coordinator", *(f"coordinator.group.{name}" for name in GROUPS))
    strings |= kafka_strings("kafka-share-coordinator", "coordinator.share.ShareCoordinatorConfig")
    kafka = {text for text in strings if KEY.fullmatch(text)}
    assert len(kafka) > 40
    here = {**GROUP_KEYS, **COORDINATOR_KEYS, **SERVER_KEYS}
    assert kafka - here.keys() == WITHOUT_COUNTERPART.keys()
    ours = {name for name, key in here.items() if not key.ours and KEY.fullmatch(name)} - kafka
    assert {name for name in ours if here[name].kip in ("KIP-932", "KIP-1240", "KIP-1263")} <= AS_CLIENTS


AS_CLIENTS = {"share.acknowledgement.mode", "group.share.max.groups"}
"""A setting of Kafka's consumers, and one that Kafka dropped after 4.0."""


def test_each_key_of_kafkas_share_consumer_has_an_outcome() -> None:
    clients = kafka_strings("kafka-clients", "clients.consumer.ConsumerConfig", "clients.consumer.ShareConsumerConfig")
    keys = {text for text in clients if text.startswith("share.") and KEY.fullmatch(text)}
    assert keys and keys <= all_keys().keys() and all(outcome(key)[1] for key in keys)


def test_the_table_has_what_the_source_refuses_of_spark() -> None:
    assert set(SPARKS) <= REFUSED.keys()


@pytest.mark.soak  # which fetches the jar of Spark's Kafka source
def test_each_option_of_sparks_source_is_here_or_refused() -> None:
    (jar,) = SPARK_JARS.glob("spark-sql-kafka-0-10*.jar")
    source = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
    sparks = {text for text in class_strings(jar, source) if OPTION.fullmatch(text) and text == text.lower()}
    assert {name.lower() for name in SPARKS} == sparks - {option.name.lower() for option in OPTIONS}
