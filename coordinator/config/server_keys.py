"""The table of keys that only a standalone coordinator has: its address, its certificate, and its limits.

Rule: as for :mod:`coordinator.config.group_keys`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.config.group_keys import GROUP_KEYS
from coordinator.config.keys import ConfigKey, row, table_of
from coordinator.protocol.addresses import parse_endpoint, parse_endpoints
from coordinator.protocol.topic_names import EVERYTHING, is_list, is_pattern

DEFAULT_PORT = 9394
_MIB = 1 << 20


def _is_pattern_of_topics(text: str) -> bool:
    return is_pattern(text) and not is_list(text)


_OF_GROUPS = {
    "session.timeout.ms": ((1_000, 3_600_000), "KIP-932"),
    "heartbeat.interval.ms": ((100, 60_000), "KIP-932"),
    "assignment.interval.ms": ((0, 3_600_000), "KIP-1263"),
    "record.lock.duration.ms": ((1_000, 3_600_000), "KIP-932"),
    "delivery.count.limit": ((2, 25), "KIP-1240"),
    "partition.max.record.locks": ((100, 100_000_000), "KIP-1240"),
}


def _bound(end: str, key: str, why: str = "", default: int | None = None) -> Any:
    """The row of the bound of a group's key; ``end``: smallest or largest. ``default`` None: the end of the range."""
    between, kip = _OF_GROUPS[key]
    doc = f"The {end} share.{key} of a group."
    return row(default=default or between[end == "largest"], between=between, kip=kip, doc=doc, why=why)


