"""The coordinator's client: one call for any request; named errors; a coordinator that died is found or started again.

Every request may be repeated, by protocol: asked twice, it answers the same or changes nothing more.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa
import tenacity

from coordinator.client.cluster_metadata import cluster_id
from coordinator.client.connection import Connection, Unreachable
from coordinator.client.endpoints import Endpoints
from coordinator.client.on_demand import OnDemand, store_of
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    CoordinatorNotStarted,
    NotCoordinator,
    ShareGroupError,
    StateStoreInUse,
)

RETRY_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 15.0
"""For the first connection to an endpoint: what is wrong with it is told soon."""
ENDPOINT = "share.coordinator.endpoint"


class Directory(Protocol):
    """Knows where the coordinator of a group is: OnDemand, Endpoints."""

    @property
    def by_group(self) -> bool:
        """Whether groups can have different coordinators."""

    @property
    def where(self) -> str:
        """For people."""

    def connect(self, group_id: str = "") -> Connection:
        """A new connection to the group's coordinator, or to any. Unreachable, or a ShareGroupError."""

    def gone(self, group_id: str, reason: str) -> ShareGroupError:
        """What is said of a coordinator that did not answer for the whole time of trying."""


class CoordinatorClient:
    """Thread-safe; made by :meth:`connect`."""

    def __init__(self, directory: Directory, *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> None:
        self._directory = directory
        self._retry_timeout_s = retry_timeout_s
        self._connecting = threading.Lock()
        self._connections: dict[str, Connection] = {}

    @classmethod
    def connect(
        cls,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str] | None = None,
        state_store: str = "kafka",
        endpoint: str | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> CoordinatorClient:
        """With ``endpoint``: to the standalone coordinators there; ``configs`` may say where their token and their
        certificates are. Without: to the coordinator of this cluster and state store
        (share.state.store), which is started if need be; ``configs`` are then its own."""
        if endpoint:
            directory: Directory = Endpoints.of({**(configs or {}), ENDPOINT: endpoint})
            client = cls(directory, retry_timeout_s=retry_timeout_s)
            client._retried(min(retry_timeout_s, CONNECT_TIMEOUT_S), "", client._connected)
            return client
        found = cluster_id(bootstrap_servers, kafka_config or {})
        directory = OnDemand(
            bootstrap_servers=bootstrap_servers,
            kafka_config=dict(kafka_config or {}),
            cluster_id=found,
            state_store=store_of(state_store, found),
            configs=dict(configs or {}),
        )
        client = cls(directory, retry_timeout_s=retry_timeout_s)
        client._connected()
        return client

    def __repr__(self) -> str:
        return f"<CoordinatorClient {self._directory.where}>"

    @property
    def endpoint_pid(self) -> int:
        """The process that answers; of several that share the groups, one."""
        return self._connected().endpoint.pid

    def call(self, request: Any) -> Any:
        """The reply, or a ShareGroupError. CoordinatorNotAvailable or CoordinatorUnreachable if none could be had for
        the retry timeout."""
        return self._retried(self._retry_timeout_s, getattr(request, "group_id", ""), self._once, request)

    def call_with_rows(self, request: Any, rows: pa.Table) -> Any:
        """As ``call``, for a request whose records come as Arrow rows beside it."""
        return self._retried(self._retry_timeout_s, request.group_id, self._once, request, rows)

    def close(self) -> None:
        """Close the connections; a coordinator on demand leaves by itself."""
        with self._connecting:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    # --- inside

    def _retried(self, timeout_s: float, group_id: str, function: Any, *arguments: Any) -> Any:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_delay(timeout_s),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
            reraise=True,
        )
        try:
            return retrying(function, *arguments)
        except Unreachable as error:
            raise self._directory.gone(group_id, str(error)) from error

    def _once(self, request: Any, rows: pa.Table | None = None) -> Any:
        connection = self._connected(getattr(request, "group_id", ""))
        try:
            return connection.call(request) if rows is None else connection.call_with_rows(request, rows)
        except (Unreachable, NotCoordinator):
            self._forget(connection)
            raise
        except CoordinatorNotAvailable:
            if self._directory.by_group:  # perhaps it lost touch with its fleet, and another serves the group now
                self._forget(connection)
            raise

    def _connected(self, group_id: str = "") -> Connection:
        key = group_id if self._directory.by_group else ""
        with self._connecting:
            if key not in self._connections:
                self._connections[key] = self._directory.connect(key)
            return self._connections[key]

    def _forget(self, connection: Connection) -> None:
        with self._connecting:
            self._connections = {key: kept for key, kept in self._connections.items() if kept is not connection}
        # Not closed: another thread may be in a call on it; it goes when the last one has dropped it.


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ShareGroupError):
        # An owner that is leaving lets the store go only when it has answered what runs.
        return error.retriable or isinstance(error, (CoordinatorNotStarted, StateStoreInUse))
    return isinstance(error, Unreachable)
