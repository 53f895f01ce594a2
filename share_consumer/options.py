"""The constructor's configuration of a ShareConsumer: the keys that it takes, and the checks of their values.

librdkafka's properties have their own names, without a prefix, as in confluent_kafka.ShareConsumer. ``share.*``,
``group.share.*`` and ``errors.deadletterqueue.*`` are the same as in the source. Rule: what confluent's class refuses
is refused here, by the same exception; no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from coordinator.client.group_options import GroupOptions
from coordinator.client.options import GROUP_PREFIXES, MEMBER_NAME, Option, as_text, configs, flag
from coordinator.config.kafka_options import (
    broker_addresses,
    check_numbers,
    check_tokens,
    is_javas_alone,
    own_name,
    redacted,
    to_librdkafka,
)
from coordinator.config.keys import ConfigKey
from coordinator.config.resolved import CoordinatorConfig
from coordinator.kafka.properties import TOKEN_FUNCTION
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.option_errors import MissingOption
from share_consumer.errors import kafka_exception

Callback = Callable[..., Any]

DEFAULT_MAX_POLL_RECORDS = 500
DEFAULT_MAX_POLL_INTERVAL_MS = 300_000
DEFAULT_SOCKET_TIMEOUT_MS = 60_000

ACKNOWLEDGEMENT_MODE = "share.acknowledgement.mode"
ACQUIRE_MODE = "share.acquire.mode"
RENEW_IN_BACKGROUND = "share.background.renew.enable"
PROGRESS_BATCHES = ConfigKey(
    name="max.in-flight.progress.batches",
    default=100,
    between=(1, 100_000),
    doc="Signals (mark_in_progress) wait for the next poll or commit; as soon as there are this many, they are sent.",
)

OPTIONS = (
    Option("bootstrap.servers", "required", "The brokers to ask first: host:port, separated by commas."),
    Option("group.id", "required", "The share group. Queries and ShareConsumers of one group share its records."),
    Option(ACKNOWLEDGEMENT_MODE, "implicit", "implicit: the next poll or commit accepts records; explicit: you do it."),
    Option(
        "max.poll.records",
        "500",
        "Records that a poll returns, at most. A consumer that is behind acquires more ahead, for the next polls.",
    ),
    Option(
        "max.poll.interval.ms",
        "300000",
        "How long records that were acquired, and that no poll has returned yet, are kept for the next poll.",
    ),
    Option(ACQUIRE_MODE, "the group's", "batch_optimized or record_limit, for this consumer (KIP-1206)."),
    Option(
        RENEW_IN_BACKGROUND,
        "false",
        "Renew the locks of the records that the program holds, until it acknowledges them; at most for "
        "share.max.lock.extension.ms.",
    ),
    Option(PROGRESS_BATCHES.name, str(PROGRESS_BATCHES.default), PROGRESS_BATCHES.doc),
    Option("key.deserializer, value.deserializer", "none", "Callables, as DeserializingShareConsumer takes them."),
    Option(MEMBER_NAME.name, "client.id, else the program's", MEMBER_NAME.doc),
    Option("error_cb, stats_cb, throttle_cb, logger", "none", "As confluent_kafka takes them."),
    Option(
        "share.*, group.share.*, errors.deadletterqueue.*",
        "see below",
        "Configuration of the group, and of the coordinator.",
    ),
    Option("any other", "librdkafka's", "Any property of librdkafka that a share consumer may have."),
)

_BROKERS_DECIDE = (
    "`{}` is not supported for `group.protocol=consumer` or share consumer. It is defined broker side: use "
    "share.session.timeout.ms or share.heartbeat.interval.ms"
)
_NOT_APPLICABLE = "`{}` is not applicable for share consumer"
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("auto.offset.reset", "consume.callback.max.messages", "enable.auto.commit", "enable.partition.eof"),
            *("fetch.error.backoff.ms", "fetch.queue.backoff.ms", "group.instance.id", "group.protocol"),
            *("group.remote.assignor", "isolation.level", "message.copy.max.bytes", "partition.assignment.strategy"),
            *("queued.max.messages.kbytes", "queued.min.messages", "topic.blacklist"),
        ),
        _NOT_APPLICABLE,
    ),
    **dict.fromkeys(("heartbeat.interval.ms", "session.timeout.ms"), _BROKERS_DECIDE),
    "group.protocol.type": "`{}` is not supported for `group.protocol=consumer` or share consumer",
    "allow.auto.create.topics": "{} is currently not supported for share consumer",
    "socket.max.fails": "`{}` must be 1 for share consumer; changing it is not allowed",
}
"""Properties that confluent_kafka.ShareConsumer refuses, with the text of its ValueError."""

_INSTEAD = {"auto.offset.reset": "Use share.auto.offset.reset.", "isolation.level": "Use share.isolation.level."}
"""What to use in place of a refused property."""
_OF_A_QUERY = {
    "assign": "call subscribe() with topics",
    "maxoffsetspertrigger": "use max.poll.records",
    "startingoffsets": "use share.auto.offset.reset",
    "subscribe": "call subscribe() with a list of topics",
    "subscribepattern": "call subscribe() with one pattern, which begins with ^",
}
"""Options of a query's source, and what a ShareConsumer has in their place."""

