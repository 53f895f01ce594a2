"""The options of source and sink: the rows of their tables, and the parsing of their values.

Rule: no I/O here. Spark passes option names in lower case and values as text (seen). So ``given`` has lower-case names
everywhere, and lacks the options that were not set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.kafka_options import PREFIX, KafkaConfig, broker_addresses, refuse, to_librdkafka
from coordinator.config.keys import GONE, ConfigKey, hint, nearest
from coordinator.config.resolved import CoordinatorConfig, GroupConfig, changed_configs
from coordinator.config.server_keys import SERVER_KEYS
from coordinator.config.spellings import bare_name, by_bare_name, kafka_key, written_key
from coordinator.kafka.java_keys import SHARE_GROUPS_FORBID
from coordinator.protocol.errors import ConfigConflict, UnknownConfig
from coordinator.protocol.group_ids import check_group_id
from coordinator.protocol.option_errors import InvalidOption, MissingOption, RefusedOption, UnknownOption
from coordinator.protocol.topic_names import check_written

LONGEST_NAME = 100
MEMBER_NAME = ConfigKey(
    name="member.name",
    default="",
    takes=f"printable text on one line, at most {LONGEST_NAME} characters",
    is_valid=lambda text: len(text) <= LONGEST_NAME and text.isprintable(),
    doc="A name for people, beside the member's id.",
)
GROUP_PREFIXES = ("share.", "errors.", "group.share.")
LARGEST = 2**63 - 1
_BOOTSTRAP = "kafka.bootstrap.servers"
_GROUP_ID = "kafka.group.id"
_ENDPOINT = "share.coordinator.endpoint"
_OF_ENDPOINTS = ("share.coordinator.token.file", "share.coordinator.ssl.ca.location")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``default`` is in words; ``spark``: how it relates to the same option of Spark's Kafka source."""

    name: str
    default: str
    doc: str
    spark: str = "the same"


@dataclass(frozen=True, kw_only=True)
class OptionTable:
    """The options of one side, ``source`` or ``sink``. ``refused``: name -> (why, what instead). ``owned``: properties
    of librdkafka that this side sets by itself -> what instead."""

    side: str
    options: tuple[Option, ...]
    refused: Mapping[str, tuple[str, str]]
    owned: Mapping[str, str]

    def check_names(self, given: Mapping[str, str]) -> None:
        """Checks the names of options without a prefix; names with one are checked elsewhere. Raises RefusedOption or
        UnknownOption: for the first wrong name."""
        taken = {option.name.lower(): option.name for option in self.options if "*" not in option.name}
        for name in given:
            if not name.startswith((PREFIX, *GROUP_PREFIXES)) and name not in taken:
                self._refuse(name, taken)

    def _refuse(self, name: str, taken: Mapping[str, str]) -> None:
        refused = {bare_name(each): each for each in self.refused}
        if (found := refused.get(bare_name(name))) is not None:
            reason, instead = self.refused[found]
            raise RefusedOption(option=found, reason=reason, instead=instead)
        if (found := by_bare_name(taken.values()).get(bare_name(name))) is not None:
            raise UnknownOption(option=name, side=self.side, hint=f"it is written {found}")
        if (found := by_bare_name(self.owned).get(bare_name(name)) or kafka_key(name)) is not None:
            refuse(found, "", self.owned, SHARE_GROUPS_FORBID)
            hint = f"the options of Kafka's client have a prefix: {PREFIX}{found}"
            raise UnknownOption(option=name, side=self.side, hint=hint)
        if (found := written_key(name)) is not None:
            raise UnknownOption(option=name, side=self.side, hint=f"it is written {found}")
        near = nearest(name, taken)
        options = ", ".join(sorted(taken.values()))
        hint = f"the nearest known one is {taken[near]}" if near else f"its options are {options}, kafka.* and share.*"
        raise UnknownOption(option=name, side=self.side, hint=hint)

    def kafka_config(self, given: Mapping[str, str]) -> KafkaConfig:
        """The ``kafka.*`` options as librdkafka's, with bootstrap.servers, without group.id: no client here joins a
        consumer group.

        Raises:
            MissingOption: kafka.bootstrap.servers is not set.
            RefusedOption, InvalidOption, MissingOption: see to_librdkafka and broker_addresses."""
        kafkas = {name for name in given if name.startswith(PREFIX)} - {_BOOTSTRAP, _GROUP_ID}
        properties = {name[len(PREFIX) :]: value for name, value in given.items() if name in kafkas}
        config = to_librdkafka(properties, self.owned)
        servers = required(given, _BOOTSTRAP, "name at least one broker, as host:port.")
        servers = broker_addresses(servers, config)
        return KafkaConfig({"bootstrap.servers": servers, **config}, config.written)


