"""The options of a Kafka client, by librdkafka's names or by Java's: which go to librdkafka, under which name and in
which form, and which ones share groups or librdkafka refuse. Options with ``kafka.``, a command's properties and a
coordinator's file are all translated here.

Spark's Kafka source takes Java's names; librdkafka has others for some. Rule: a value stands in no error and in no
``repr``, unless its key is known and is no secret; an error names the key as the user wrote it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from coordinator.config.keys import nearest
from coordinator.config.resolved import hint
from coordinator.config.secret_files import read_file
from coordinator.config.spellings import spelt_here
from coordinator.kafka.java_keys import (
    BY_VALUE,
    NO_MEANING,
    OF_THE_GROUP,
    REFUSED,
    RENAMED,
    SERIALIZERS,
    SHARE_GROUPS_FORBID,
)
from coordinator.kafka.java_values import by_value, java_value, key_store
from coordinator.kafka.properties import CHOICES, PROPERTIES, SECRETS, TOKEN_FUNCTION, is_shown
from coordinator.kafka.security import check_security
from coordinator.kafka.token_function import check_token_function
from coordinator.protocol.addresses import broker_problem
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.group_ids import UNREPLACED, is_placeholder
from coordinator.protocol.option_errors import InvalidKafkaOption, RefusedOption, UnknownKafkaOption

PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"
_KEY_STORE = "ssl.keystore.location"
_NOT_NEEDED = "Remove it."
_IS_JAVAS = "it is for Java clients only, and this project uses librdkafka."

HIDDEN = "*********(redacted)"
"""Spark's own text in place of a secret."""


def is_harmless(key: str) -> bool:
    """Whether a value of this key, librdkafka's or Java's, may be shown. All others count as secrets: a password may
    also stand under a mistyped key."""
    return key not in SECRETS and (is_shown(key) or is_javas_alone(key))


def is_javas_alone(key: str) -> bool:
    """Whether Java's clients have this key, and librdkafka does not."""
    return key not in PROPERTIES and (key in RENAMED or key in NO_MEANING or key in REFUSED or key in BY_VALUE)


def redacted(kafka_config: Mapping[str, str]) -> dict[str, str]:
    """The same keys, with the values that may be shown."""
    return {key: value if is_harmless(key) else HIDDEN for key, value in kafka_config.items()}


