"""The coordinator's client: one call for any request; named errors; a coordinator that died is found or started again.

Every request may be repeated, by protocol: asked twice, it answers the same or changes nothing more.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import tenacity

from coordinator.client.cluster import cluster_id
from coordinator.client.connection import Connection, Unreachable
from coordinator.client.on_demand import OnDemand, store_of
from coordinator.errors import (
    ConfigNotAvailable,
    CoordinatorNotAvailable,
    CoordinatorNotStarted,
    ShareGroupError,
    StateStoreInUse,
)

RETRY_TIMEOUT_S = 60.0


class CoordinatorClient:
    """Thread-safe; made by :meth:`connect`."""

    def __init__(self, on_demand: OnDemand, *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> None:
        self._on_demand = on_demand
        self._retry_timeout_s = retry_timeout_s
        self._connecting = threading.Lock()
        self._connection: Connection | None = None

    @classmethod
    def connect(
        cls,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str] | None = None,
        state_store: str | None = None,
        endpoint: str | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> CoordinatorClient:
        """To the coordinator of this cluster and state store (None: the cluster's own file in the user's state
        directory), which is started if need be; ``configs`` are then the coordinator's."""
        if endpoint:
            raise ConfigNotAvailable(
                key="share.coordinator.endpoint", value=endpoint, room="standalone coordinators", default='""'
            )
        found = cluster_id(bootstrap_servers, kafka_config or {})
        on_demand = OnDemand(
            bootstrap_servers=bootstrap_servers,
            kafka_config=dict(kafka_config or {}),
            cluster_id=found,
            state_store=store_of(state_store, found),
            configs=dict(configs or {}),
        )
        client = cls(on_demand, retry_timeout_s=retry_timeout_s)
        client._connected()
        return client

    def __repr__(self) -> str:
        return f"<CoordinatorClient {self._on_demand.bootstrap_servers} {self._on_demand.state_store}>"

    @property
    def endpoint_pid(self) -> int:
        """The process that answers."""
        return self._connected().endpoint.pid

    def call(self, request: Any) -> Any:
        """The reply, or a ShareGroupError. CoordinatorNotAvailable if none could be had for the retry timeout."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_delay(self._retry_timeout_s),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
            reraise=True,
        )
        try:
            return retrying(self._once, request)
        except Unreachable as error:
            group_id = getattr(request, "group_id", "")
            raise CoordinatorNotAvailable(group_id=group_id, reason=f"it does not answer ({error})") from error

    def close(self) -> None:
        """Close the connection; the coordinator leaves by itself."""
        with self._connecting:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    # --- inside

    def _once(self, request: Any) -> Any:
        connection = self._connected()
        try:
            return connection.call(request)
        except Unreachable:
            self._forget(connection)
            raise

    def _connected(self) -> Connection:
        with self._connecting:
            if self._connection is None:
                self._connection = self._on_demand.connect()
            return self._connection

    def _forget(self, connection: Connection) -> None:
        with self._connecting:
            if self._connection is connection:
                self._connection = None
        # Not closed: another thread may be in a call on it; it goes when the last one has dropped it.


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ShareGroupError):
        # An owner that is leaving lets the store go only when it has answered what runs.
        return error.retriable or isinstance(error, (CoordinatorNotStarted, StateStoreInUse))
    return isinstance(error, Unreachable)
