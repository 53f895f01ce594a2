"""Clients of librdkafka: their creation with named errors, and the recognition of missing topics, refusals by the
brokers, and silence."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from coordinator.kafka.properties import TOKEN_FUNCTION, is_shown
from coordinator.kafka.token_function import TokenFunction
from coordinator.protocol.errors import InvalidKafkaConfig
from coordinator.protocol.option_errors import InvalidOption

UNKNOWN_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""The codes for a topic or a partition that is not there, or not known yet: the broker's and librdkafka's own."""
NO_ANSWER = frozenset(
    {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._DESTROY_BROKER}
)
"""Errors of one broker that does not answer. librdkafka sends some requests to the broker that the last listing named
as the controller (in KRaft any broker may be named). Such requests, and those in librdkafka's own queue, wait for that
broker even if it is gone; the next listing names another one. If a listing no longer names a broker (the broker was
fenced after a pause, or taken out of the cluster), librdkafka drops the requests that wait for it (_DESTROY_BROKER)."""

OLD_LEADER = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
"""Errors that mean the cached leader is stale: librdkafka refreshes its cache on its own schedule, so retry."""

LACKING = frozenset({KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION})
"""Errors of brokers that do not support a request: they are another maker's, or a service leaves the request out."""

LOSSLESS: Mapping[str, str] = MappingProxyType(
    {
        "enable.idempotence": "true",
        "acks": "all",
        "retries": str(2**31 - 1),
        "max.in.flight.requests.per.connection": "5",
        "queuing.strategy": "fifo",
    }
)
"""librdkafka's configuration of a producer that neither loses nor doubles records, whatever producer options a
query has. With enable.idempotence=true, librdkafka refuses other values of the settings that follow it."""
WITHOUT_A_GROUP: Mapping[str, str] = MappingProxyType(
    {"group.id": "sharegroup", "enable.auto.commit": "false", "enable.auto.offset.store": "false", "client.rack": ""}
)
"""librdkafka's configuration of a consumer that reads partitions assigned by hand. librdkafka assigns none without a
group id; the consumer never joins that group and commits nothing to it. It reads from leaders, whatever client.rack a
query has: the end of a follower's log is no proof that a record is missing."""
READS_ON = NO_ANSWER | frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.GROUP_AUTHORIZATION_FAILED,  # the consumer joins no group, so it needs no ACL for one
    }
)
"""Errors after which a consumer with the settings WITHOUT_A_GROUP goes on by itself."""
BY_OFFSET: Mapping[str, str] = MappingProxyType(
    {
        **WITHOUT_A_GROUP,
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",  # an offset that the log lacks must not become the next one that it has
        "allow.auto.create.topics": "false",
    }
)
"""librdkafka's configuration of a consumer WITHOUT_A_GROUP that reads given offsets. Its promises depend on
these settings: the user's do not override them."""
IN_BULK: Mapping[str, str] = MappingProxyType(
    {
        "fetch.message.max.bytes": str(1 << 20),
        "queued.min.messages": "20000",  # 100,000 touch more memory: +20% CPU a record
    }
)
"""librdkafka's fetch sizes of a consumer that reads neighbouring records. ``queued.max.messages.kbytes`` is each
reader's own, because it bounds the memory of a process."""
READING: Mapping[str, str] = MappingProxyType(
    {
        "check.crcs": "true",  # false by default: a record that the disk or the network changed would be delivered
        "log_level": "0",  # else librdkafka writes a line to stderr for each try to connect
        "log.connection.close": "false",
        "max.poll.interval.ms": "86400000",
        "fetch.queue.backoff.ms": "2",  # 1000 by default, which stalls reading each time that the queue is full
        "fetch.wait.max.ms": "25",  # a consumer at the end of a log cannot move before the broker answers its fetch
    }
)
"""librdkafka's configuration of a consumer that reads records. The user's own settings override these."""
LONGEST_POLL_S = 2.0
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
_CUT_OFF = re.compile(
    r"disconnect|connection re|timed out|transport failure|could ?n.t connect|could not (connect|resolve)"
    r"|callback raised",
    re.IGNORECASE,
)
"""librdkafka's texts for errors that have a refusal's code and are none: a broker crashed during a handshake, an OAuth
endpoint is unreachable, or a token function raised."""
_TLS_ALERT = re.compile(r"alert (\w+ )?(certificate|unknown ca|access denied)")
"""A TLS listener's answer to a certificate that it refuses, or to none. With TLS 1.3 it comes after the handshake, and
librdkafka reports a broken connection."""
_TOGETHER = "(several that don't go together)"


def is_refused(error: KafkaError) -> bool:
    """Whether the brokers refuse the client, or the client does not trust them: a retry does not help."""
    if error.code() == KafkaError._TRANSPORT:
        return _TLS_ALERT.search(error.str()) is not None
    return error.code() in _REFUSED and _CUT_OFF.search(error.str()) is None


