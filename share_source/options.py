"""The source's options: from the texts that Spark hands over to a frozen value, or a named error that says what to do.

Rule: no I/O and no librdkafka here, since a DataSource is built on executors too, and more than once; what only
librdkafka knows is checked by ``SourceOptions.check_kafka_config``, on the driver, before the query starts.
Of itself Spark adds only ``path``, for load(path) (seen).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.client import kafka_options
from coordinator.client.option_errors import InvalidOption
from coordinator.client.options import by_lower_name, configs, count, flag, group_id
from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.topic_names import check_pattern, check_topic
from share_source.errors import NoSubscription, SeveralSubscriptions
from share_source.offset_options import parse_assign, parse_starting_offsets
from share_source.option_table import TABLE

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
LEAST_POLL_TIMEOUT_MS = 120_000
"""Of a task, where nobody named one: Spark's own."""
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
    poll_timeout_ms: int = LEAST_POLL_TIMEOUT_MS
    kafka_config: dict[str, str] = field(default_factory=dict)
    group_configs: dict[str, str] = field(default_factory=dict)
    coordinator_configs: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> SourceOptions:
        """From Spark's options, names in any case; the named errors of coordinator.config.resolved,
        .client.option_errors and share_source.errors."""
        given = by_lower_name(options)
        group_configs, coordinator_configs = configs(given)
        TABLE.check_names(given)
        topics, pattern, assign = _subscription(given)
        kafka_config = TABLE.kafka_config(given)
        return cls(
            bootstrap_servers=kafka_config["bootstrap.servers"],
            group_id=group_id(given, "it names the share group whose records this query takes part in."),
            topics=topics,
            topic_pattern=pattern,
            assign=assign,
            starting_offsets=parse_starting_offsets(given.get("startingoffsets"), topics, assign),
            max_offsets_per_trigger=count(given, "maxOffsetsPerTrigger"),
            min_partitions=count(given, "minPartitions"),
            max_records_per_partition=count(given, "maxRecordsPerPartition"),
            include_headers=flag(given, "includeHeaders", default=False),
            fail_on_data_loss=flag(given, "failOnDataLoss", default=True),
            poll_timeout_ms=count(given, "kafkaConsumer.pollTimeoutMs") or _poll_timeout_ms(coordinator_configs),
            kafka_config=kafka_config,
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


def _poll_timeout_ms(coordinator_configs: Mapping[str, str]) -> int:
    """Where nobody named one: a task rides out what its query does."""
    return max(CoordinatorConfig.parse(coordinator_configs).share_broker_outage_timeout_ms, LEAST_POLL_TIMEOUT_MS)


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
    assign = parse_assign(text)
    for topic in assign:
        check_topic(topic)
    return (), None, assign


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise InvalidOption(option="subscribe", problem="it names no topic.")
    for topic in topics:
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            problem = f"{topic!r} can't be a topic's name (letters, digits, '.', '_' and '-', at most 249)."
            raise InvalidOption(option="subscribe", problem=problem)
        check_topic(topic)
    return topics


def _pattern(text: str) -> str:
    if not text:
        raise InvalidOption(option="subscribePattern", problem="it is empty.")
    check_pattern(text)
    return text
