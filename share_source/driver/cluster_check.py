"""The checks at ``load()`` that need files, librdkafka or the cluster. They run on the driver, before the query starts.

Rule: a check refuses only what is wrong for every group, since load() does not know the group's state. The coordinator
checks the rest when the query joins, for example startingOffsets that lack a partition of a new group."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer

from coordinator.client.endpoints import Endpoints
from coordinator.client.on_demand import runtime_dir
from coordinator.config.kafka_options import PREFIX
from coordinator.config.resolved import CoordinatorConfig, GroupConfig, changed_configs
from coordinator.kafka.cluster_metadata import metadata_and_rights
from coordinator.kafka.librdkafka import new_client
from coordinator.protocol import errors
from coordinator.protocol.topic_names import matches
from share_source.errors import ReadDenied
from share_source.executor.consumers import client_config
from share_source.executor.reader_choice import wanted_reader
from share_source.options import SourceOptions

DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
LEADER_S = 1.0
"""Leaders that accept no connection within this many seconds are logged. All are tried at once, and load() continues as
soon as all have accepted."""
MOST_LEADERS = 32
"""Up to this many leaders are tried, each in a thread."""

_log = logging.getLogger(__name__)


def check_at_load(options: SourceOptions) -> str:
    """Run all checks of load(), except those of SourceOptions.parse. Returns the cluster's id, or its addresses if it
    has no id.

    Raises:
        UnknownKafkaOption, InvalidOption: see GroupOptions.check_kafka_config.
        ShareGroupError: see check_clients and check_cluster."""
    options.check_kafka_config()
    check_clients(options)
    return check_cluster(options)


def check_clients(options: SourceOptions) -> None:
    """Check that the query's clients can be made: the token and the certificates for standalone coordinators, or else
    the runtime directory of this host, and the properties of the tasks' consumers.

    Raises:
        UnsafeDirectory: SHAREGROUP_RUNTIME_DIR names a folder that can't be used.
        TokenMissing, InvalidToken, UnsafeFile, UnusableFile: the token, or the file of certificates, is unusable.
        UnknownReader: SHAREGROUP_READER has an unknown value.
        InvalidKafkaConfig: librdkafka refuses the configuration of a task's consumer."""
    if CoordinatorConfig.parse(options.coordinator_configs).share_coordinator_endpoint:
        Endpoints.of(options.coordinator_configs)
    else:
        runtime_dir()
    wanted_reader()
    config = dict(client_config(options.kafka_config, "read_uncommitted"))
    del config["bootstrap.servers"]  # it connects nowhere
    try:
        new_client(Consumer, config).close()
    except errors.InvalidKafkaConfig as error:
        written = getattr(options.kafka_config, "written", {})
        key = str(error.fields["key"])
        named = key if key.startswith("(") else PREFIX + written.get(key, key)
        raise errors.InvalidKafkaConfig(key=named, reason=error.fields["reason"]) from None


def check_cluster(options: SourceOptions) -> str:
    """Check on the cluster the subscription, startingOffsets, the rights on the topics and, for a coordinator on
    demand, the dead letter topic. (A standalone coordinator has credentials of its own, and checks that topic when the
    query joins.) A pattern may match no topic yet. Returns the same as check_at_load.

    Raises:
        BrokerNotReachable: no broker answers.
        UnknownTopic, TopicNotAuthorized: a topic of subscribe or assign does not exist, or may not be seen.
        ReadDenied: a topic may be seen, but not read.
        UnknownPartition: a topic has no such partition of assign.
        InvalidStartingOffsets: a topic has no such partition of startingOffsets.
        DeadLetterTopicMissing, DeadLetterTopicNotAuthorized: the same for the dead letter topic.
        DeadLetterTopicSubscribed: the query reads the dead letter topic."""
    dead_letters = options.group_configs.get(DEAD_LETTER_TOPIC, "").strip()
    metadata, rights = metadata_and_rights(
        options.bootstrap_servers,
        options.kafka_config,
        lambda found: {*subscribed(options, found), *filter(None, [dead_letters])},
    )
    topics, named = metadata.topics, subscribed(options, metadata)
    for topic in named:
        _check_topic(options, topics, topic, rights)
    _check_starting_offsets(options, topics)
    if not CoordinatorConfig.parse(options.coordinator_configs).share_coordinator_endpoint:
        _check_dead_letter_topic(options, topics, rights)
    is_matched = options.topic_pattern is not None and matches(options.topic_pattern, dead_letters)
    if dead_letters and (dead_letters in named or is_matched):
        raise errors.DeadLetterTopicSubscribed(topic=dead_letters)
    _tell_of_leaders(metadata, named)
    return str(metadata.cluster_id or options.bootstrap_servers)


