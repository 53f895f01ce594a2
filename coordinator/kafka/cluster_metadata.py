"""The cluster's metadata, which the driver reads before it calls a coordinator: the cluster id, the brokers, the
topics.

Rule: an error names librdkafka's cause, and is raised as soon as the cause is known, not after a timeout."""

from __future__ import annotations

import contextlib
import logging
import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from tenacity import retry_if_exception_type, wait_fixed

from coordinator.kafka.broker_probe import listener_of_another_kind, named_addresses
from coordinator.kafka.librdkafka import Complaints, new_client
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import (
    BrokerClosesConnection,
    BrokerHostUnknown,
    BrokerNotReachable,
    BrokerSecurityFailed,
    InvalidKafkaConfig,
    ShareGroupError,
)

BROKER_TIMEOUT_S = 15.0
ATTEMPT_S = 1.0
"""One attempt takes this many seconds. Then librdkafka's own errors are checked: waiting after a refusal is useless."""
CLOSED_S = 3.0
"""Brokers that only close connections are an error after this many seconds: a starting broker closes some."""
NOBODY_S = 10.0
"""Addresses at which nobody listens are an error of a person's command after this many seconds: a broker that restarts
listens again sooner."""

_SIZE = re.compile(r"Invalid response size (-?\d+)")
_FAILED = re.compile(r"^FAIL \[[^]]*\](?: \[[^]]*\])?: (.*)$", re.DOTALL)
_NOBODY = re.compile(r"Connection refused")
_CLOSED = re.compile(r"Disconnected|closed by peer|connecting to a \w+ ", re.IGNORECASE)
_UNRESOLVED = re.compile(r"Failed to resolve '([^']+)'")
_PASSING = re.compile(r"temporary failure|try again", re.IGNORECASE)
_LOG_WARNINGS = "4"


class FirstContact(Complaints):
    """The errors of a client that no broker has answered. ``log`` takes librdkafka's log lines: some causes, such as a
    listener that closes the connection, are only there. ``nobody_s``: if nobody listens at the addresses, that is an
    error after this many seconds."""

    def __init__(self, nobody_s: float = inf) -> None:
        super().__init__()
        self._nobody_s = nobody_s
        self.kinds: set[str] = set()
        """``resolve``, ``closed``, ``size``, ``nobody``, ``other``: the kinds of causes so far."""
        self.reasons: dict[str, str] = {}
        """The newest cause of each kind."""
        self.unresolved: set[str] = set()
        """The addresses, as host:port, whose host is not known."""
        self.log = logging.Logger("librdkafka")
        handler = logging.Handler()
        handler.emit = lambda record: self._logged(record.getMessage())  # type: ignore[method-assign]
        self.log.addHandler(handler)

    def __call__(self, error: KafkaError) -> None:
        super().__call__(error)
        if error.code() == KafkaError._RESOLVE and not _PASSING.search(error.str()):
            self._note("resolve", error.str())
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._logged(error.str())

    def _logged(self, text: str) -> None:
        found = _FAILED.match(text)
        cause = found.group(1) if found else text
        if "Failed to resolve" in cause:
            self._note("other" if _PASSING.search(cause) else "resolve", cause)
        elif _SIZE.search(cause):
            self._note("size", cause)
        elif found or _CLOSED.search(cause):
            self._note("nobody" if _NOBODY.search(cause) else "closed" if _CLOSED.search(cause) else "other", cause)

    def _note(self, kind: str, cause: str) -> None:
        self.kinds.add(kind)
        if kind == "resolve":
            self.unresolved.update(_UNRESOLVED.findall(cause))
        # Keep an earlier, better reason: only some of librdkafka's lines have the guess about the listener.
        if "connecting to a" not in self.reasons.get(kind, ""):
            self.reasons[kind] = " ".join(cause.split()).rstrip(".")

    def error(self, addresses: str, protocol: str, waited_s: float) -> ShareGroupError | None:
        """Returns the named error if its cause is certain by now, and None if waiting may still help. Another one of
        several addresses may still answer: a slow broker has reported no error yet."""
        if self.refused:
            return BrokerSecurityFailed(addresses=addresses, reason=self.refused)
        named = named_addresses(addresses)
        if self.kinds == {"resolve"} and (len(named) == 1 or self.unresolved >= named):
            return BrokerHostUnknown(addresses=addresses, reason=self.reasons["resolve"])
        if self.kinds == {"size"} and (len(named) == 1 or waited_s >= CLOSED_S):
            return InvalidKafkaConfig(key="receive.message.max.bytes", reason=self.reasons["size"])
        if self.kinds == {"nobody"} and waited_s >= self._nobody_s:
            return _not_reachable(addresses, waited_s, self.reasons["nobody"])
        if self.kinds == {"closed"} and waited_s >= CLOSED_S:
            return BrokerClosesConnection(addresses=addresses, reason=self.reasons["closed"], protocol=protocol)
        return None


