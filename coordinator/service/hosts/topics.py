"""The three topics by which hosts ask each other: their creation, and the partition of a group's requests."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from coordinator.kafka.librdkafka import UNKNOWN_TOPIC, new_client
from coordinator.protocol.errors import BrokerRefused
from coordinator.protocol.host_errors import HostTopicNotAuthorized, HostTopicUnfit
from coordinator.protocol.host_records import ADMIN_REQUESTS, PARTITIONS, REPLIES, REQUESTS
from coordinator.service.stores.kafka.state_topic import MAX_REPLICAS, StateTopic, changed, is_denied
from coordinator.state_log.placement import state_partition_of

ALL = (REQUESTS, ADMIN_REQUESTS, REPLIES)
READ, WRITE = "READ", "WRITE"
TO_ASK = {REQUESTS: WRITE, REPLIES: READ}
TO_ADMINISTER = {ADMIN_REQUESTS: WRITE}
TO_ANSWER = {REQUESTS: READ, ADMIN_REQUESTS: READ, REPLIES: WRITE}
"""The operations that a principal needs to ask owners on other hosts, to have them act, and to answer as owner."""
KEPT_MS = 600_000
"""The topics between hosts keep a record for this many milliseconds: longer than any request waits."""
MOST_BYTES = 1_048_588
"""A record batch of the topics between hosts has up to this many bytes, Kafka's default."""
FIT = {
    "cleanup.policy": "delete",
    "compression.type": "uncompressed",  # a broker then holds a batch's unpacked size against max.message.bytes
    "max.message.bytes": str(MOST_BYTES),
    "message.timestamp.type": "LogAppendTime",  # a host's clock may be hours off: its records must stay
}
"""The configuration that a topic must have, whoever made it."""
CONFIG = {**FIT, "retention.ms": str(KEPT_MS), "segment.ms": str(KEPT_MS), "min.insync.replicas": "1"}

_OTHER_HOST = UNKNOWN_TOPIC | {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS}
"""Errors which say that another host, or an administrator, has changed the topic in the meantime."""

_log = logging.getLogger(__name__)


def request_partition_of(group_id: str) -> int:
    """Returns the partition of the request topics that has the group's requests."""
    return state_partition_of(group_id, PARTITIONS)


def ensure(state: StateTopic, needed: Mapping[str, str]) -> None:
    """Create the topics that are missing, add missing partitions, and correct the configuration. Returns if the
    ``needed`` topics exist and the principal may do with each what is needed, as Kafka's ACLs name it.

    Raises:
        HostTopicNotAuthorized: it may not, or an administrator has to create them.
        HostTopicUnfit: an administrator has to configure them.
        BrokerNotReachable, BrokerRefused: the brokers do not answer, or refuse."""
    admin = new_client(AdminClient, state.client_config())
    with _errors_of(state, "look for them", ", ".join(ALL)):
        found = admin.list_topics(timeout=state.timeout_s)
    replicas = max(1, min(MAX_REPLICAS, len(found.brokers)))
    for name in ALL:
        known = len(found.topics[name].partitions) if name in found.topics else 0
        try:
            if not known:
                with _errors_of(state, "see or create it", name):
                    new = NewTopic(name, num_partitions=PARTITIONS, replication_factor=replicas, config=CONFIG)
                    admin.create_topics([new], request_timeout=state.timeout_s)[name].result()
                    _log.info("topic created: %s partitions=%d replicas=%d", name, PARTITIONS, replicas)
            elif known < PARTITIONS:  # a broker auto-created the topic when somebody wrote to it
                with _errors_of(state, f"add partitions to it, which has {known}", name):
                    more = NewPartitions(name, PARTITIONS)
                    admin.create_partitions([more], request_timeout=state.timeout_s)[name].result()
        except HostTopicNotAuthorized:
            if name in needed:
                raise
    for name in lacking(state, needed):
        raise HostTopicNotAuthorized(what="read it" if needed[name] == READ else "write to it", topic=name)
    check_configs(state, needed)


def check_configs(state: StateTopic, topics: Iterable[str] = ALL) -> None:
    """Check that the topics have the configuration FIT, and alter what differs. Skips a topic whose configuration the
    principal may not describe.

    Raises:
        HostTopicUnfit: the principal may not alter it.
        BrokerNotReachable, BrokerRefused: the brokers do not answer, or refuse."""
    admin = new_client(AdminClient, state.client_config())
    for name in topics:
        asked, found = ConfigResource(ConfigResource.Type.TOPIC, name), {}
        try:
            with _errors_of(state, "read its configuration", name):
                found = admin.describe_configs([asked], request_timeout=state.timeout_s)[asked].result()
        except HostTopicNotAuthorized:
            _log.info("the configuration of %s is not checked, because DescribeConfigs on it is not allowed", name)
            continue
        differs = {key: value for key, value in FIT.items() if found and found[key].value != value}
        if not differs:
            continue
        change = changed(name, differs)
        wanted = ",".join(f"{key}={value}" for key, value in differs.items())
        try:
            with _errors_of(state, "alter its configuration", name):
                admin.incremental_alter_configs([change], request_timeout=state.timeout_s)[change].result()
        except HostTopicNotAuthorized:
            has = ", ".join(f"{key}={found[key].value}" for key in differs)
            raise HostTopicUnfit(topic=name, has=has, wanted=wanted) from None
        _log.info("topic configured: %s %s", name, wanted)


def lacking(state: StateTopic, needed: Mapping[str, str]) -> list[str]:
    """Returns those of the topics with which the principal may not do what is needed, as far as the brokers say."""

    def lacks(topic: str, operation: str) -> bool:
        try:
            return bool(state.cluster.lacking(topic, operation))
        except BrokerRefused:  # the principal may not even describe the topic
            return True

    return [topic for topic, operation in needed.items() if lacks(topic, operation)]


@contextlib.contextmanager
def _errors_of(state: StateTopic, what: str, topic: str) -> Iterator[None]:
    """A context for a request about the topic, ``what`` in words. Raises named errors for its errors."""
    try:
        yield
    except KafkaException as raised:
        error: Any = raised.args[0]
        if error.code() in _OTHER_HOST:
            return
        if is_denied(error):
            raise HostTopicNotAuthorized(what=what, topic=topic) from None
        raise state.failed(f"{what} ({topic})", error) from None
