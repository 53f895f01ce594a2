"""Checks the dead letter topic when a query or a sink starts, before a dead letter can't be written."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tenacity import retry_if_result, wait_fixed

from coordinator.config.group_keys import DEAD_LETTER_TOPIC
from coordinator.config.resolved import GroupConfig
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import (
    BrokerRefused,
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    DeadLetterTopicSubscribed,
)
from coordinator.protocol.topic_names import check_written, is_reserved
from coordinator.service.brokers.cluster import KafkaCluster

CREATED_WITHIN_S = 10.0
"""A created topic must be listed within this many seconds."""
_PAUSE = wait_fixed(0.1)
_DENIED = frozenset(("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"))

_log = logging.getLogger(__name__)


def check_dead_letter_topic(cluster: KafkaCluster, config: GroupConfig, *, is_read: bool, creates: bool = True) -> int:
    """Returns the number of partitions of the dead letter topic (errors.deadletterqueue.topic.name). The topic is
    created if errors.deadletterqueue.auto.create.topics.enable is set. ``creates`` false: the cluster is only asked
    whether the topic may be created, and 0 is returned. ``is_read``: whether the group reads the topic now.

    Raises:
        TopicNotWritten: the topic is reserved.
        TopicNotAllowed: share.coordinator.dead.letter.topics does not allow it.
        DeadLetterTopicSubscribed: the group reads the topic.
        DeadLetterTopicMissing: the topic does not exist, and is not created.
        DeadLetterTopicNotAuthorized: the principal may not describe, create or write to it.
        BrokerNotReachable, BrokerRefused: the brokers do not answer, or refuse."""
    name = config.errors_deadletterqueue_topic_name
    check_written(name)
    cluster.allowed.check_dead_letters(name)
    if is_read:
        raise DeadLetterTopicSubscribed(topic=name)
    partitions = partitions_of(cluster, name)
    if not partitions and config.errors_deadletterqueue_auto_create_topics_enable:
        partitions = _created(cluster, name, only_ask=not creates)
        if not creates:
            return 0
    if not partitions:
        raise DeadLetterTopicMissing(topic=name, addresses=cluster.addresses)
    if not cluster.may_write(name):
        raise DeadLetterTopicNotAuthorized(what="write to", topic=name)
    return partitions


def is_stored_and_refused(cluster: KafkaCluster, name: str, named: Mapping[str, str]) -> bool:
    """Whether the group has a stored dead letter topic that may not be written, and the configs ``named`` by the
    request do not name that topic. An earlier version, or other keys of the coordinator, let it be stored. The group is
    still served, and its dead letters are held."""
    is_refused = is_reserved(name) or not cluster.allowed.allows_dead_letters(name)
    return is_refused and name != named.get(DEAD_LETTER_TOPIC, "").strip()


def partitions_of(cluster: KafkaCluster, name: str) -> int:
    """The topic's number of partitions; 0 if it does not exist. Raises DeadLetterTopicNotAuthorized if the principal
    may not describe it."""
    try:
        topic = cluster.topics([name]).get(name)
    except BrokerRefused as refused:
        raise _named(refused, "describe", name) from None
    return 0 if topic is None else topic.partitions


def _created(cluster: KafkaCluster, name: str, *, only_ask: bool) -> int:
    try:
        cluster.create_topic(name, only_ask=only_ask)
    except BrokerRefused as refused:
        raise _named(refused, "create", name) from None
    if only_ask:
        return 0
    _log.info("dead letter topic created: %s", name)
    listed = retry_until(CREATED_WITHIN_S, _PAUSE, retry_if_result(lambda partitions: not partitions))
    return listed(partitions_of, cluster, name)


def _named(refused: BrokerRefused, what: str, topic: str) -> BrokerRefused | DeadLetterTopicNotAuthorized:
    return DeadLetterTopicNotAuthorized(what=what, topic=topic) if refused.fields["reason"] in _DENIED else refused