def cluster_metadata(bootstrap_servers: str, kafka_config: Mapping[str, str], *, timeout_s: float | None = None) -> Any:
    """confluent_kafka's ClusterMetadata: cluster_id, brokers, topics. It is for a person's command.

    Raises:
        BrokerNotReachable: no broker answered within ``timeout_s`` (else BROKER_TIMEOUT_S), or nobody listens for
            NOBODY_S; it names addresses only.
        BrokerSecurityFailed, BrokerHostUnknown: the brokers refuse the client, or no host name is known; at once.
        BrokerClosesConnection: the brokers do nothing but close connections, for CLOSED_S.
        BrokerSpeaksOtherwise: the listeners are no brokers', or speak TLS where the client does not, or the other way
            round; within two seconds.
        InvalidKafkaConfig: librdkafka refuses the configuration."""
    contact = FirstContact(NOBODY_S)
    with _admin(bootstrap_servers, kafka_config, contact) as admin:
        limit_s = BROKER_TIMEOUT_S if timeout_s is None else timeout_s
        return _metadata(admin, contact, bootstrap_servers, kafka_config, limit_s)


def _metadata(
    admin: Any, contact: FirstContact, bootstrap_servers: str, kafka_config: Mapping[str, str], timeout_s: float
) -> Any:
    began_s = time.monotonic()
    protocol = kafka_config.get("security.protocol", "PLAINTEXT")
    asked: list[ShareGroupError | None] = []

    def ask() -> Any:
        try:
            return admin.list_topics(timeout=min(ATTEMPT_S, max(began_s + timeout_s - time.monotonic(), 0.1)))
        except KafkaException:
            while admin.poll(0):
                pass
            if not asked:
                asked.append(listener_of_another_kind(bootstrap_servers, protocol))
            found = asked[0] or contact.error(bootstrap_servers, protocol, time.monotonic() - began_s)
            if found is not None:
                raise found from None
            raise

    retries = retry_until(timeout_s, wait_fixed(0.1), retry_if_exception_type(KafkaException))
    try:
        return retries.copy(sleep=lambda seconds: admin.poll(seconds))(ask)  # what librdkafka reports ends the pause
    except KafkaException as error:
        reason = contact.last or next(iter(contact.reasons.values()), error.args[0].name())
        raise _not_reachable(bootstrap_servers, timeout_s, reason) from None


def _not_reachable(addresses: str, waited_s: float, reason: str) -> BrokerNotReachable:
    return BrokerNotReachable(addresses=addresses, timeout_ms=int(waited_s * 1000), reason=reason)


def metadata_and_rights(
    bootstrap_servers: str, kafka_config: Mapping[str, str], topics: Callable[[Any], Iterable[str]]
) -> tuple[Any, dict[str, frozenset[str]]]:
    """The cluster's metadata, and what the principal may do with the topics that ``topics`` selects from the metadata.
    The rights are names of operations in ACLs; a topic that may not be seen has none. A topic is left out if the
    cluster does not say what is allowed on it. Raises as :func:`cluster_metadata`."""
    contact = FirstContact()
    with _admin(bootstrap_servers, kafka_config, contact) as admin:
        metadata = _metadata(admin, contact, bootstrap_servers, kafka_config, BROKER_TIMEOUT_S)
        named = sorted(topics(metadata))
        # Without a controller librdkafka waits for one, and asks no broker.
        has_controller = metadata.controller_id in metadata.brokers
        return metadata, _rights(admin, named) if named and has_controller else {}


def _rights(admin: Any, topics: list[str]) -> dict[str, frozenset[str]]:
    asked = admin.describe_topics(
        TopicCollection(topics), include_authorized_operations=True, request_timeout=2 * ATTEMPT_S
    )
    rights = {}
    for name, described in asked.items():
        try:
            allowed = described.result(BROKER_TIMEOUT_S).authorized_operations
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                rights[name] = frozenset[str]()
        else:
            if allowed:  # an empty answer means that the cluster does not say: whoever sees a topic may describe it
                rights[name] = frozenset(operation.name for operation in allowed)
    return rights


def cluster_id(bootstrap_servers: str, kafka_config: Mapping[str, str]) -> str:
    """Returns the cluster's id, by which its coordinator is found. Raises as :func:`cluster_metadata`."""
    metadata, _ = metadata_and_rights(bootstrap_servers, kafka_config, lambda _: ())
    return str(metadata.cluster_id or bootstrap_servers)


@contextlib.contextmanager
def _admin(bootstrap_servers: str, kafka_config: Mapping[str, str], contact: FirstContact) -> Iterator[Any]:
    """A context with an AdminClient. The block gets a weak reference: the objects of a retry refer to each other, and
    would keep the client, its threads and its connections until the garbage collector runs."""
    config: dict[str, Any] = {"log_level": _LOG_WARNINGS, **kafka_config, "bootstrap.servers": bootstrap_servers}
    admin = new_client(AdminClient, {**config, "error_cb": contact}, logger=contact.log)
    try:
        yield weakref.proxy(admin)
    finally:
        del admin
