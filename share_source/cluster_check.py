"""Bad input that only the cluster knows, found at ``load()``: a broker out of reach, a topic that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.client.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import UnknownPartition, UnknownTopic
from share_source.options import SourceOptions


def check_cluster(options: SourceOptions) -> None:
    """BrokerNotReachable, UnknownTopic, UnknownPartition; a pattern may match nothing yet."""
    topics = cluster_metadata(options.bootstrap_servers, options.kafka_config).topics
    for topic in (*options.topics, *(options.assign or {})):
        _check_topic(options, topics, topic)


def _check_topic(options: SourceOptions, topics: Mapping[str, Any], topic: str) -> None:
    found = topics.get(topic)
    if found is None or found.error is not None or not found.partitions:
        raise UnknownTopic(topic=topic, addresses=options.bootstrap_servers)
    for partition in (options.assign or {}).get(topic, ()):
        if partition not in found.partitions:
            raise UnknownPartition(topic=topic, partition=partition, partitions=len(found.partitions))
