"""The owners of the state partitions, read from Kafka's group: each member's client id contains its endpoint."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.protocol.errors import CoordinatorNotAvailable, GroupsNotListed
from coordinator.protocol.librdkafka import LACKING, new_client

CLIENT_ID_PREFIX = "sharegroup-coordinator@"
OWNER_CACHE_S = 1.0
"""An owner is cached for this many seconds. A process that is not the owner refuses the client, which asks again."""
NO_OWNER_CACHE_S = 0.2
"""A partition without an owner is cached for this many seconds."""


def client_id_of(endpoint: str) -> str:
    """The client id with which a process joins the fleet."""
    return f"{CLIENT_ID_PREFIX}{endpoint}"


def endpoint_of(client_id: str) -> str | None:
    """The endpoint in a client id; None for a member that is no coordinator."""
    return client_id.removeprefix(CLIENT_ID_PREFIX) if client_id.startswith(CLIENT_ID_PREFIX) else None


class Owners:
    """A cache of the partitions' owners. Thread-safe; it makes one request to Kafka at a time."""

    def __init__(self, config: Mapping[str, Any], group_id: str, topic: str, timeout_s: float) -> None:
        self._admin = new_client(AdminClient, config)
        self._addresses = str(config.get("bootstrap.servers", ""))
        self._group_id = group_id
        self._topic = topic
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._endpoints: dict[int, str] = {}
        self._reason = ""
        self._asked_s = float("-inf")

    def find(self, partition: int) -> str:
        """The endpoint of the process that owns the partition.

        Raises:
            CoordinatorNotAvailable: no process owns it now, or Kafka gave no answer.
            GroupsNotListed: the brokers have no such request.
        """
        with self._lock:
            age_s = time.monotonic() - self._asked_s
            if age_s > (OWNER_CACHE_S if partition in self._endpoints else NO_OWNER_CACHE_S):
                self._ask()
            endpoint, reason = self._endpoints.get(partition), self._reason
        if endpoint is None:
            raise CoordinatorNotAvailable(group_id=f"(any of state partition {partition})", reason=reason)
        return endpoint

    def are_known(self) -> bool:
        """Whether Kafka answers now who owns the partitions, if only that nobody does."""
        with self._lock:
            return self._ask()

    def _ask(self) -> bool:
        """Fetches the owners from Kafka. Returns whether it answered."""
        # Not describe_consumer_groups: in librdkafka a connection that breaks during one of the newer calls to a
        # group's coordinator ends the process (its issue 4605).
        try:
            groups = self._admin.list_groups(self._group_id, timeout=self._timeout_s)
            members = [member for group in groups for member in group.members]
            self._endpoints = {p: endpoint for member in members for p, endpoint in self._owned_by(member)}
            states = ", ".join(str(group.state) for group in groups) or "unknown"
            self._reason = f"no process owns it now (Kafka's group {self._group_id} is {states})"
        except (KafkaException, struct.error) as error:
            if isinstance(error, KafkaException) and error.args[0].code() in LACKING:
                raise GroupsNotListed(addresses=self._addresses, reason=error.args[0].str()) from None
            self._endpoints, self._reason = {}, f"Kafka's group {self._group_id} can't be described: {error}"
            return False
        finally:
            self._asked_s = time.monotonic()
        return True

    def _owned_by(self, member: Any) -> Iterator[tuple[int, str]]:
        endpoint = endpoint_of(member.client_id)
        if endpoint is not None and member.assignment:
            for partition in assigned_partitions(member.assignment, self._topic):
                yield partition, endpoint


def assigned_partitions(assignment: bytes, topic: str) -> list[int]:
    """The topic's partitions that a member is assigned, from Kafka's ConsumerProtocolAssignment of any version.

    Raises:
        struct.error: the bytes are no assignment.
    """
    (topics,) = struct.unpack_from(">i", assignment, 2)  # after the version
    at = 6
    partitions: list[int] = []
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", assignment, at)
        name = assignment[at + 2 : at + 2 + length].decode()
        at += 2 + length
        (count,) = struct.unpack_from(">i", assignment, at)
        if name == topic:
            partitions += struct.unpack_from(f">{count}i", assignment, at + 4)
        at += 4 + 4 * count
    return partitions
