"""Translates the options of a Kafka client, with librdkafka's names or Java's, to librdkafka's properties, and refuses
those that have no place in a share group. Options with ``kafka.``, a command's properties and a coordinator's file all
go through this module.

Spark's Kafka source takes Java's names, and librdkafka has other names for some options. Rule: a value is in an error
or a ``repr`` only if its key is known and no secret; an error names the key as the user wrote it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from coordinator.config.keys import hint, nearest
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
from coordinator.kafka.java_values import PEMS, by_value, java_value, key_store
from coordinator.kafka.properties import CHOICES, PROPERTIES, SECRETS, TOKEN_FUNCTION, is_shown
from coordinator.kafka.security import check_security
from coordinator.kafka.token_function import check_token_function
from coordinator.protocol.addresses import broker_problem
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.group_ids import UNREPLACED, is_placeholder
from coordinator.protocol.option_errors import InvalidOption, RefusedOption, UnknownKafkaOption

PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"
_KEY_STORE = "ssl.keystore.location"
TRANSACTIONAL_ID = {"transactional.id": "The coordinator has a transactional id for each group. Remove it."}
"""The keys that Admin and a coordinator's file pass as ``owned``."""
_NOT_NEEDED = "Remove it."
_CODE = ("on_commit", "logger", "opaque", "default.topic.config")
_IS_JAVAS = "it is for Java clients only, and this project uses librdkafka."

HIDDEN = "*********(redacted)"
"""What Spark shows in place of a secret."""


def is_harmless(key: str) -> bool:
    """Whether the values of this key, librdkafka's or Java's, may be shown. Values of unknown keys count as secrets: a
    password may stand under a mistyped key."""
    return key not in SECRETS and (is_shown(key) or is_javas_alone(key))


def is_javas_alone(key: str) -> bool:
    """Whether Java's clients have this key, and librdkafka does not."""
    return key not in PROPERTIES and (key in RENAMED or key in NO_MEANING or key in REFUSED or key in BY_VALUE)


def redacted(kafka_config: Mapping[str, str]) -> dict[str, str]:
    """The config with HIDDEN in place of each value that may not be shown."""
    return {key: value if is_harmless(key) else HIDDEN for key, value in kafka_config.items()}


class KafkaConfig(dict[str, str]):
    """librdkafka's properties. ``written``: for each property that the user wrote under another key, that key. A pickle
    of this is a plain dict, so that tasks need not import this module."""

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
    """The options of a Kafka client as librdkafka's properties. Keys of ``options`` have no prefix; those in errors
    begin with ``prefix``. ``owned``: keys that the source or sink sets itself, with what to use instead. ``forbidden``:
    keys that a member of a share group does without, with the same.

    Raises:
        RefusedOption: an option can't be given to librdkafka, or is one of ``owned`` or ``forbidden``.
        InvalidOption: an option is given twice, by Java's name and by librdkafka's; or its value is wrong.
        MissingOption: the protocol or mechanism needs a key that is missing."""
    config: dict[str, str] = {}
    written: dict[str, str] = {}
    with _keys_in_errors_begin_with(prefix):
        options = {key: value for key, value in options.items() if value.strip() or key not in UNSET_IF_EMPTY}
        for key, value in options.items():
            refuse(key, prefix, owned, forbidden)
            if is_placeholder(value):
                raise InvalidOption(option=PREFIX + key, problem=f"{UNREPLACED}.")
            for name, text in _properties_of(key, value, options).items():
                if name in config and (config[name] != text or key in RENAMED or written.get(name) in RENAMED):
                    other = PREFIX + written.get(name, name)
                    raise InvalidOption(option=PREFIX + key, problem=f"it is the same as {other}; remove one.")
                if name != key and name not in config:
                    written[name] = key
                config[name] = text
        check_security(config)
    return KafkaConfig(config, written)


_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    _KEY_STORE,
    "ssl.crl.location",
    "https.ca.location",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
)
"""Properties that name a file, or a folder of files. librdkafka's errors about missing files say little."""
UNSET_IF_EMPTY = frozenset(
    {*BY_VALUE, *_FILES, *PEMS, *(key for key, name in RENAMED.items() if name in PEMS), "ssl.truststore.password"}
)
"""Keys that an empty value does not set, as in a template whose certificates are optional."""


