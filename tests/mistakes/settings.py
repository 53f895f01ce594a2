"""Mistakes about the settings of a Kafka client: what a mechanism needs, what is secret, what Java's keys become."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from coordinator.config import kafka_options
from coordinator.kafka import librdkafka, token_function
from coordinator.kafka import security as kafka_security
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, mistake


@mistake(rules.NEEDS_ARE_NAMED, tests=("kafka/test_kafka_security::test_what_a_mechanism_lacks_is_named",))
def ask_nothing_of_a_mechanism(patch: Patch) -> None:
    patch.setattr(kafka_security, "_need", lambda config, why, *keys: None)


@mistake(rules.NEEDS_ARE_NAMED, tests=("kafka/test_kafka_security::test_what_a_mechanism_lacks_is_named",))
def ask_a_mechanism_for_its_needs_with_tls_alone(patch: Patch) -> None:
    right = kafka_security._check_sasl

    def check(config: Mapping[str, str], protocol: str) -> None:
        if protocol == "SASL_SSL":
            right(config, protocol)

    patch.setattr(kafka_security, "_check_sasl", check)


@mistake(
    rules.TOKEN_FUNCTIONS_ARE_MARKED,
    tests=("kafka/test_token_function::test_a_function_without_the_mark_is_never_called",),
)
def call_a_token_function_that_nobody_marked(patch: Patch) -> None:
    patch.setattr(token_function, "_MARKED", None)


@mistake(rules.NEEDS_ARE_NAMED, tests=("kafka/test_kafka_security::test_a_token_function_goes_with_oauth_alone",))
def take_a_token_function_beside_an_endpoint(patch: Patch) -> None:
    patch.setattr(kafka_security, "_check_token_function", lambda config, protocol: None)


@mistake(
    rules.SECRETS_ARE_VALUES,
    tests=("kafka/test_librdkafka::test_only_whole_values_are_redacted_and_no_part_of_a_word",),
)
def hide_a_secret_within_words(patch: Patch) -> None:
    patch.setattr(librdkafka, "re", _ReWithinWords())


class _ReWithinWords:
    """The module re, whose replacements don't ask what is around a text."""

    def __getattr__(self, name: str) -> Any:
        return getattr(re, name)

    def sub(self, pattern: str, *rest: Any) -> str:
        return re.sub(pattern.replace(r"(?<!\w)", "").replace(r"(?!\w)", ""), *rest)


@mistake(
    rules.SECRETS_ARE_VALUES,
    tests=("kafka/test_librdkafka::test_only_whole_values_are_redacted_and_no_part_of_a_word",),
)
def show_each_value_that_librdkafka_names(patch: Patch) -> None:
    patch.setattr(librdkafka, "is_shown", lambda key: True)


@mistake(
    rules.ONE_TRANSLATION, tests=("kafka/test_kafka_values::test_javas_key_and_value_become_librdkafkas_and_are_named",)
)
def leave_javas_values_as_they_are(patch: Patch) -> None:
    patch.setattr(kafka_options, "java_value", lambda key, name, value: value)


@mistake(
    rules.ONE_TRANSLATION, tests=("kafka/test_kafka_values::test_javas_key_and_value_become_librdkafkas_and_are_named",)
)
def forget_the_key_that_the_user_wrote(patch: Patch) -> None:
    right = kafka_options.KafkaConfig.__init__

    def begin(self: Any, properties: Mapping[str, str], written: Mapping[str, str]) -> None:
        right(self, properties, {})

    patch.setattr(kafka_options.KafkaConfig, "__init__", begin)
