"""Checks the arguments of the Admin client: a text where a list of texts belongs would be read as its letters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from coordinator.client.client import ENDPOINT
from coordinator.client.options import GROUP_PREFIXES, as_text, configs
from coordinator.config.kafka_options import TRANSACTIONAL_ID, broker_addresses, check_kafka_config, to_librdkafka
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import Request
from coordinator.protocol.option_errors import MissingOption
from coordinator.protocol.values import GROUP_STATES


def names(what: str, given: Iterable[str]) -> tuple[str, ...]:
    """The names in a list. ``what``: the argument. Raises TypeError if it is no list of texts."""
    if isinstance(given, str):
        raise TypeError(f"{what} is a list, and {given!r} is one text: write [{given!r}]")
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in found:
        if not isinstance(each, str):
            raise TypeError(f"{what} is a list of texts, and {each!r} is of type {type(each).__name__}")
    return found


def texts(what: str, given: object) -> dict[str, str]:
    """Returns a mapping with its values as texts, without those that are None. Raises TypeError if ``given`` is no
    mapping, or has a key that is no text, or a value of bytes."""
    if not isinstance(given, Mapping):
        found = type(given).__name__
        raise TypeError(f"{what} is a mapping of texts, as {{'NAME': 'VALUE'}}, and this is of type {found}")
    names(f"the keys of {what}", tuple(given))
    return {key: as_text(key, value) for key, value in given.items() if value is not None}


def wait_of(timeout_ms: int | None, default_s: float) -> float:
    """The seconds of ``timeout_ms``; ``default_s`` for None.

    Raises:
        TypeError: it is no whole number.
        InvalidRequest: it is below 1."""
    if timeout_ms is None:
        return default_s
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int):
        kind = type(timeout_ms).__name__
        raise TypeError(f"timeout_ms is a whole number of milliseconds, and {timeout_ms!r} is of type {kind}")
    if timeout_ms < 1:
        raise InvalidRequest(what=f"timeout_ms={timeout_ms} can't be used: it is at least 1.")
    return timeout_ms / 1000


def group_states(states: Iterable[str]) -> set[str]:
    """The states of groups, in upper case.

    Raises:
        TypeError: it is no list of texts.
        InvalidRequest: groups have no such state."""
    wanted = {state.upper() for state in names("states", states)}
    if unknown := wanted.difference(GROUP_STATES):
        raise InvalidRequest(what=f"{min(unknown)} is no state of a group: {', '.join(GROUP_STATES)}.")
    return wanted


def partitions_by_topic(topics: Mapping[str, Iterable[int]] | Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Returns for each topic the partitions that ``topics`` names; an empty tuple stands for all its partitions.
    Raises TypeError if ``topics`` is neither a list of texts nor a mapping from texts to lists."""
    if not isinstance(topics, Mapping):
        return dict.fromkeys(names("topics", topics), ())
    for topic, found in topics.items():
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise TypeError(f"topics[{topic!r}] is a list of partitions, and {found!r} is one value: write [{found!r}]")
    return {topic: tuple(found) for topic, found in topics.items()}


def changes(configs: Mapping[str, str], unset: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The configs to set, without blanks around their values, and the keys to unset.

    Raises:
        TypeError: they are no mapping and no list of texts.
        InvalidRequest: a key is in both."""
    if isinstance(configs, Mapping) and (without := [key for key, value in configs.items() if value is None]):
        raise TypeError(f"configs has no value for {without[0]}: write unset={without} instead")
    wanted = {key: text.strip() for key, text in texts("configs", configs).items()}
    keys = names("unset", unset)
    if both := wanted.keys() & set(keys):
        raise InvalidRequest(what=f"{min(both)} is in configs and in unset: name it in one of them.")
    return wanted, keys


_WORDS = {"str": "a text", "int": "a whole number", "bool": "True or False", "array": "a list", "object": "a mapping"}
_ARGUMENTS = {"value": "shift_by", "offsets": "to", "states": "only_state"}
"""The names of the arguments whose fields have other names."""
_WRONG_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `.*")


def check_request(request: Request[Any]) -> None:
    """Check the types of a request's fields, before anybody is asked.

    Raises:
        TypeError: an argument is of another type.
        InvalidRequest: it is out of bounds."""
    for field in msgspec.structs.fields(request):
        value = getattr(request, field.name)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            text, _, at = str(error).partition(" - at ")
            name = _ARGUMENTS.get(field.name, field.name)
            if (wrong := _WRONG_TYPE.fullmatch(text)) is None:
                raise InvalidRequest(what=f"{name}={value!r} can't be used: {text.replace('`', '')}.") from None
            kind = "" if at else f" is of type {type(value).__name__}"
            where, found = at.strip("`$"), kind or " has another type there"
            raise TypeError(f"{name}{where} is {_WORDS.get(wrong[1], wrong[1])}, and {value!r}{found}") from None


def connection(conf: Mapping[str, object]) -> tuple[Any, dict[str, str], str]:
    """Librdkafka's properties, the configs of the coordinator, and the addresses of the brokers, which may be empty.

    Raises:
        TypeError: ``conf`` is no mapping.
        MissingOption: neither brokers nor an endpoint are named.
        UnknownKafkaOption, InvalidOption, RefusedOption, UnknownConfig: a property is wrong."""
    given = texts("conf", conf)
    own = {key: given.pop(key) for key in list(given) if key.startswith(GROUP_PREFIXES)}
    coordinator_configs = configs(own)[1]
    kafka = to_librdkafka(given, TRANSACTIONAL_ID, prefix="", forbidden={})
    check_kafka_config(kafka, prefix="")
    servers = kafka.get("bootstrap.servers", "").strip()
    if not servers and not coordinator_configs.get(ENDPOINT, "").strip():
        raise MissingOption(option="bootstrap.servers", why=f"name at least one broker, or {ENDPOINT}.")
    return kafka, coordinator_configs, broker_addresses(servers, kafka, prefix="") if servers else ""