def _properties_of(key: str, value: str, options: Mapping[str, str]) -> dict[str, str]:
    if key in BY_VALUE:
        return by_value(key, value, options)
    if key == _KEY_STORE:
        return key_store(value, options)
    name = RENAMED.get(key, key)
    return {name: java_value(key, name, value)}


def refuse(key: str, prefix: str, owned: Mapping[str, str], forbidden: Mapping[str, str]) -> None:
    """Refuse a key that is not for librdkafka. The arguments are those of to_librdkafka. Raises RefusedOption."""
    option = PREFIX + key
    for keys, reason in (
        (forbidden, "a share group does without it."),
        (SERIALIZERS, "records are bytes here."),
        (REFUSED, _IS_JAVAS),
        (owned, "sharegroup sets it."),
    ):
        if key in keys:
            raise RefusedOption(option=option, reason=reason, instead=keys[key])
    if key in NO_MEANING:
        raise RefusedOption(option=option, reason=f"it has no meaning here: {NO_MEANING[key]}", instead=_NOT_NEEDED)
    if key in OF_THE_GROUP or key.startswith(("share.", "group.share.", "errors.deadletterqueue.")):
        raise RefusedOption(option=option, reason="group configurations have no prefix.", instead=f"Use {key}.")
    if not prefix and key.startswith(PREFIX):
        instead = f"Use {key.removeprefix(PREFIX)}."
        raise RefusedOption(option=option, reason="properties have no prefix here.", instead=instead)
    if (key.endswith("_cb") and key != TOKEN_FUNCTION) or key in _CODE:
        raise RefusedOption(option=option, reason="an option is a text, and this is code.", instead=_NOT_NEEDED)


_OWN_PREFIX = re.compile(r"(?<![\w.])kafka\.(?=[a-z])")


@contextmanager
def _keys_in_errors_begin_with(prefix: str) -> Iterator[None]:
    """Errors that are raised inside have ``prefix`` in place of ``kafka.`` in front of keys."""
    try:
        yield
    except ShareGroupError as error:
        if prefix == PREFIX:
            raise
        fields = {name: _OWN_PREFIX.sub(prefix, str(text)) for name, text in error.fields.items()}
        raise type(error)(**fields) from None


_ADDRESS = re.compile(r"([A-Za-z_]+)://(.*)", re.DOTALL)


def broker_addresses(servers: str, config: Mapping[str, str], *, prefix: str = PREFIX, key: str = "") -> str:
    """The addresses of bootstrap.servers, without a protocol in front as in SASL_SSL://host:9093. ``prefix``: how an
    error's keys begin; ``key``: the name of the list itself, if it is another one. Raises InvalidOption if one is not
    host:port, or the protocol in front differs from security.protocol."""
    if problem := broker_problem(servers):
        raise InvalidOption(option=key or prefix + _BOOTSTRAP, problem=problem)
    protocol = config.get("security.protocol", "PLAINTEXT").strip().upper()
    found = []
    for address in servers.split(","):
        match = _ADDRESS.fullmatch(address.strip())
        if match is not None and match[1].upper() != protocol:
            problem = (
                f"{address.strip()} names {match[1].upper()}, and {prefix}security.protocol is {protocol}; set "
                f"{prefix}security.protocol={match[1].upper()}, or correct the address."
            )
            raise InvalidOption(option=key or prefix + _BOOTSTRAP, problem=problem)
        found.append(match[2] if match else address)
    return ",".join(found)


_END_OF_CHECK = "sharegroup.end.of.check"
_NO_FILE = "probe"
"""The value of ssl.ca.location with which librdkafka searches for the system's certificates."""