class Complaints:
    """The ``error_cb`` of a client, called when the client is polled. librdkafka reports here the causes of errors that
    its calls show as a mere timeout."""

    def __init__(self) -> None:
        self.last = ""
        """The newest cause; empty if there was none."""
        self.refused = ""
        """Why the brokers refuse the client, in librdkafka's words; empty if they don't."""

    def __call__(self, error: KafkaError) -> None:
        if is_refused(error):
            self.refused = error.str()
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # the error before it says more
            self.last = f"{error.name()}: {error.str()}"

    def forget(self) -> None:
        """Clear both fields once a call was answered."""
        self.last = self.refused = ""


def new_client(client: Any, config: Mapping[str, Any], **beside: Any) -> Any:
    """A Consumer, Producer or AdminClient. ``beside``: confluent_kafka's arguments beside the configuration.

    Raises:
        InvalidKafkaConfig: librdkafka refuses the configuration; the error names the key, not the value.
        InvalidOption: the token function can't be imported here, or gave no token for 10 s."""
    settings, tokens = dict(config), None
    if isinstance(name := settings.get(TOKEN_FUNCTION), str):
        settings[TOKEN_FUNCTION] = tokens = TokenFunction(name)
    try:
        return client(settings, **beside)
    except (KafkaException, ValueError, ImportError) as error:  # confluent_kafka's own checks raise the last two
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        if tokens is not None and "OAuth token not set" in text:
            problem = tokens.problem or "librdkafka has not called it"
            raise InvalidOption(option=f"kafka.{TOKEN_FUNCTION}", problem=f"{problem}.") from None
        raise InvalidKafkaConfig(key=_refused_key(config, text), reason=_reason(config, text)) from None


_CREATING = re.compile(r"^Failed to create [\w ]+: ")
_PROPERTY = re.compile(r"\b(?:sasl|ssl|fetch|message|receive|max|session|socket)(?:\.[a-z0-9]+)+\b")
_MECHANISM = "SASL mechanism"
_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
_KERBEROS = (
    "the confluent-kafka of PyPI is built without Kerberos; docs/run/brokers.md says how to build it with libsasl2"
)
_MECHANISMS = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or GSSAPI if librdkafka was built with it"


def _reason(config: Mapping[str, Any], text: str) -> str:
    """librdkafka's text about a configuration, without the values of properties that may be secrets."""
    text = " ".join(_CREATING.sub("", text).replace("`", "").split()).rstrip(".")
    hidden = [value for key, value in config.items() if isinstance(value, str) and not is_shown(key)]
    for value in sorted(filter(None, hidden), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "***", text)  # not within a word, as kafka is in librdkafka
    if _NO_KERBEROS in text:
        return f"{text}; {_KERBEROS}"
    if _MECHANISM not in text:
        return text
    is_set = "sasl.mechanism" in config or "sasl.mechanisms" in config
    return f"{text}; it is {_MECHANISMS}" if is_set else f"it is not set; set it to {_MECHANISMS}"


def _refused_key(config: Mapping[str, Any], text: str) -> str:
    """Returns the property that librdkafka's text names, else its first key, else the key that is refused alone."""
    if named := re.search(r'configuration property:? "([\w.]+)"', text):
        return named.group(1)
    if _MECHANISM in text:
        return "sasl.mechanism"
    if unset := [key for key in _PROPERTY.findall(text) if "must be set" in text and key not in config]:
        return str(unset[0])
    words = {word.strip(".") for word in re.findall(r"[\w.]+", text)}
    for key in config:
        if key in words:
            return key
    return next((key for key, value in config.items() if _is_refused_alone(key, value)), _TOGETHER)


def _is_refused_alone(key: str, value: Any) -> bool:
    from confluent_kafka.admin import AdminClient  # slow to import, and needed only here

    if not isinstance(value, str) or key == TOKEN_FUNCTION:  # a callback of ours, or code
        return False
    try:
        AdminClient({"bootstrap.servers": "unused", "log_level": "0", key: value})
    except KafkaException:
        return True
    return False


def produced(producer: Any, deadline_s: float, *record: Any, **options: Any) -> bool:
    """Hand the record to the producer, with the arguments of its ``produce``. While the queue of the producer is full,
    wait until ``deadline_s`` of the monotonic clock. Returns False if the queue is still full then."""
    while True:
        try:
            producer.produce(*record, **options)
            return True
        except BufferError:
            if time.monotonic() >= deadline_s:
                return False
            producer.poll(0.05)


class Silence:
    """Measures how long the brokers have sent nothing while this process polled. Time in which the process was stopped
    between two polls does not count."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._ends: dict[tuple[str, int], int] = {}
        self.ends()

    def ends(self) -> None:
        """Start the measurement again."""
        self._last_s, self._silent_s = self._now_s(), 0.0

    def came(self, key: tuple[str, int], end: int) -> bool:
        """Start the measurement again if the partition's log was never read as far as the exclusive ``end`` before.
        Returns whether the measurement began again. A client that repeats records makes no progress: after an
        unreadable batch librdkafka may begin at the log's start again, for ever."""
        if end <= self._ends.get(key, -1):
            return False
        self._ends[key] = end
        self.ends()
        return True

    def lasts_s(self) -> float:
        """Seconds of silence. Call it after each poll, which waits for less than LONGEST_POLL_S."""
        now_s = self._now_s()
        self._silent_s += min(now_s - self._last_s, LONGEST_POLL_S)
        self._last_s = now_s
        return self._silent_s