def by_lower_name(options: Mapping[str, object]) -> dict[str, str]:
    """Returns ``given`` from the options as a person or Spark wrote them. None stands for an option that is not set."""
    return {name.lower(): as_text(name, value) for name, value in options.items() if value is not None}


def as_text(name: str, value: object) -> str:
    """The value as Spark writes an option's value. Raises TypeError for bytes, without the value: it may be secret."""
    if isinstance(value, bytes | bytearray):
        raise TypeError(f"{name} is a text, and its value is of type {type(value).__name__}: use decode()")
    return str(value).lower() if isinstance(value, bool) else str(value)


def group_id(given: Mapping[str, str], why: str) -> str:
    """The value of the option ``kafka.group.id``.

    Raises:
        MissingOption: it is not set.
        InvalidGroupId: it is too long, can't be printed, or has blanks around it."""
    found = required(given, _GROUP_ID, why)
    check_group_id(found)
    return found


def configs(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Group and coordinator configs, checked, as texts. An empty text unsets a config that the group has kept. Raises
    as :meth:`GroupConfig.parse`, and TopicNotWritten for a reserved dead letter topic."""
    found = {name: value for name, value in given.items() if name.startswith(GROUP_PREFIXES)}
    known = {**GROUP_KEYS, **COORDINATOR_KEYS}
    for name in found:
        if name not in known:
            raise UnknownConfig(key=name, scope="share group configuration", hint=_hint(name, known))
    group = {name: value for name, value in found.items() if name in GROUP_KEYS}
    coordinator = {name: value for name, value in found.items() if name in COORDINATOR_KEYS}
    if dead_letters := GroupConfig.parse(changed_configs({}, group)).errors_deadletterqueue_topic_name:
        check_written(dead_letters)
    if not CoordinatorConfig.parse(coordinator).share_coordinator_endpoint:
        # A coordinator would start on demand, and take the group from the standalone coordinators that were meant.
        for key in _OF_ENDPOINTS:
            if coordinator.get(key, "").strip():
                rule = "it is for a standalone coordinator, and none is named; name it, or remove this"
                raise ConfigConflict(key=key, value=coordinator[key], other=_ENDPOINT, other_value="", rule=rule)
    return group, coordinator


def _hint(name: str, known: Mapping[str, object]) -> str:
    if (found := written_key(name)) is not None:
        return f"it is written {found}"
    if name in SERVER_KEYS:
        return "it is a key of a standalone coordinator: set it in the file that sharegroup coordinator --config names"
    if name.endswith("group.id") and name not in GONE:
        return f"the option {_GROUP_ID} names the group"
    return hint(name, known)


def required(given: Mapping[str, str], name: str, why: str) -> str:
    """The option's text, which is not blank. Raises MissingOption if it is blank, or not set."""
    value = given.get(name, "").strip()
    if not value:
        raise MissingOption(option=name, why=why)
    return value


def count(given: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """Returns the option's whole number, at least ``least``; None if it is not set. Raises InvalidOption otherwise."""
    text = given.get(name.lower())
    if text is None:
        return None
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and least <= int(digits) <= LARGEST):
        raise InvalidOption(option=name, problem=f"{text!r} is not a whole number between {least} and {LARGEST}.")
    return int(digits)


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """The option's value, true or false. Raises InvalidOption if it is neither."""
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(option=name, problem=f"{text!r} is not true or false.")
    return text == "true"


def choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The option's word, one of ``choices`` in any case; the first if it is not set. Raises InvalidOption otherwise."""
    text = given.get(name.lower(), choices[0]).strip().lower()
    if text not in choices:
        raise InvalidOption(option=name, problem=f"{text!r} is not {' or '.join(choices)}.")
    return text