def _default(key: str, why: str = "") -> Any:
    """The row of the coordinator's default of a group's key."""
    default, (between, _) = GROUP_KEYS[f"share.{key}"].default, _OF_GROUPS[key]
    return row(
        default=default, between=between, kip="KIP-932", doc=f"The share.{key} of a group that sets none.", why=why
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerValues:
    """The address of a standalone coordinator, and the limits of any coordinator, with the row of each key."""

    share_coordinator_listener: str = row(
        default=f"127.0.0.1:{DEFAULT_PORT}",
        takes="host:port; port 0 is any free one",
        is_valid=lambda text: parse_endpoint(text) is not None,
        ours=True,
        doc="The address on which the coordinator listens. Any address but loopback needs TLS.",
        why="Kafka has listeners for its brokers.",
    )
    share_coordinator_advertised_listener: str = row(
        default="",
        takes="host:port; empty: the listener's",
        is_valid=lambda text: not text or (parse_endpoints(text) is not None and "," not in text),
        ours=True,
        doc="The address by which clients reach this coordinator, and which its certificate names. Required if the "
        "coordinator listens on all addresses (0.0.0.0).",
        why="Kafka has advertised.listeners for its brokers.",
    )
    share_coordinator_ssl_certificate_location: str = row(
        default="",
        ours=True,
        doc="A PEM file with the certificate and its intermediate certificates. Read at the start.",
        why="Kafka has ssl.keystore.* for its own listeners; the name is librdkafka's.",
    )
    share_coordinator_ssl_key_location: str = row(
        default="",
        ours=True,
        doc="A PEM file with the certificate's private key, without a password; only its user (and group) may read it.",
        why="Kafka has ssl.keystore.* for its own listeners; the name is librdkafka's.",
    )
    share_coordinator_web_port: int = row(
        default=0,
        between=(0, 65_535),
        ours=True,
        doc="The port on which the coordinator shows the page of sharegroup web; 0: it shows none. If the coordinator "
        "has a certificate, the page is on the listener's host, with that certificate; if not, only on 127.0.0.1. "
        "Needs the extra sharegroup[web].",
        why="Kafka's brokers have no page.",
    )
    share_coordinator_web_public_url: str = row(
        default="",
        ours=True,
        doc="The address at which browsers open the coordinator's page through an ingress, as --public-url of "
        "sharegroup web.",
        why="Kafka's brokers have no page.",
    )
    share_coordinator_source_topics: str = row(
        default=EVERYTHING,
        takes="an RE2 pattern of the whole name, as orders|payments",
        is_valid=_is_pattern_of_topics,
        ours=True,
        doc="The topics that groups may read. Another topic is refused at the join, left out of a subscription by "
        "pattern, and not copied to a dead letter topic.",
        why="Kafka's brokers check the member's own ACLs.",
    )
    share_coordinator_dead_letter_topics: str = row(
        default=EVERYTHING,
        takes="an RE2 pattern of the whole name, as orders|payments",
        is_valid=_is_pattern_of_topics,
        ours=True,
        doc="The topics that groups may have as dead letter topic. Another topic is refused; if a group's stored "
        "config names another topic, its dead letters wait.",
        why="The coordinator is a client of the brokers, which see its principal alone.",
    )
    group_share_max_size: int = row(
        default=1_000,
        between=(1, 100_000),
        kip="KIP-932",
        doc="How many members a group can have.",
        why="Kafka: 200, at most 1,000.",
    )
    group_share_max_groups: int = row(
        default=10_000,
        between=(1, 1_000_000),
        kip="KIP-932",
        doc="How many groups there can be. At the limit no group is created; existing ones are served as before.",
        why="Kafka dropped its limit after 4.0.",
    )
    group_share_min_session_timeout_ms: int = _bound("smallest", "session.timeout.ms", "Kafka: 45,000.")
    group_share_max_session_timeout_ms: int = _bound("largest", "session.timeout.ms", "Kafka: 60,000.")
    group_share_min_heartbeat_interval_ms: int = _bound("smallest", "heartbeat.interval.ms", "Kafka: 5,000.")
    group_share_max_heartbeat_interval_ms: int = _bound("largest", "heartbeat.interval.ms", "Kafka: 15,000.")
    group_share_min_assignment_interval_ms: int = _bound("smallest", "assignment.interval.ms")
    group_share_max_assignment_interval_ms: int = _bound("largest", "assignment.interval.ms", "Kafka: 15,000.")
    group_share_record_lock_duration_ms: int = _default("record.lock.duration.ms")
    group_share_min_record_lock_duration_ms: int = _bound("smallest", "record.lock.duration.ms", "Kafka: 15,000.")
    group_share_max_record_lock_duration_ms: int = _bound("largest", "record.lock.duration.ms", "Kafka: 60,000.")
    group_share_delivery_count_limit: int = _default("delivery.count.limit")
    group_share_min_delivery_count_limit: int = _bound("smallest", "delivery.count.limit")
    group_share_max_delivery_count_limit: int = _bound("largest", "delivery.count.limit", default=10)
    group_share_partition_max_record_locks: int = _default("partition.max.record.locks", "Kafka: 2,000.")
    group_share_min_partition_max_record_locks: int = _bound("smallest", "partition.max.record.locks")
    group_share_max_partition_max_record_locks: int = _bound("largest", "partition.max.record.locks", "Kafka: 4,000.")
    queued_max_requests: int = row(
        default=500,
        between=(1, 100_000),
        doc="How many requests are processed at once; further ones are refused (CoordinatorOverloaded), and clients "
        "retry. Requests that other hosts pass on are counted separately: those of members and those of administrators "
        "may each be half as many.",
        why="Kafka stops reading from the network instead.",
    )
    socket_request_max_bytes: int = row(
        default=100 * _MIB, between=(64 * 1024, 1024 * _MIB), doc="The largest request."
    )
    max_connections: int = row(
        default=5_000,
        between=(1, 1_000_000),
        doc="How many connections there can be. Above this number, connections without an authenticated call are "
        "closed.",
        why="Kafka sets no limit.",
    )
    share_coordinator_authentication_timeout_ms: int = row(
        default=10_000,
        between=(100, 600_000),
        ours=True,
        doc="A connection that has not sent the token within this time is closed.",
        why="Kafka closes connections that are idle for connections.max.idle.ms (10 min), authenticated or not.",
    )


SERVER_KEYS: dict[str, ConfigKey] = table_of(ServerValues)