def subscribed(options: SourceOptions, metadata: Any) -> list[str]:
    """Returns the topics of subscribe or assign, also missing ones; for subscribePattern the topics that match."""
    if options.topic_pattern is None:
        return [*options.topics, *(options.assign or {})]
    return sorted(topic for topic in metadata.topics if matches(options.topic_pattern, topic))


def _check_dead_letter_topic(
    options: SourceOptions, topics: Mapping[str, Any], rights: Mapping[str, frozenset[str]]
) -> None:
    config = GroupConfig.parse(changed_configs({}, options.group_configs))
    dead_letters = config.errors_deadletterqueue_topic_name
    if not dead_letters:
        return
    allowed = rights.get(dead_letters)
    if not exists(topics, dead_letters):
        if allowed is not None and not allowed:
            raise errors.DeadLetterTopicNotAuthorized(topic=dead_letters, what="see")
        if not config.errors_deadletterqueue_auto_create_topics_enable:
            raise errors.DeadLetterTopicMissing(topic=dead_letters, addresses=options.bootstrap_servers)
    elif allowed is not None and "WRITE" not in allowed:
        raise errors.DeadLetterTopicNotAuthorized(topic=dead_letters, what="write to")


def _tell_of_leaders(metadata: Any, topics: Iterable[str]) -> None:
    """Log the leaders of these topics that accept no connection from this host at their advertised address. Nothing is
    refused: the leader may be down for a moment, and executors may run elsewhere."""
    ids = {partition.leader for topic in topics for partition in metadata.topics[topic].partitions.values()}
    leaders = [metadata.brokers[leader] for leader in sorted(ids) if leader in metadata.brokers][:MOST_LEADERS]
    reasons = {(broker.host, broker.port): f"no answer within {LEADER_S:.0f} s" for broker in leaders}

    def connect(host: str, port: int) -> None:
        try:
            socket.create_connection((host, port), timeout=LEADER_S).close()
            reasons.pop((host, port), None)
        except OSError as error:
            reasons[host, port] = error.strerror or str(error)

    threads = [threading.Thread(target=connect, args=address, daemon=True) for address in reasons]
    deadline_s = time.monotonic() + LEADER_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    for (host, port), reason in sorted(dict(reasons).items()):
        _log.warning(
            "a leader of the subscribed partitions can't be reached from this host at the address that it advertises, "
            "%s:%d (%s). If executors can't reach it either, tasks fail: correct advertised.listeners of the broker",
            *(host, port, reason),
        )


def exists(topics: Mapping[str, Any], topic: str) -> bool:
    """Whether the cluster has the topic, with partitions."""
    metadata = topics.get(topic)
    return metadata is not None and metadata.error is None and bool(metadata.partitions)


def _check_topic(
    options: SourceOptions, topics: Mapping[str, Any], topic: str, rights: Mapping[str, frozenset[str]]
) -> None:
    allowed = rights.get(topic)
    if not exists(topics, topic):
        if allowed is not None and not allowed:
            raise errors.TopicNotAuthorized(topic=topic)
        raise errors.UnknownTopic(topic=topic, addresses=options.bootstrap_servers)
    if allowed is not None and "READ" not in allowed:
        raise ReadDenied(topic=topic, reason="the principal may see the topic, but its ACLs have no READ")
    for partition in (options.assign or {}).get(topic, ()):
        if partition not in topics[topic].partitions:
            raise errors.UnknownPartition(topic=topic, partition=partition, partitions=len(topics[topic].partitions))


def _check_starting_offsets(options: SourceOptions, topics: Mapping[str, Any]) -> None:
    text = options.starting_offsets or ""
    if not text.startswith("{"):
        return
    for topic, by_partition in json.loads(text).items():
        count = len(topics[topic].partitions) if exists(topics, topic) else 0
        for partition in by_partition:
            if count and int(partition) not in topics[topic].partitions:
                reason = f"topic {topic} has no partition {partition} (it has {count})"
                raise errors.InvalidStartingOffsets(value=text, reason=reason)
