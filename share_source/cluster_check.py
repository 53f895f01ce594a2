"""The checks at ``load()`` that need files, librdkafka or the cluster: on the driver, before the query starts.

Rule: a check refuses only what is wrong for every group, since load() does not know the group's state. What depends on
it (startingOffsets that lacks a partition of a new group) is checked by the coordinator, when the query joins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer

from coordinator.client.cluster_metadata import cluster_metadata, denied_topics
from coordinator.client.endpoints import Endpoints
from coordinator.client.group_options import GroupOptions
from coordinator.config.resolved import CoordinatorConfig, GroupConfig, changed_configs
from coordinator.protocol.errors import (
    DeadLetterTopicMissing,
    DeadLetterTopicNotAuthorized,
    DeadLetterTopicSubscribed,
    InvalidKafkaConfig,
    InvalidStartingOffsets,
    TopicNotAuthorized,
    UnknownPartition,
    UnknownTopic,
)
from coordinator.protocol.librdkafka import new_client
from coordinator.protocol.topic_names import matches
from share_source.consumers import client_config
from share_source.options import SourceOptions

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"


def check_at_load(options: SourceOptions) -> str:
    """All checks of load() but those of the options' texts, which SourceOptions.parse makes. Returns the cluster's id,
    or its addresses if it has none.

    Raises:
        UnknownKafkaOption, InvalidKafkaOption: see GroupOptions.check_kafka_config.
        ShareGroupError: see check_clients and check_cluster.
    """
    options.check_kafka_config()
    check_clients(options)
    return check_cluster(options)


def check_clients(options: SourceOptions) -> None:
    """Check that the query's clients can be made: the token and certificates for standalone coordinators, and the
    properties of the tasks' consumers, also together.

    Raises:
        TokenMissing, InvalidToken, UnsafeFile, UnusableFile: the token, or the file of certificates, is unusable.
        InvalidKafkaConfig: librdkafka refuses the configuration of a task's consumer.
    """
    if CoordinatorConfig.parse(options.coordinator_configs).share_coordinator_endpoint:
        Endpoints.of(options.coordinator_configs)
    config = dict(client_config(options.kafka_config, "read_uncommitted"))
    del config["bootstrap.servers"]  # it connects nowhere
    try:
        new_client(Consumer, config).close()
    except InvalidKafkaConfig as error:
        written = getattr(options.kafka_config, "written", {})
        key = error.fields["key"]
        raise InvalidKafkaConfig(key=written.get(key, key), reason=error.fields["reason"]) from None


def check_cluster(options: SourceOptions) -> str:
    """Check the subscription, startingOffsets and the dead letter topic on the cluster. A pattern may match no topic
    yet. A standalone coordinator has credentials of its own, and checks the dead letter topic itself when the query
    joins. Returns the same as check_at_load.

    Raises:
        BrokerNotReachable: no broker answers.
        UnknownTopic, TopicNotAuthorized: a topic of subscribe or assign does not exist, or may not be seen.
        UnknownPartition: a topic has no such partition of assign.
        InvalidStartingOffsets: a topic has no such partition of startingOffsets.
        DeadLetterTopicMissing, DeadLetterTopicNotAuthorized: as the topics, for the dead letter topic.
        DeadLetterTopicSubscribed: the query reads the dead letter topic.
    """
    metadata = cluster_metadata(options.bootstrap_servers, options.kafka_config)
    topics = metadata.topics
    subscribed = (*options.topics, *(options.assign or {}))
    absent = [topic for topic in subscribed if not exists(topics, topic)]
    denied = denied_topics(options.bootstrap_servers, options.kafka_config, absent) if absent else set()
    for topic in subscribed:
        if topic in denied:
            raise TopicNotAuthorized(topic=topic)
        _check_topic(options, topics, topic)
    _check_starting_offsets(options, topics)
    if not CoordinatorConfig.parse(options.coordinator_configs).share_coordinator_endpoint:
        check_dead_letter_topic(options, topics)
    dead_letters = options.group_configs.get(DEAD_LETTER_TOPIC, "").strip()
    is_matched = options.topic_pattern is not None and matches(options.topic_pattern, dead_letters)
    if dead_letters and (dead_letters in subscribed or is_matched):
        raise DeadLetterTopicSubscribed(topic=dead_letters)
    return str(metadata.cluster_id or options.bootstrap_servers)


def check_dead_letter_topic(options: GroupOptions, topics: Mapping[str, Any]) -> None:
    """Check that the dead letter topic exists, or may be created. ``topics``: those of the cluster.

    Raises:
        DeadLetterTopicMissing, DeadLetterTopicNotAuthorized: it does not exist, or may not be seen.
    """
    config = GroupConfig.parse(changed_configs({}, options.group_configs))
    dead_letters = config.errors_deadletterqueue_topic_name
    if not dead_letters or exists(topics, dead_letters):
        return
    if denied_topics(options.bootstrap_servers, options.kafka_config, [dead_letters]):
        raise DeadLetterTopicNotAuthorized(topic=dead_letters, what="see")
    if not config.errors_deadletterqueue_auto_create_topics_enable:
        raise DeadLetterTopicMissing(topic=dead_letters, addresses=options.bootstrap_servers)


def exists(topics: Mapping[str, Any], topic: str) -> bool:
    """Whether the cluster has the topic, with partitions."""
    metadata = topics.get(topic)
    return metadata is not None and metadata.error is None and bool(metadata.partitions)


def _check_topic(options: SourceOptions, topics: Mapping[str, Any], topic: str) -> None:
    if not exists(topics, topic):
        raise UnknownTopic(topic=topic, addresses=options.bootstrap_servers)
    for partition in (options.assign or {}).get(topic, ()):
        if partition not in topics[topic].partitions:
            raise UnknownPartition(topic=topic, partition=partition, partitions=len(topics[topic].partitions))


def _check_starting_offsets(options: SourceOptions, topics: Mapping[str, Any]) -> None:
    text = options.starting_offsets or ""
    if not text.startswith("{"):
        return
    for topic, by_partition in json.loads(text).items():
        count = len(topics[topic].partitions) if exists(topics, topic) else 0
        for partition in by_partition:
            if count and int(partition) not in topics[topic].partitions:
                reason = f"topic {topic} has no partition {partition} (it has {count})"
                raise InvalidStartingOffsets(value=text, reason=reason)