_CALLBACKS = {"error_cb": TypeError, "stats_cb": TypeError, "throttle_cb": ValueError, "oauth_cb": TypeError}
"""Callbacks, with the exception that confluent_kafka.ShareConsumer raises if the value is not callable (or None)."""
_TOPIC_CONFIG = "default.topic.config"
_TOKEN_SOURCES = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.metadata.authentication.type")
_CLIENT_ONLY = frozenset({"group.id", "max.poll.records", "max.poll.interval.ms", "bootstrap.servers"})
_END_OF_CHECK = "sharegroup.end.of.check"
_UNKNOWN = re.compile(r'No such configuration property: "(.*)"')


@contextmanager
def _invalid_argument() -> Iterator[None]:
    """A context in which a named error becomes a KafkaException (_INVALID_ARG)."""
    try:
        yield
    except ShareGroupError as error:
        raise kafka_exception(error, KafkaError._INVALID_ARG) from error


@dataclass(frozen=True, kw_only=True, repr=False)
class ConsumerOptions(GroupOptions):
    """The configuration of a ShareConsumer; ``repr`` shows no secrets. ``callbacks``: the program's error_cb, stats_cb,
    throttle_cb and logger. ``acquire_mode`` empty: the group's."""

    explicit: bool = False
    acquire_mode: str = ""
    max_poll_records: int = DEFAULT_MAX_POLL_RECORDS
    max_poll_interval_ms: int = DEFAULT_MAX_POLL_INTERVAL_MS
    socket_timeout_ms: int = DEFAULT_SOCKET_TIMEOUT_MS
    renews_in_background: bool = False
    max_progress_batches: int = 100
    member_name: str = ""
    key_deserializer: Callback | None = None
    value_deserializer: Callback | None = None
    callbacks: dict[str, Any] = field(default_factory=dict)

    @property
    def outage_timeout_ms(self) -> int:
        return CoordinatorConfig.parse(self.coordinator_configs).share_broker_outage_timeout_ms

    @property
    def client_config(self) -> dict[str, Any]:
        """The configuration of the clients that read. A program's logger gets librdkafka's default log level."""
        logs = {"log_level": "6"} if "logger" in self.callbacks else {}
        return {**logs, **self.kafka_config, **self.callbacks}

    def printed(self) -> dict[str, Any]:
        shown = super().printed()
        return {**shown, "kafka_config": redacted(self.kafka_config)}

    @classmethod
    @_invalid_argument()
    def parse(cls, given: Mapping[str, Any]) -> ConsumerOptions:
        """Returns the options in the constructor's configuration.

        Raises:
            KafkaException: a property, or its value, is refused (_INVALID_ARG).
            TypeError: a value is bytes.
            ValueError: a share consumer may not have a property, group.id is missing, or librdkafka can make no client.
            TypeError, ValueError: a callback is not callable; ``_CALLBACKS`` says which of the two.
            AttributeError: default.topic.config is no dict."""
        beside = _beside(given)
        of_topics = {_TOPIC_CONFIG: given[_TOPIC_CONFIG]} if _TOPIC_CONFIG in given else {}
        others = {key: value for key, value in given.items() if key not in beside and key not in of_topics}
        texts = {str(key): _text(str(key), value) for key, value in others.items() if value is not None}
        own = {key: texts.pop(key) for key in list(texts) if key.startswith(GROUP_PREFIXES)}
        if "group.id" not in given:
            hint = own_name("kafka.group.id", ()) if "kafka.group.id" in given else ""
            raise ValueError(f"Failed to create consumer: group.id must be set{hint}")
        texts.setdefault("group.id", "")
        progress = texts.pop(PROGRESS_BATCHES.name, str(PROGRESS_BATCHES.default))
        name = texts.pop(MEMBER_NAME.name, "")
        as_given = {key: others.get(key, "") for key in texts}
        if any(is_javas_alone(key) for key in texts):
            texts = as_given = dict(to_librdkafka(texts, {}, prefix="", forbidden={}))
        check_numbers(texts)
        ours = (*GROUP_PREFIXES, MEMBER_NAME.name)
        nulls = [str(key) for key, value in others.items() if value is None and not str(key).startswith(ours)]
        checked = _check_properties({**dict.fromkeys(nulls), **as_given, **of_topics}, own)
        texts = {
            **{str(key): _text(str(key), value) for key, value in of_topics.get(_TOPIC_CONFIG, {}).items()},
            **texts,
        }
        _check_together(texts, checked)
        callbacks = (key for key in ("error_cb", "stats_cb", "throttle_cb", "logger") if beside.get(key) is not None)
        return cls(
            max_progress_batches=int(PROGRESS_BATCHES.parse(progress)),
            member_name=str(MEMBER_NAME.parse(name)),
            key_deserializer=beside.get("key.deserializer"),
            value_deserializer=beside.get("value.deserializer"),
            callbacks={key: beside[key] for key in callbacks},
            **_parsed(texts, own),
        )


