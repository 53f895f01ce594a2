"""A look at the cluster from the driver, before a coordinator is asked: is it there, which one is it, what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.librdkafka import new_client

BROKER_TIMEOUT_S = 15.0


def cluster_metadata(bootstrap_servers: str, kafka_config: Mapping[str, str]) -> Any:
    """confluent_kafka's ClusterMetadata: cluster_id, brokers, topics. BrokerNotReachable within 15 s, naming addresses
    only; InvalidKafkaConfig."""
    config: dict[str, Any] = {"log_level": "0", **kafka_config, "bootstrap.servers": bootstrap_servers}
    reasons: list[str] = []
    config["error_cb"] = lambda error: reasons.append(error.name())
    admin = new_client(AdminClient, config)
    try:
        return admin.list_topics(timeout=BROKER_TIMEOUT_S)
    except KafkaException as error:
        admin.poll(0)
        told = [reason for reason in reasons if reason != "_ALL_BROKERS_DOWN"]
        raise BrokerNotReachable(
            addresses=bootstrap_servers,
            timeout_ms=int(BROKER_TIMEOUT_S * 1000),
            reason=told[-1] if told else error.args[0].name(),
        ) from None


def cluster_id(bootstrap_servers: str, kafka_config: Mapping[str, str]) -> str:
    """The cluster's id, by which its coordinator is found."""
    return str(cluster_metadata(bootstrap_servers, kafka_config).cluster_id or bootstrap_servers)
