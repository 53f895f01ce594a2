"""Checks the arguments of the Admin client: a text where a list of texts belongs would be read as its letters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from coordinator.client.options import GROUP_PREFIXES, as_text, configs
from coordinator.config.kafka_options import TRANSACTIONAL_ID, broker_addresses, check_kafka_config, to_librdkafka
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import Request


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
    """The texts of a mapping; a value None is left out. Raises TypeError if it is no mapping, or has a key that is no
    text, or a value of bytes."""
    if not isinstance(given, Mapping):
        found = type(given).__name__
        raise TypeError(f"{what} is a mapping of texts, as {{'NAME': 'VALUE'}}, and this is of type {found}")
    names(f"the keys of {what}", tuple(given))
    return {key: as_text(key, value) for key, value in given.items() if value is not None}


_WORDS = {"str": "a text", "int": "a whole number", "bool": "True or False", "array": "a list", "object": "a mapping"}
_ARGUMENTS = {"value": "shift_by", "offsets": "to", "states": "only_state"}
"""The names of the arguments whose fields have other names."""
_WRONG_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `.*")


def check_request(request: Request[Any]) -> None:
    """Check the types of a request's fields, before anybody is asked.

    Raises:
        TypeError: an argument is of another type.
        InvalidRequest: it is out of bounds.
    """
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
        UnknownKafkaOption, InvalidOption, RefusedOption, UnknownConfig: a property is wrong.
    """
    given = texts("conf", conf)
    own = {key: given.pop(key) for key in list(given) if key.startswith(GROUP_PREFIXES)}
    coordinator_configs = configs(own)[1]
    kafka = to_librdkafka(given, TRANSACTIONAL_ID, prefix="", forbidden={})
    check_kafka_config(kafka, prefix="")
    servers = kafka.get("bootstrap.servers", "").strip()
    return kafka, coordinator_configs, broker_addresses(servers, kafka, prefix="") if servers else ""