def _beside(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings whose values are not texts."""
    beside = {key: given[key] for key in (*_CALLBACKS, "logger") if key in given}
    if isinstance(given.get(TOKEN_FUNCTION), str):
        del beside[TOKEN_FUNCTION]
    for key, refusal in _CALLBACKS.items():
        if key in beside and not callable(beside[key]):
            raise refusal(f"expected {key} property as a callable function")
    if TOKEN_FUNCTION in beside:
        text = f'{TOKEN_FUNCTION} is a text here, "MODULE:FUNCTION": the coordinator calls the function too'
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
    if "on_commit" in given:
        raise ValueError("on_commit is not supported on ShareConsumer")
    for key in ("key.deserializer", "value.deserializer"):
        if key in given:
            beside[key] = given[key]
            if given[key] is not None and not callable(given[key]):
                raise TypeError(f"expected {key} property as a callable function")
    return beside


def _text(key: str, value: Any) -> str:
    return as_text(key, int(value) if isinstance(value, float) and value.is_integer() else value)


def _check_properties(given: Mapping[str, Any], own: Mapping[str, str]) -> dict[str, Any]:
    """Have librdkafka check its properties. An unknown property at the end stops librdkafka before it starts a thread
    or a connection. Returns the checked properties."""
    checked = {key: value for key, value in given.items() if key not in ("plugin.library.paths", TOKEN_FUNCTION)}
    if ACKNOWLEDGEMENT_MODE in own:
        checked[ACKNOWLEDGEMENT_MODE] = own[ACKNOWLEDGEMENT_MODE]
    try:
        confluent_kafka.ShareConsumer({**checked, _END_OF_CHECK: ""})
    except KafkaException as error:
        text = error.args[0].str()
        if _END_OF_CHECK in text:
            return checked
        if found := _UNKNOWN.fullmatch(text):
            instead = _OF_A_QUERY.get(found[1].lower())
            known = [option.name for option in OPTIONS if " " not in option.name]
            text += f"; it is an option of a query: {instead}" if instead else own_name(found[1], known)
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text)) from None
        raise
    return checked


def _check_together(texts: Mapping[str, str], checked: Mapping[str, Any]) -> None:
    """Have librdkafka make a client and close it, since it refuses some properties only together: a SASL mechanism
    without a user, or a certificate file that is missing. The client has no brokers, so it connects nowhere. No client
    is made if it would fetch a token at once."""
    for key in checked:
        if key in REFUSED:
            instead = f". {_INSTEAD[key]}" if key in _INSTEAD else ""
            raise ValueError(f"Failed to create share consumer: {REFUSED[key].format(key)}{instead}")
    if TOKEN_FUNCTION in texts:
        check_tokens(texts, prefix="")
    if any(key in texts for key in (*_TOKEN_SOURCES, TOKEN_FUNCTION)):
        return
    without = {key: value for key, value in checked.items() if key != "metadata.broker.list"}
    client = confluent_kafka.ShareConsumer({**without, "bootstrap.servers": "", "log_level": "0"})
    with suppress(KafkaException):  # without a group id
        client.close()


def _parsed(texts: Mapping[str, str], own: Mapping[str, str]) -> dict[str, Any]:
    servers = texts.get("bootstrap.servers", texts.get("metadata.broker.list", "")).strip()
    if not servers:
        raise MissingOption(option="bootstrap.servers", why="name at least one broker, as host:port.")
    servers = broker_addresses(servers, texts, prefix="")
    group_configs, coordinator_configs = configs({k: v for k, v in own.items() if k != RENEW_IN_BACKGROUND})
    mode = group_configs.pop(ACKNOWLEDGEMENT_MODE, "implicit")
    kafka_config = {key: value for key, value in texts.items() if key not in _CLIENT_ONLY}
    return {
        "bootstrap_servers": servers,
        "group_id": texts["group.id"],
        "kafka_config": {"bootstrap.servers": servers, **kafka_config},
        "group_configs": group_configs,
        "coordinator_configs": coordinator_configs,
        "explicit": mode == "explicit",
        "acquire_mode": group_configs.pop(ACQUIRE_MODE, ""),
        "max_poll_records": _number(texts, "max.poll.records", DEFAULT_MAX_POLL_RECORDS),
        "max_poll_interval_ms": _number(texts, "max.poll.interval.ms", DEFAULT_MAX_POLL_INTERVAL_MS),
        "socket_timeout_ms": _number(texts, "socket.timeout.ms", DEFAULT_SOCKET_TIMEOUT_MS),
        "renews_in_background": flag(own, RENEW_IN_BACKGROUND, default=False),
    }


def _number(texts: Mapping[str, str], key: str, default: int) -> int:
    """Returns the number in this text, which librdkafka has checked before. A leading 0 means octal digits."""
    text = texts.get(key, "").strip()
    return int(text, 8 if text.lstrip("+").startswith("0") else 10) if text else default
