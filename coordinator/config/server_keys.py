"""The table of keys that only a standalone coordinator has: its address, its certificate, and its limits.

Rule: as for :mod:`coordinator.config.group_keys`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.config.keys import ConfigKey
from coordinator.protocol.addresses import parse_endpoint, parse_endpoints
from coordinator.protocol.allowed_topics import DEAD_LETTER_KEY, SOURCE_KEY
from coordinator.protocol.topic_names import EVERYTHING, is_list, is_pattern

DEFAULT_PORT = 9394
_MIB = 1 << 20


def _is_pattern_of_topics(text: str) -> bool:
    return is_pattern(text) and not is_list(text)


def _bounds_of_groups() -> Iterator[ConfigKey]:
    for key, low, high, kip, why_min, why_max in (
        ("session.timeout.ms", 1_000, 3_600_000, "KIP-932", "Kafka: 45,000.", "Kafka: 60,000."),
        ("heartbeat.interval.ms", 100, 60_000, "KIP-932", "Kafka: 5,000.", "Kafka: 15,000."),
        ("assignment.interval.ms", 0, 3_600_000, "KIP-1263", "", "Kafka: 15,000."),
    ):
        limits: dict[str, Any] = {"between": (low, high), "kip": kip}
        smallest, largest = f"The smallest share.{key} of a group.", f"The largest share.{key} of a group."
        yield ConfigKey(name=f"group.share.min.{key}", default=low, **limits, doc=smallest, why=why_min)
        yield ConfigKey(name=f"group.share.max.{key}", default=high, **limits, doc=largest, why=why_max)


_SERVER_ROWS = (
    ConfigKey(
        name="share.coordinator.listener",
        default=f"127.0.0.1:{DEFAULT_PORT}",
        takes="host:port; port 0 is any free one",
        is_valid=lambda text: parse_endpoint(text) is not None,
        ours=True,
        doc="The address on which the coordinator listens. Any address but loopback needs TLS.",
        why="Kafka has listeners for its brokers.",
    ),
    ConfigKey(
        name="share.coordinator.advertised.listener",
        default="",
        takes="host:port; empty: the listener's",
        is_valid=lambda text: not text or (parse_endpoints(text) is not None and "," not in text),
        ours=True,
        doc="The address by which clients reach this coordinator, and which its certificate names. Required if the "
        "coordinator listens on all addresses (0.0.0.0).",
        why="Kafka has advertised.listeners for its brokers.",
    ),
    ConfigKey(
        name="share.coordinator.ssl.certificate.location",
        default="",
        ours=True,
        doc="A PEM file with the certificate and its intermediate certificates. Read at the start.",
        why="Kafka has ssl.keystore.* for its own listeners; the name is librdkafka's.",
    ),
    ConfigKey(
        name="share.coordinator.ssl.key.location",
        default="",
        ours=True,
        doc="A PEM file with the certificate's private key, without a password; only its user (and group) may read it.",
        why="Kafka has ssl.keystore.* for its own listeners; the name is librdkafka's.",
    ),
    ConfigKey(
        name="share.coordinator.web.port",
        default=0,
        between=(0, 65_535),
        ours=True,
        doc="The port on which the coordinator shows the page of sharegroup web: on the listener's host with the "
        "coordinator's certificate if it has one, else only on 127.0.0.1. 0: it shows none. Needs the extra "
        "sharegroup[web].",
        why="Kafka's brokers have no page.",
    ),
    ConfigKey(
        name="share.coordinator.web.public.url",
        default="",
        ours=True,
        doc="The page's address in browsers behind an ingress (--public-url).",
        why="Kafka's brokers have no page.",
    ),
    ConfigKey(
        name=SOURCE_KEY,
        default=EVERYTHING,
        takes="an RE2 pattern of the whole name, as orders|payments",
        is_valid=_is_pattern_of_topics,
        ours=True,
        doc="The topics that groups may read. Another topic is refused at the join, left out of a subscription by "
        "pattern, and not copied to a dead letter topic.",
        why="Kafka's brokers check the member's own ACLs.",
    ),
    ConfigKey(
        name=DEAD_LETTER_KEY,
        default=EVERYTHING,
        takes="an RE2 pattern of the whole name, as orders|payments",
        is_valid=_is_pattern_of_topics,
        ours=True,
        doc="The topics that groups may have as dead letter topic. Another topic is refused; if a group's stored "
        "config names another topic, its dead letters wait.",
        why="The coordinator is a client of the brokers, which see its principal alone.",
    ),
    ConfigKey(
        name="group.share.max.size",
        default=1_000,
        between=(1, 100_000),
        kip="KIP-932",
        doc="How many members a group can have.",
        why="Kafka: 200, at most 1,000.",
    ),
    ConfigKey(
        name="group.share.max.groups",
        default=10_000,
        between=(1, 1_000_000),
        kip="KIP-932",
        doc="How many groups can be created. Existing groups are served.",
        why="Kafka dropped its limit after 4.0.",
    ),
    *_bounds_of_groups(),
    ConfigKey(
        name="queued.max.requests",
        default=500,
        between=(1, 100_000),
        doc="How many requests are processed at once; further ones are refused (CoordinatorOverloaded), and clients "
        "retry. Requests of other hosts are counted separately: up to half as many of members, and of administrators.",
        why="Kafka stops reading from the network instead.",
    ),
    ConfigKey(
        name="socket.request.max.bytes",
        default=100 * _MIB,
        between=(64 * 1024, 1024 * _MIB),
        doc="The largest request.",
    ),
    ConfigKey(
        name="max.connections",
        default=5_000,
        between=(1, 1_000_000),
        doc="How many connections there can be. Above this number, connections without an authenticated call are "
        "closed.",
        why="Kafka sets no limit.",
    ),
    ConfigKey(
        name="share.coordinator.authentication.timeout.ms",
        default=10_000,
        between=(100, 600_000),
        ours=True,
        doc="A connection that has not sent the token within this time is closed.",
        why="Kafka closes connections that are idle for connections.max.idle.ms (10 min), authenticated or not.",
    ),
)

SERVER_KEYS: dict[str, ConfigKey] = {key.name: key for key in _SERVER_ROWS}
