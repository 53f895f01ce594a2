"""The cluster's metadata, which the driver reads before it calls a coordinator: the cluster id, the brokers, the
topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.protocol.errors import BrokerNotReachable, BrokerSecurityFailed
from coordinator.protocol.librdkafka import Complaints, new_client

BROKER_TIMEOUT_S = 15.0
ATTEMPT_S = 1.0
"""Seconds of one attempt. After each one librdkafka's own errors are checked: there is no reason to wait after a
refusal."""


def cluster_metadata(bootstrap_servers: str, kafka_config: Mapping[str, str]) -> Any:
    """confluent_kafka's ClusterMetadata: cluster_id, brokers, topics.

    Raises:
        BrokerNotReachable: no broker answered within 15 s; the error names addresses only.
        BrokerSecurityFailed: the brokers refuse the client; at once.
        InvalidKafkaConfig: librdkafka refuses the configuration.
    """
    complaints = Complaints()
    config: dict[str, Any] = {"log_level": "0", **kafka_config, "bootstrap.servers": bootstrap_servers}
    admin = new_client(AdminClient, {**config, "error_cb": complaints})
    deadline = time.monotonic() + BROKER_TIMEOUT_S
    while True:
        try:
            return admin.list_topics(timeout=min(ATTEMPT_S, max(deadline - time.monotonic(), 0.1)))
        except KafkaException as error:
            admin.poll(0)
            if complaints.refused:
                raise BrokerSecurityFailed(addresses=bootstrap_servers, reason=complaints.refused) from None
            if time.monotonic() < deadline:
                continue
            raise BrokerNotReachable(
                addresses=bootstrap_servers,
                timeout_ms=int(BROKER_TIMEOUT_S * 1000),
                reason=complaints.last or error.args[0].name(),
            ) from None


def cluster_id(bootstrap_servers: str, kafka_config: Mapping[str, str]) -> str:
    """The cluster's id, by which its coordinator is found; it raises as :func:`cluster_metadata`."""
    return str(cluster_metadata(bootstrap_servers, kafka_config).cluster_id or bootstrap_servers)
