"""The source's options: from the texts that Spark hands over to a frozen value, or a named error that says what to do.

Rule: no I/O and no librdkafka here, since a DataSource is built on executors too, and more than once; what only
librdkafka knows is checked by ``SourceOptions.check_kafka_config``, on the driver, before the query starts.
Spark hands option names over in lower case and values as text (seen; of itself it adds only ``path``, for load(path)).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.config import COORDINATOR_KEYS, GROUP_KEYS, CoordinatorConfig, GroupConfig, nearest
from coordinator.errors import UnknownConfig
from share_source import kafka_options
from share_source.errors import (
    InvalidOption,
    MissingOption,
    NoSubscription,
    RefusedOption,
    SeveralSubscriptions,
    UnknownOption,
)
from share_source.offset_options import parse_assign, parse_starting_offsets
from share_source.option_table import OPTIONS, REFUSED

_GROUP_PREFIXES = ("share.", "errors.")
_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_TAKEN = {option.name.lower(): option.name for option in OPTIONS if "*" not in option.name}
_REFUSED = {name.lower(): name for name in REFUSED}
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_POLL_TIMEOUT_MS = 120_000
_LARGEST = 2**63 - 1
_NOTHING: tuple[object, ...] = (None, (), {})


@dataclass(frozen=True, kw_only=True, repr=False)
class SourceOptions:
    """What a query asked for; picklable; ``repr`` shows no secrets.

    Exactly one of ``topics``, ``topic_pattern`` and ``assign`` is set. ``starting_offsets``: None, ``earliest``,
    ``latest`` or JSON with sorted keys. ``kafka_config`` is librdkafka's, with bootstrap.servers, without group.id:
    the reader assigns partitions, and joins no consumer group. The configs are texts, checked, as they were given.
    """

    bootstrap_servers: str
    group_id: str
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: str | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = _POLL_TIMEOUT_MS
    kafka_config: dict[str, str] = field(default_factory=dict)
    group_configs: dict[str, str] = field(default_factory=dict)
    coordinator_configs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> SourceOptions:
        """From Spark's options, names in any case; the named errors of coordinator.config and share_source.errors."""
        given = {name.lower(): value for name, value in options.items() if value is not None}
        kafka = _without_prefix(given)
        group_configs, coordinator_configs = _configs(given)
        _check_names(given)
        topics, pattern, assign = _subscription(given)
        servers = _required(given, "kafka.bootstrap.servers", "name at least one broker, as host:port.")
        group_id = _required(
            given, "kafka.group.id", "it names the share group whose records this query takes part in."
        )
        return cls(
            bootstrap_servers=servers,
            group_id=group_id,
            topics=topics,
            topic_pattern=pattern,
            assign=assign,
            starting_offsets=parse_starting_offsets(given.get("startingoffsets"), topics, assign),
            max_offsets_per_trigger=_count(given, "maxOffsetsPerTrigger"),
            min_partitions=_count(given, "minPartitions"),
            max_records_per_partition=_count(given, "maxRecordsPerPartition"),
            include_headers=_flag(given, "includeHeaders", default=False),
            fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
            poll_timeout_ms=_count(given, "kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS,
            kafka_config={"bootstrap.servers": servers, **kafka_options.to_librdkafka(kafka)},
            group_configs=group_configs,
            coordinator_configs=coordinator_configs,
        )

    @property
    def state_store(self) -> str:
        """share.state.store, or its default."""
        return CoordinatorConfig.parse(self.coordinator_configs).share_state_store

    def check_kafka_config(self) -> None:
        """Have librdkafka check ``kafka_config``: UnknownKafkaOption, InvalidKafkaOption. No I/O."""
        kafka_options.check_kafka_config(self.kafka_config)

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shown["kafka_config"] = kafka_options.redacted(self.kafka_config)
        return (
            f"<SourceOptions {' '.join(f'{name}={value!r}' for name, value in shown.items() if value not in _NOTHING)}>"
        )


def _without_prefix(given: Mapping[str, str]) -> dict[str, str]:
    prefix = kafka_options.PREFIX
    own = ("kafka.bootstrap.servers", "kafka.group.id")
    return {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix) and name not in own}


def _configs(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Group and coordinator configs, checked."""
    configs = {name: value for name, value in given.items() if name.startswith(_GROUP_PREFIXES)}
    known = {**GROUP_KEYS, **COORDINATOR_KEYS}
    for name in configs:
        if name not in known:
            raise UnknownConfig(key=name, scope="share group configuration", nearest=nearest(name, known))
    group = {name: value for name, value in configs.items() if name in GROUP_KEYS}
    coordinator = {name: value for name, value in configs.items() if name in COORDINATOR_KEYS}
    GroupConfig.parse(group)
    CoordinatorConfig.parse(coordinator)
    return group, coordinator


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name.startswith((kafka_options.PREFIX, *_GROUP_PREFIXES)) or name in _TAKEN:
            continue
        if name in _REFUSED:
            reason, instead = REFUSED[_REFUSED[name]]
            raise RefusedOption(option=_REFUSED[name], reason=reason, instead=instead)
        if name in kafka_options.SHARE_GROUPS_FORBID:
            instead = kafka_options.SHARE_GROUPS_FORBID[name]
            raise RefusedOption(option=name, reason="a share group does without it.", instead=instead)
        raise UnknownOption(option=name, nearest=_TAKEN[nearest(name, _TAKEN)])


def _subscription(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]] | None]:
    named = [name for name in _STRATEGIES if name.lower() in given]
    if not named:
        raise NoSubscription()
    if len(named) > 1:
        raise SeveralSubscriptions(options=", ".join(named))
    text = given[named[0].lower()].strip()
    if named[0] == "subscribe":
        return _topics(text), None, None
    if named[0] == "subscribePattern":
        return (), _pattern(text), None
    return (), None, parse_assign(text)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise InvalidOption(option="subscribe", problem="it names no topic.")
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            problem = f"{topic!r} can't be a topic's name (letters, digits, '.', '_' and '-', at most 249)."
            raise InvalidOption(option="subscribe", problem=problem)
    return topics


def _pattern(text: str) -> str:
    if not text:
        raise InvalidOption(option="subscribePattern", problem="it is empty.")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(option="subscribePattern", problem=f"{text!r} is no regular expression: {error}.") from None
    return text


def _required(given: Mapping[str, str], name: str, why: str) -> str:
    value = given.get(name, "").strip()
    if not value:
        raise MissingOption(option=name, why=why)
    return value


def _count(given: Mapping[str, str], name: str) -> int | None:
    """A whole number from 1 on, or None if it is not set."""
    text = given.get(name.lower())
    if text is None:
        return None
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20 and 1 <= int(digits) <= _LARGEST):
        raise InvalidOption(option=name, problem=f"{text!r} is not a whole number between 1 and {_LARGEST}.")
    return int(digits)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(option=name, problem=f"{text!r} is not true or false.")
    return text == "true"
