"""The docs' table of differences from confluent_kafka.ShareConsumer is complete: names, arguments, and what the
constructors do with each of librdkafka's properties."""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

import sharegroup
from coordinator.kafka.java_keys import NO_MEANING, RENAMED
from coordinator.kafka.properties import PROPERTIES
from tests.same_program.differences import REASONS
from tests.support.imports import ROOT
from tests.support.share_members import CONFIG

PAGE = (ROOT / "docs" / "do" / "share-consumer.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("differs on purpose:")[2].partition("\n## ")[0]
VALUES = ("1", "x", "true", None, True, 1, "")
OF_ASYNCIO = {"check_process", "forget_wakeup", "hand_out", "hold_back"}
"""Methods that the AsyncShareConsumer calls, and no program."""
IN_THE_TABLE = {
    "one_large_batch": "max.poll.records",
    "renewal": "RENEW",
    "acquire_mode": "share.acquire.mode",
    "a_regular_expression": "`^",
    "no_brokers": "bootstrap.servers",
    "gaps_in_the_callback": "an offset without a record",
}
"""The programs that are meant to differ (tests/same_program), and their word in the table."""


def signatures(module: Path, name: str) -> dict[str, list[tuple[str, bool]]]:
    """The arguments of the public methods that a stub file has for a class, and which of them have a default."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    methods = [each for each in found.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    return {
        each.name: [
            (argument.arg, at >= len(each.args.args) - len(each.args.defaults))
            for at, argument in enumerate(each.args.args)
        ][1:]
        for each in methods
    }


STUB = Path(confluent_kafka.__file__).with_name("cimpl.pyi")
NATIVE = signatures(STUB, "ShareConsumer")


def test_the_stub_names_confluents_methods() -> None:
    assert {name for name in vars(confluent_kafka.ShareConsumer) if not name.startswith("_")} == NATIVE.keys()


@pytest.mark.parametrize("name", NATIVE)
def test_each_method_takes_confluents_arguments(name: str) -> None:
    """Others are named in the table, and have to be given by their names."""
    ours = list(inspect.signature(getattr(sharegroup.ShareConsumer, name)).parameters.values())[1:]
    alike = [each for each in ours if each.kind is not each.KEYWORD_ONLY]
    assert [(each.name, each.default is not each.empty) for each in alike] == NATIVE[name]
    assert {each.name for each in ours} - {each.name for each in alike} <= words_of_the_table()


def words_of_the_table() -> set[str]:
    """Returns the code words of the table, without arguments."""
    return {word.partition("(")[0].partition("=")[0] for word in TABLE.split("`")[1::2]}


def test_each_name_of_ours_alone_is_in_the_table() -> None:
    ours = {name for name in dir(sharegroup.ShareConsumer) if not name.startswith("_")}
    assert ours - NATIVE.keys() - OF_ASYNCIO <= words_of_the_table()
    kinds = {kind.name for kind in sharegroup.AcknowledgeType} - {kind.name for kind in confluent_kafka.AcknowledgeType}
    assert kinds - {"GAP", "DEFER"} == {"RENEW"} <= words_of_the_table(), "DEFER is an outcome of sinks alone"


def test_each_program_that_differs_is_in_the_table() -> None:
    assert {program.__name__ for program in REASONS} == IN_THE_TABLE.keys()
    assert [word for word in IN_THE_TABLE.values() if word not in TABLE] == []


def made(module: Any, config: dict[str, Any]) -> tuple[object, ...]:
    """How the constructor ended. librdkafka cuts some texts."""
    try:
        consumer = module.ShareConsumer(config)
    except Exception as error:  # noqa: BLE001 - any exception is compared
        told: Any = error.args[0]
        is_kafkas = isinstance(error, KafkaException) and isinstance(told, KafkaError)
        return type(error), *((told.name(), told.str()) if is_kafkas else (str(error)[:100],))
    with suppress(KafkaException):  # without a group
        consumer.close()
    return ("a consumer",)


def differing(key: str) -> bool:
    """Whether the constructors do not do the same with a value of this property."""
    for value in VALUES:
        config = {**CONFIG, "log_level": 0, key: value}
        if made(sharegroup, config) != made(confluent_kafka, config):
            return True
    return False


def test_each_property_that_the_constructors_treat_differently_is_in_the_table() -> None:
    found = {key for key in sorted(PROPERTIES) if differing(key)}
    assert found == {"bootstrap.servers", "share.acknowledgement.mode", "plugin.library.paths"}
    assert found <= words_of_the_table()


@pytest.mark.parametrize("key", sorted(RENAMED.keys() - PROPERTIES))
def test_a_key_of_javas_clients_is_taken(key: str) -> None:
    """confluent's class knows none of them."""
    value = "200000"
    options = sharegroup.ShareConsumer({**CONFIG, "log_level": 0, key: value})._options
    assert RENAMED[key] in options.kafka_config
    assert made(confluent_kafka, {**CONFIG, key: value})[1] == "_INVALID_ARG"


def test_a_key_of_javas_clients_without_a_meaning_is_refused() -> None:
    for key in sorted(NO_MEANING.keys() - PROPERTIES):
        _, code, text = made(sharegroup, {**CONFIG, key: "1"})
        assert code == "_INVALID_ARG" and NO_MEANING[key] in text  # type: ignore[operator]
