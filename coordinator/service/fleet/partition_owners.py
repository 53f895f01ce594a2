"""Who owns which state partition, as Kafka's group says it: each member's client id carries its endpoint."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.librdkafka import new_client

CLIENT_ID_PREFIX = "sharegroup-coordinator@"
KNOWN_FOR_S = 1.0
"""How old an answer may be. Whoever is sent to the wrong process is refused there, and asks again."""
MISSED_FOR_S = 0.2
"""Nor is Kafka asked more often than this for a partition that nobody owns."""


def client_id_of(endpoint: str) -> str:
    """The client id with which a process joins the fleet."""
    return f"{CLIENT_ID_PREFIX}{endpoint}"


def endpoint_of(client_id: str) -> str | None:
    """The endpoint in a client id; None for a member that is none of ours."""
    return client_id.removeprefix(CLIENT_ID_PREFIX) if client_id.startswith(CLIENT_ID_PREFIX) else None


class Owners:
    """Thread-safe; one question to Kafka at a time."""

    def __init__(self, config: Mapping[str, Any], group_id: str, topic: str, timeout_s: float) -> None:
        self._admin = new_client(AdminClient, config)
        self._group_id = group_id
        self._topic = topic
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._known: dict[int, str] = {}
        self._reason = ""
        self._asked_s = float("-inf")

    def find(self, partition: int) -> str:
        """The endpoint of the process that owns the partition; CoordinatorNotAvailable while there is none."""
        with self._lock:
            age_s = time.monotonic() - self._asked_s
            if age_s > (KNOWN_FOR_S if partition in self._known else MISSED_FOR_S):
                self._ask()
            found, reason = self._known.get(partition), self._reason
        if found is None:
            raise CoordinatorNotAvailable(group_id=f"(any of state partition {partition})", reason=reason)
        return found

    def _ask(self) -> None:
        # Not describe_consumer_groups: in librdkafka, a connection that breaks during one of the newer calls to a
        # group's coordinator ends the process (its issue 4605).
        try:
            groups = self._admin.list_groups(self._group_id, timeout=self._timeout_s)
            members = [member for group in groups for member in group.members]
            self._known = {p: endpoint for member in members for p, endpoint in self._owned_by(member)}
            states = ", ".join(str(group.state) for group in groups) or "unknown"
            self._reason = f"no process owns it now (Kafka's group {self._group_id} is {states})"
        except (KafkaException, struct.error) as error:
            self._known, self._reason = {}, f"Kafka's group {self._group_id} can't be described: {error}"
        self._asked_s = time.monotonic()

    def _owned_by(self, member: Any) -> Iterator[tuple[int, str]]:
        endpoint = endpoint_of(member.client_id)
        if endpoint is not None and member.assignment:
            for partition in assigned_partitions(member.assignment, self._topic):
                yield partition, endpoint


def assigned_partitions(assignment: bytes, topic: str) -> list[int]:
    """What of the topic a member is assigned, from Kafka's ConsumerProtocolAssignment, all versions; struct.error if
    it is none."""
    (topics,) = struct.unpack_from(">i", assignment, 2)  # after the version
    at = 6
    found: list[int] = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, at)
        name = assignment[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = struct.unpack_from(">i", assignment, at)
        if name == topic:
            found += struct.unpack_from(f">{count}i", assignment, at + 4)
        at += 4 + 4 * count
    return found