def check_kafka_config(kafka_config: Mapping[str, str], *, prefix: str = PREFIX) -> None:
    """Let librdkafka check names and values without a thread or a connection: an unknown property at the end makes it
    stop before it starts anything. ``plugin.library.paths`` is not checked, because that would load the library. Files
    that properties name must exist on this host. Keys in errors begin with ``prefix``.

    Raises:
        UnknownKafkaOption, InvalidOption: the first wrong property, or a token function that gives no token.
        UnusableFile: a file can't be read."""
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
        text = _half_read(key, value) or _complaint(key, value)
        if _UNKNOWN in text:
            raise UnknownKafkaOption(option=prefix + key, hint=_hint(key, prefix))
        if text:
            own = written.get(key, key)
            problem = _PROPERTY.sub(rf'\1"{own}"', text) if is_shown(key) else _REFUSED_VALUE
            raise InvalidOption(option=prefix + own, problem=f"{problem}{_values(key, text)}.")


def is_property(name: str) -> bool:
    """Whether librdkafka, or this module for it, knows a property of this name."""
    return name in RENAMED or _UNKNOWN not in _complaint(name, "")


def check_tokens(kafka_config: Mapping[str, str], *, prefix: str = PREFIX) -> None:
    """Check the token function ``oauth_cb``, and call it once. Raises InvalidOption if other settings don't go with the
    function, it can't be imported here, or it gives no token."""
    with _keys_in_errors_begin_with(prefix):
        check_security(kafka_config)
        check_token_function(kafka_config[TOKEN_FUNCTION], kafka_config.get("sasl.oauthbearer.config", ""))


_UNKNOWN = "No such configuration property"
_BY_CONFLUENT = ("sasl.oauthbearer.metadata.authentication.type", "aws_iam")
"""confluent_kafka itself handles this value, which librdkafka does not know."""
_REFUSED_VALUE = "its value is refused"
_PROPERTY = re.compile(r'(configuration property:? )"[\w.]+"', re.IGNORECASE)
_RANGE = re.compile(r"range (-?\d+)\.\.(-?\d+)")


def _values(key: str, problem: str) -> str:
    """The values that the property takes, in words or as a range of numbers, unless librdkafka's text has them."""
    if key in CHOICES:
        return f"; it is {CHOICES[key]}"
    if _RANGE.search(problem) or not (numbers := _RANGE.search(_complaint(key, _OUT_OF_RANGE))):
        return ""
    return f"; it is a whole number in {numbers[1]}..{numbers[2]}"


_BEGINS_AS_NUMBER = re.compile(r"\s*[+-]?\d")
_NUMBER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_OUT_OF_RANGE = "-7777"


def check_numbers(properties: Mapping[str, str]) -> None:
    """Check the properties that librdkafka has accepted, and that have no prefix. Raises InvalidOption: librdkafka
    would read a part of a number."""
    for key, value in properties.items():
        if problem := _half_read(key, value):
            raise InvalidOption(option=key, problem=f"{problem}{_values(key, problem)}.")


def _half_read(key: str, value: str) -> str:
    """The problem of a text that is no decimal number, for a property that is a number; empty if there is none.
    librdkafka reads the leading digits alone, so 1e3 would be 1, and takes 0x10."""
    if not _BEGINS_AS_NUMBER.match(value) or _NUMBER.fullmatch(value):
        return ""
    return f'"{value}" is no such number' if "range" in _complaint(key, _OUT_OF_RANGE) else ""


def _hint(key: str, prefix: str) -> str:
    if (found := spelt_here(key, prefix)) is not None:
        return f"it is written {found}"
    known = "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md has all"
    suggestions = sorted((PROPERTIES | {*RENAMED} | {*BY_VALUE}) - {*SHARE_GROUPS_FORBID})
    return hint(prefix + key, [prefix + each for each in suggestions], known)


def own_name(key: str, others: Iterable[str]) -> str:
    """The name of a key that a ShareConsumer does not know, as it should be written, after a semicolon; empty if no
    known key is like it. ``others``: the keys that a ShareConsumer takes beside librdkafka's properties."""
    if key.startswith(PREFIX):
        return f"; properties have no prefix here: use {key.removeprefix(PREFIX)}"
    if (found := spelt_here(key, "")) is not None:
        return f"; it is written {found}"
    near = nearest(key, sorted({*PROPERTIES, *others}))
    return f"; the nearest known one is {near}" if near else ""


def _complaint(key: str, value: str) -> str:
    """librdkafka's error about one property; empty if there is none."""
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
