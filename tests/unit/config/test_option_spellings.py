"""A key that is written in another way, or without its prefix, is refused with the way to write it. The cases are all
options and keys, each in the ways in which people write names."""

import re
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from coordinator.admin.admin import Admin
from coordinator.client.options import GROUP_PREFIXES
from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.kafka_options import PREFIX
from coordinator.kafka.java_keys import OF_THE_GROUP, RENAMED
from coordinator.kafka.properties import PROPERTIES
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.option_errors import RefusedOption
from share_consumer.options import ConsumerOptions
from share_sink.options import SinkOptions
from share_sink.sink_option_table import TABLE as SINK
from share_source.options import SourceOptions
from share_source.source_option_table import TABLE as SOURCE
from share_source.views.reader import ViewOptions
from sharegroup.cluster_options import settings
from tools.generate_java_keys import all_keys

CLUSTER = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing"}
SIDES = {
    "source": (SOURCE, lambda options: SourceOptions.parse({**CLUSTER, "subscribe": "orders", **options})),
    "sink": (SINK, lambda options: SinkOptions.parse({**CLUSTER, **options})),
}
KAFKAS = sorted({*all_keys(), *PROPERTIES} - {"topic", *OF_THE_GROUP})  # Spark's sink has an option of that name
CONFIGS = sorted({*GROUP_KEYS, *COORDINATOR_KEYS})
SEPARATORS = {"camel": "", "kebab": "-", "snake": "_", "dots": "."}


def spelled(name: str, separator: str) -> str:
    """The name in this way, as Spark passes it: in lower case."""
    return separator.join(re.findall("[A-Z]?[a-z0-9]+", name)).lower()


def refusal(side: str, name: str) -> str | None:
    """Returns what the side says about an option of this name; None: it takes it."""
    try:
        SIDES[side][1]({name: "1"})
    except ShareGroupError as error:
        return str(error)
    return None


def test_an_option_in_another_spelling_is_answered_with_its_own() -> None:
    for separator in SEPARATORS.values():
        for side in SIDES:
            table = SIDES[side][0]
            for name in [option.name for option in table.options if "*" not in option.name] + list(table.refused):
                other = spelled(name, separator)
                if other != name.lower() and not other.startswith((PREFIX, *GROUP_PREFIXES)):
                    assert name in (refusal(side, other) or ""), other


def test_a_clients_key_without_its_prefix_is_answered_with_what_to_use() -> None:
    for separator in SEPARATORS.values():
        for side in SIDES:
            for key in KAFKAS:
                told = refusal(side, spelled(key, separator))
                if told is None:  # as `acks` of a sink that has such an option
                    continue
                assert f"{PREFIX}{key}" in told or "can't be used here" in told, told
                assert "its options are" not in told


def test_a_configuration_in_another_spelling_is_answered_with_its_own() -> None:
    for separator in SEPARATORS.values():
        for side in SIDES:
            for key in CONFIGS:
                for written in (key, key.partition(".")[2]):
                    other = spelled(written, separator)
                    if other in (*CONFIGS, *KAFKAS) or other == "topic":
                        continue
                    told = refusal(side, other) or ""
                    assert key in told or "can't be used here" in told or f"{PREFIX}{written}" in told, (other, told)


def of_command(key: str) -> None:
    settings("localhost:9092", None, {key: "1"})


def of_admin(key: str) -> None:
    Admin({"bootstrap.servers": "localhost:9092", key: "1"})


def of_consumer(key: str) -> None:
    ConsumerOptions.parse({"bootstrap.servers": "localhost:9092", "group.id": "billing", key: "1"})


@pytest.mark.parametrize("separator", ["", "-", "_", None], ids=["camel", "kebab", "snake", "prefixed"])
@pytest.mark.parametrize("of", [of_command, of_consumer, of_admin])
def test_commands_and_clients_answer_a_spelling_with_their_own(
    of: Callable[[str], None], separator: str | None
) -> None:
    for key in [*PROPERTIES, *CONFIGS]:
        other = f"kafka.{key}" if separator is None else key.replace(".", separator)
        if other in PROPERTIES or other.startswith(GROUP_PREFIXES):
            continue
        with pytest.raises((ShareGroupError, KafkaException, ValueError)) as raised:
            of(other)
        told = [
            f"it is written {RENAMED.get(key, key)}",
            f"Use {key}.",
            f"use {key}",
        ]  # a command takes Java's keys, too
        assert any(each in str(raised.value) for each in told), raised.value


def test_a_view_says_why_it_refuses_an_option_of_the_source() -> None:
    for name in [option.name for option in SOURCE.options if "*" not in option.name]:
        if name in ("view", *CLUSTER):
            continue
        with pytest.raises(RefusedOption, match=rf"^The option {name} can't be used here: with view, a read shows"):
            ViewOptions.parse({**CLUSTER, "view": "groups", name: "1"})