class KafkaConfig(dict[str, str]):
    """librdkafka's properties. ``written``: property -> the key from which it came, as the user wrote it, where that is
    another. A pickle is a plain dict: only load() needs the keys, and a task is spared this module."""

    def __init__(self, properties: Mapping[str, str], written: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.written = dict(written)

    def __reduce__(self) -> tuple[object, ...]:
        return (dict, (dict(self),))


def to_librdkafka(
    options: Mapping[str, str],
    owned: Mapping[str, str],
    *,
    prefix: str = PREFIX,
    forbidden: Mapping[str, str] = SHARE_GROUPS_FORBID,
) -> KafkaConfig:
    """Options of a Kafka client, given without the prefix, as librdkafka's. ``owned``: what source or sink set by
    themselves -> what to use instead; ``forbidden``: what members of a share group do without -> the same. ``prefix``:
    how an error's keys begin.

    Raises:
        RefusedOption: an option can't be given to librdkafka, or is one of ``owned``.
        InvalidKafkaOption: an option is named twice, by its Java name and by librdkafka's; or its value is wrong.
        MissingOption: a key without which no broker can be reached, with such a protocol and mechanism.
    """
    return _in_words_of(prefix, lambda: _translated(options, owned, prefix, forbidden))


def _translated(
    options: Mapping[str, str], owned: Mapping[str, str], prefix: str, forbidden: Mapping[str, str]
) -> KafkaConfig:
    config: dict[str, str] = {}
    written: dict[str, str] = {}
    for key, value in options.items():
        refuse(key, prefix, owned, forbidden)
        if is_placeholder(value):
            raise InvalidKafkaOption(option=PREFIX + key, problem=f"{UNREPLACED}.")
        for name, text in _properties_of(key, value, options).items():
            if name in config and (config[name] != text or key in RENAMED or written.get(name) in RENAMED):
                other = PREFIX + written.get(name, name)
                raise InvalidKafkaOption(option=PREFIX + key, problem=f"it is the same as {other}; remove one.")
            if name != key and name not in config:
                written[name] = key
            config[name] = text
    check_security(config)
    return KafkaConfig(config, written)


def _properties_of(key: str, value: str, options: Mapping[str, str]) -> dict[str, str]:
    if key in BY_VALUE:
        return by_value(key, value, options)
    if key == _KEY_STORE:
        return key_store(value, options)
    name = RENAMED.get(key, key)
    return {name: java_value(key, name, value)}


def refuse(key: str, prefix: str, owned: Mapping[str, str], forbidden: Mapping[str, str]) -> None:
    """Refuse a key that is not for librdkafka; the arguments as of to_librdkafka.

    Raises:
        RefusedOption: with what to use instead.
    """
    option = PREFIX + key
    refusals = (
        (forbidden, "a share group does without it."),
        (SERIALIZERS, "records are bytes here."),
        (REFUSED, _IS_JAVAS),
        (owned, "sharegroup sets it."),
    )
    for keys, reason in refusals:
        if key in keys:
            raise RefusedOption(option=option, reason=reason, instead=keys[key])
    if key in NO_MEANING:
        raise RefusedOption(option=option, reason=f"it has no meaning here: {NO_MEANING[key]}", instead=_NOT_NEEDED)
    if key in OF_THE_GROUP or key.startswith(("share.", "group.share.", "errors.deadletterqueue.")):
        raise RefusedOption(option=option, reason="group configurations have no prefix.", instead=f"Use {key}.")
    if not prefix and key.startswith(PREFIX):
        instead = f"Use {key.removeprefix(PREFIX)}."
        raise RefusedOption(option=option, reason="properties have no prefix here.", instead=instead)
    if (key.endswith("_cb") and key != TOKEN_FUNCTION) or key in (
        "on_commit",
        "logger",
        "opaque",
        "default.topic.config",
    ):
        raise RefusedOption(option=option, reason="an option is a text, this is code.", instead=_NOT_NEEDED)


_OWN_PREFIX = re.compile(r"(?<![\w.])kafka\.(?=[a-z])")
_Result = TypeVar("_Result")


def _in_words_of(prefix: str, act: Callable[[], _Result]) -> _Result:
    """Returns what ``act`` does; its errors name keys that begin with ``prefix``."""
    try:
        return act()
    except ShareGroupError as error:
        if prefix == PREFIX:
            raise
        fields = {name: _OWN_PREFIX.sub(prefix, str(text)) for name, text in error.fields.items()}
        raise type(error)(**fields) from None


_ADDRESS = re.compile(r"([A-Za-z_]+)://(.*)", re.DOTALL)


def broker_addresses(servers: str, config: Mapping[str, str], *, prefix: str = PREFIX, key: str = "") -> str:
    """The addresses of bootstrap.servers without a protocol, as SASL_SSL://host:9093 has one in a listener.
    ``prefix``: how an error's keys begin; ``key``: the name of the list itself, if it is another one.

    Raises:
        InvalidKafkaOption: one is not host:port, or its protocol is another one than security.protocol.
    """
    if problem := broker_problem(servers):
        raise InvalidKafkaOption(option=key or prefix + _BOOTSTRAP, problem=problem)
    protocol = config.get("security.protocol", "PLAINTEXT").strip().upper()
    found = []
    for address in servers.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if match is not None and match[1].upper() != protocol:
            problem = (
                f"{address.strip()} names {match[1].upper()}, and {prefix}security.protocol is {protocol}; set "
                f"{prefix}security.protocol={match[1].upper()}, or correct the address."
            )
            raise InvalidKafkaOption(option=key or prefix + _BOOTSTRAP, problem=problem)
        found.append(match[2] if match else address)
    return ",".join(found)


_END_OF_CHECK = "sharegroup.end.of.check"


_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
    "https.ca.location",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
)
"""Properties that name a file, or a folder of files. librdkafka's errors about a missing one say little."""
_NO_FILE = "probe"
"""The value of ssl.ca.location with which librdkafka searches for the system's certificates."""


