"""The source's options: parses Spark's texts into a frozen value, or raises a named error that says what to do.

Rule: no I/O and no librdkafka here, since Spark makes a data source on executors too, and more than once.
``check_kafka_config`` checks what only librdkafka knows, on the driver, before the query starts. Spark itself adds only
the option ``path``, for load(path) (seen)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.client.group_options import GroupOptions, shared_fields
from coordinator.client.options import MEMBER_NAME, by_lower_name, count, flag
from coordinator.config.resolved import CoordinatorConfig, GroupConfig, changed_configs
from coordinator.protocol.option_errors import InvalidOption, RefusedOption
from coordinator.protocol.topic_names import check_pattern, check_topic, is_topic_name
from share_source.errors import NoSubscription, SeveralSubscriptions
from share_source.offset_options import parse_assign, parse_starting_offsets
from share_source.source_option_table import TABLE

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
LEAST_POLL_TIMEOUT_MS = 120_000
"""The default of kafkaConsumer.pollTimeoutMs is at least this many milliseconds, as in Spark's Kafka source."""

_UNCUT = (
    'Remove the option. maxOffsetsPerTrigger limits a batch, and df.repartition("key").sortWithinPartitions("topic", '
    '"partition", "offset") divides its work by key.'
)


@dataclass(frozen=True, kw_only=True, repr=False)
class SourceOptions(GroupOptions):
    """The options of a query's source. Picklable; ``repr`` shows no secrets.

    Exactly one of ``topics``, ``topic_pattern`` and ``assign`` is set. ``starting_offsets``: None, ``earliest``,
    ``latest`` or JSON with sorted keys. ``kafka_config`` has no group.id: the reader joins no consumer group."""

    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: str | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = LEAST_POLL_TIMEOUT_MS
    member_name: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> SourceOptions:
        """Returns the options that Spark passes, whose names may be in any case.

        Raises:
            UnknownOption, RefusedOption, MissingOption, InvalidOption: see coordinator.protocol.option_errors.
            UnknownConfig, ConfigTypeMismatch, ConfigOutOfBounds, ConfigConflict: see coordinator.config.resolved.
            NoSubscription, SeveralSubscriptions: not exactly one option says what to read.
            RefusedOption: see :meth:`check_order`, if the options themselves set share.order."""
        given = by_lower_name(options)
        shared = shared_fields(given, TABLE, "it names the share group whose records this query takes part in.")
        topics, pattern, assign = _subscription(given)
        # A task waits for brokers as long as its query does.
        outage_ms = CoordinatorConfig.parse(shared["coordinator_configs"]).share_broker_outage_timeout_ms
        parsed = cls(
            **shared,
            topics=topics,
            topic_pattern=pattern,
            assign=assign,
            starting_offsets=parse_starting_offsets(given.get("startingoffsets"), topics, assign),
            max_offsets_per_trigger=count(given, "maxOffsetsPerTrigger"),
            max_bytes_per_trigger=count(given, "maxBytesPerTrigger"),
            min_partitions=count(given, "minPartitions"),
            max_records_per_partition=count(given, "maxRecordsPerPartition"),
            include_headers=flag(given, "includeHeaders", default=False),
            fail_on_data_loss=flag(given, "failOnDataLoss", default=True),
            poll_timeout_ms=count(given, "kafkaConsumer.pollTimeoutMs") or max(outage_ms, LEAST_POLL_TIMEOUT_MS),
            member_name=str(MEMBER_NAME.parse(given.get(MEMBER_NAME.name, ""))),
        )
        parsed.check_order(ordered=GroupConfig.parse(changed_configs({}, parsed.group_configs)).is_ordered)
        return parsed

    def check_order(self, *, ordered: bool) -> None:
        """Check that no option cuts partitions into several tasks if the group is ordered. Raises RefusedOption."""
        cuts = {"minPartitions": self.min_partitions, "maxRecordsPerPartition": self.max_records_per_partition}
        for option, given in cuts.items():
            if ordered and given is not None:
                reason = (
                    f"share group {self.group_id} delivers the records of each partition in order "
                    "(share.order=partition), and this option would cut partitions into several tasks."
                )
                raise RefusedOption(option=option, reason=reason, instead=_UNCUT)


def _subscription(given: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, dict[str, tuple[int, ...]] | None]:
    named = [name for name in _STRATEGIES if name.lower() in given]
    if not named:
        raise NoSubscription()
    if len(named) > 1:
        raise SeveralSubscriptions(options=", ".join(named))
    text = given[named[0].lower()].strip()
    if named[0] == "subscribe":
        return parse_topics(text), None, None
    if named[0] == "subscribePattern":
        if not text:
            raise InvalidOption(option="subscribePattern", problem="it is empty.")
        check_pattern(text)
        check_topic(text)
        if text.startswith("__") and is_topic_name(text):
            problem = f"no pattern matches {text}: topics with two underscores at the beginning are internal."
            raise InvalidOption(option="subscribePattern", problem=problem)
        return (), text, None
    assign = parse_assign(text)
    for topic in assign:
        check_topic(topic)
    return (), None, assign


def parse_topics(text: str) -> tuple[str, ...]:
    """Returns the topics in the value of subscribe. Raises InvalidOption, and as check_topic."""
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise InvalidOption(option="subscribe", problem="it names no topic.")
    for topic in topics:
        if not is_topic_name(topic):
            characters = "letters, digits, '.', '_' and '-', at most 249"
            problem = f"{topic!r} can't be a topic's name ({characters}); several are separated by commas. "
            problem += "A pattern is for subscribePattern."
            raise InvalidOption(option="subscribe", problem=problem)
        check_topic(topic)
    return topics