def check_kafka_config(kafka_config: Mapping[str, str], *, prefix: str = PREFIX) -> None:
    """Lets librdkafka check names and values, without a thread or connection: an unknown property at the end makes it
    stop before it starts anything. ``plugin.library.paths`` is not checked, since that would load the library. Files
    that properties name must exist on this host. ``prefix``: how an error's keys begin.

    Raises:
        UnknownKafkaOption, InvalidKafkaOption: the first wrong property, or a token function that gives no token.
        UnusableFile: a file can't be read.
    """
    written = getattr(kafka_config, "written", {})
    for key in _FILES:
        path = kafka_config.get(key, "")
        if path and path != _NO_FILE and not os.path.isdir(path):
            read_file(prefix + written.get(key, key), path)
    for key, value in kafka_config.items():
        if key == "plugin.library.paths" or (key, value) == _BY_CONFLUENT:
            continue
        if key == TOKEN_FUNCTION:
            check_tokens(kafka_config, prefix=prefix)
            continue
        text = _complaint(key, value) or _half_read(key, value)
        if "No such configuration property" in text:
            raise UnknownKafkaOption(option=prefix + key, hint=_hint(key, prefix))
        if text:
            own = written.get(key, key)
            problem = _PROPERTY.sub(rf'\1"{own}"', text) if is_shown(key) else _REFUSED_VALUE
            raise InvalidKafkaOption(option=prefix + own, problem=f"{problem}{_values(key, text)}.")


def check_tokens(kafka_config: Mapping[str, str], *, prefix: str = PREFIX) -> None:
    """Check the token function ``oauth_cb``, and call it once.

    Raises:
        InvalidKafkaOption: other settings don't go with it, it can't be imported here, or it gives no token.
    """

    def check() -> None:
        check_security(kafka_config)
        check_token_function(kafka_config[TOKEN_FUNCTION], kafka_config.get("sasl.oauthbearer.config", ""))

    _in_words_of(prefix, check)


_BY_CONFLUENT = ("sasl.oauthbearer.metadata.authentication.type", "aws_iam")
"""confluent_kafka takes this value itself: librdkafka does not have it."""
_REFUSED_VALUE = "its value is refused"
_PROPERTY = re.compile(r'(configuration property:? )"[\w.]+"', re.IGNORECASE)
_RANGE = re.compile(r"range (-?\d+)\.\.(-?\d+)")


def _values(key: str, problem: str) -> str:
    """Which values the property takes, if librdkafka's text does not have them: words, or a range of numbers."""
    if key in CHOICES:
        return f"; it is {CHOICES[key]}"
    if _RANGE.search(problem) or not (numbers := _RANGE.search(_complaint(key, _OUT_OF_RANGE))):
        return ""
    return f"; it is a whole number in {numbers[1]}..{numbers[2]}"


_BEGINS_AS_NUMBER = re.compile(r"\s*[+-]?\d")
_NUMBER = re.compile(r"\s*[+-]?(0[xX][0-9a-fA-F]+|\d+)\s*", re.ASCII)
_OUT_OF_RANGE = "-7777"


def _half_read(key: str, value: str) -> str:
    """Returns why librdkafka would misread a number; empty if it would not. It reads the leading digits, so 1e3 is
    1."""
    if not _BEGINS_AS_NUMBER.match(value) or _NUMBER.fullmatch(value):
        return ""
    return f'"{value}" is no such number' if "range" in _complaint(key, _OUT_OF_RANGE) else ""


def _suggestions() -> Iterable[str]:
    """The keys that a mistyped one is compared with."""
    return sorted((PROPERTIES | {*RENAMED} | {*BY_VALUE}) - {*SHARE_GROUPS_FORBID})


def _hint(key: str, prefix: str) -> str:
    if (found := spelt_here(key, prefix)) is not None:
        return f"it is written {found}"
    known = "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md has all"
    return hint(prefix + key, [prefix + each for each in _suggestions()], known)


def own_name(key: str, others: Iterable[str]) -> str:
    """Returns what a ShareConsumer calls a key that neither it nor librdkafka has, after a semicolon; empty if nothing
    is like it. ``others``: what it takes beside librdkafka's properties."""
    if key.startswith(PREFIX):
        return f"; properties have no prefix here: use {key.removeprefix(PREFIX)}"
    if (found := spelt_here(key, "")) is not None:
        return f"; it is written {found}"
    near = nearest(key, sorted({*PROPERTIES, *others}))
    return f"; the nearest known one is {near}" if near else ""


def _complaint(key: str, value: str) -> str:
    """Returns librdkafka's error about one property; empty if there is none."""
    from confluent_kafka import Consumer, KafkaException

    try:
        Consumer({"group.id": _END_OF_CHECK, key: value, _END_OF_CHECK: ""})
    except KafkaException as error:
        text = error.args[0].str()
    except (TypeError, ValueError):
        text = _REFUSED_VALUE
    else:
        raise AssertionError("librdkafka knows the property that it can't know")
    return "" if _END_OF_CHECK in text else re.sub(r"\s+", " ", text).strip()
