"""The client of coordinators: one call for any request, with named errors. After a coordinator crashed, the client
finds or starts another one.

By protocol every request may be repeated: the second answer is the same, or nothing more changes. So the client retries
through an outage of the brokers or of the coordinator. The calling query's own share.broker.outage.timeout.ms says for
how long, whatever query started the coordinator."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TypeAlias, TypeVar

import pyarrow as pa
import tenacity

from coordinator.client.connection import CALL_TIMEOUT_S, Connection, Refused, Unreachable
from coordinator.client.endpoints import Endpoints
from coordinator.client.on_demand import OnDemand, has_coordinator_for, runtime_dir, store_of
from coordinator.config.resolved import CoordinatorConfig
from coordinator.kafka.cluster_metadata import cluster_id
from coordinator.kafka.retries import StopAtDeadline
from coordinator.protocol.errors import (
    BrokerNotReachable,
    BrokerSecurityFailed,
    CoordinatorNotAvailable,
    CoordinatorNotStarted,
    InternalError,
    MembersNotKnown,
    NotCoordinator,
    ShareGroupError,
    StateStoreInUse,
)
from coordinator.protocol.messages import GroupRequest, JoinGroup, Reply, Request
from coordinator.protocol.repeated_lines import Outage
from coordinator.protocol.wire import Endpoint

Answer = TypeVar("Answer")
MayPass: TypeAlias = Callable[[BaseException], bool]

CONNECT_TIMEOUT_S = 15.0
"""The first connection to an endpoint fails after this many seconds, so that a wrong endpoint is found out soon."""
FIRST_CALL_TIMEOUT_S = 60.0
"""A member's join is retried for this many seconds: enough for a coordinator that moves, not for an outage."""
ENDPOINT = "share.coordinator.endpoint"

_reached: set[str] = set()
"""The brokers, as options name them, that have answered here. If they are unreachable later, their address is right."""

_log = logging.getLogger(__name__)


Directory: TypeAlias = OnDemand | Endpoints
"""Finds the coordinator of a group."""


class CoordinatorClient:
    """Calls the coordinators of groups. Thread-safe; :meth:`connect` creates it."""

    def __init__(self, directory: Directory, *, retry_timeout_s: float) -> None:
        """Connects nowhere yet. ``retry_timeout_s``: a call is retried through an outage for this many seconds."""
        self._directory = directory
        self._retry_timeout_s = retry_timeout_s
        self._outage = _outage(str(getattr(directory, "where", directory)), retry_timeout_s)
        self._connecting = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._going_back: set[str] = set()
        self._is_closed = False
        self._retries_end_s = inf

    @classmethod
    def connect(
        cls,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str] | None = None,
        state_store: str | None = None,
        endpoint: str | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        retry_timeout_s: float | None = None,
        in_batch: bool = False,
    ) -> CoordinatorClient:
        """A client, connected. With ``endpoint``: to the standalone coordinators there; ``configs`` may name the files
        of their token and certificates. Without: to the coordinator on demand of this cluster and state store, which is
        started if none runs; ``configs`` are then that coordinator's. ``state_store``, ``endpoint`` and
        ``retry_timeout_s`` None: as the configs say. ``in_batch``: the query's source has reached its cluster,
        so an outage is waited for. That holds only if this process has reached these brokers, or a coordinator of this
        host was started with them. Otherwise unreachable brokers are an error within seconds.

        Raises:
            UnsafeDirectory: SHAREGROUP_RUNTIME_DIR can't be used.
            BrokerNotReachable: the brokers are away.
            ShareGroupError: no coordinator was found or started; the subclass says how."""
        may_pass = _may_pass if in_batch else _may_pass_soon
        config = CoordinatorConfig.parse(configs)
        if retry_timeout_s is None:
            retry_timeout_s = config.share_broker_outage_timeout_ms / 1000
        if endpoint := endpoint or config.share_coordinator_endpoint:
            directory: Directory = Endpoints.of({**(configs or {}), ENDPOINT: endpoint})
            client = cls(directory, retry_timeout_s=retry_timeout_s)
            patience_s = retry_timeout_s if in_batch else min(retry_timeout_s, CONNECT_TIMEOUT_S)
            client._retried(patience_s, may_pass, "", client._connected)
            return client
        runtime_dir()  # an unusable directory is an error before the brokers are waited for
        outage = _outage(bootstrap_servers, retry_timeout_s)
        if in_batch and bootstrap_servers not in _reached and not has_coordinator_for(bootstrap_servers):
            may_pass = _may_pass_soon
        attempt = partial(cluster_id, bootstrap_servers, kafka_config or {})
        found = _retry_through_outage(outage, retry_timeout_s, may_pass, "", attempt)
        _reached.add(bootstrap_servers)
        directory = OnDemand(
            bootstrap_servers=bootstrap_servers,
            # Not copied: the caller may set credentials in it later.
            kafka_config={} if kafka_config is None else kafka_config,
            cluster_id=found,
            state_store=store_of(state_store or config.share_state_store, found),
            configs=dict(configs or {}),
        )
        client = cls(directory, retry_timeout_s=retry_timeout_s)
        if in_batch:
            client._retried(retry_timeout_s, _may_pass, "", client._connected)
        else:
            client._connected()
        return client

    def __repr__(self) -> str:
        return f"<CoordinatorClient {self._directory.where}>"

    @property
    def on_demand(self) -> OnDemand | None:
        """Where the coordinator on demand of each host is found; None for standalone coordinators."""
        return self._directory if isinstance(self._directory, OnDemand) else None

    def endpoint_of(self, group_id: str) -> Endpoint:
        """The endpoint of the coordinator that serves the group. Raises as :meth:`ask`."""
        return self._retried(self._retry_timeout_s, _may_pass, group_id, lambda: self._connected(group_id)).endpoint

    def coordinator_of(self, group_id: str) -> str:
        """The group's coordinator in words, for the log: its process or address, and its log if that is known."""
        try:
            return self._directory.named(self._connected(group_id))
        except (Unreachable, ShareGroupError) as error:
            return f"not known: {error}"

    def call(self, request: GroupRequest[Reply], *, answer_timeout_s: float = CALL_TIMEOUT_S) -> Reply:
        """The reply to the request, which is retried while brokers or coordinator are away. A new member's join is the
        first request of a query, and is retried for a shorter time. ``answer_timeout_s``: seconds without an answer
        after which the request is sent again.

        Raises:
            OutageTooLong, CoordinatorUnreachable: the retry timeout is over.
            BrokerNotReachable: the brokers are away at a new member's join.
            ShareGroupError: the coordinator refused the request."""
        is_first = isinstance(request, JoinGroup) and request.member_epoch is None
        timeout_s = min(self._retry_timeout_s, FIRST_CALL_TIMEOUT_S) if is_first else self._retry_timeout_s
        may_pass = _may_pass_soon if is_first else _may_pass
        group_id = request.group_id
        return self._asked(timeout_s, may_pass, request, group_id, None, answer_timeout_s)

    def ask(
        self,
        request: Request[Reply],
        group_id: str = "",
        *,
        once: bool = False,
        answer_timeout_s: float = CALL_TIMEOUT_S,
    ) -> Reply:
        """The reply to a person's request, by the coordinator of the group; without a group, by any coordinator. An
        unreachable coordinator is an error within seconds. ``once``: the request is not retried. ``answer_timeout_s``
        as in ``call``. Raises as ``call``."""
        timeout_s = 0.0 if once else self._retry_timeout_s
        return self._asked(timeout_s, _may_pass_soon, request, group_id, None, answer_timeout_s)

    def ask_connected(
        self, request: Request[Reply], answer_timeout_s: float = CALL_TIMEOUT_S, group_id: str = ""
    ) -> Reply | None:
        """Returns the reply over the connection that is open, to the coordinator of the group if there are several;
        None if there is none, or no reply came. Starts and searches nothing."""
        until_s = time.monotonic() + answer_timeout_s
        if not self._connecting.acquire(timeout=answer_timeout_s):  # another thread connects anew
            return None
        try:
            connection = self._connections.get(group_id if self._directory.are_several else "")
        finally:
            self._connecting.release()
        if connection is None:
            return None
        try:
            return connection.call(request, max(0.0, until_s - time.monotonic()))
        except Unreachable:
            self._forget(connection)
        except ShareGroupError:
            pass
        return None

    def call_with_rows(self, request: GroupRequest[Reply], rows: pa.Table) -> Reply:
        """As ``call``, for a request whose records come as Arrow rows beside it."""
        group_id = request.group_id
        return self._asked(self._retry_timeout_s, _may_pass, request, group_id, rows, CALL_TIMEOUT_S)

    def end_retries(self, in_s: float) -> None:
        """Retry no call that fails later than ``in_s`` seconds from now."""
        self._retries_end_s = time.monotonic() + in_s

    def close(self) -> None:
        """Closes the connections; a coordinator on demand leaves by itself. A call that still runs in another thread is
        not retried: a retry could start a coordinator."""
        with self._connecting:
            self._is_closed = True
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def _asked(
        self,
        timeout_s: float,
        may_pass: MayPass,
        request: Request[Reply],
        group_id: str,
        rows: pa.Table | None,
        answer_timeout_s: float,
    ) -> Reply:
        # By this id of all tries an owner on another host knows a request that it has answered.
        attempt = partial(self._ask_once, request, group_id, rows, answer_timeout_s, uuid.uuid4().hex)
        return self._retried(timeout_s, may_pass, group_id, attempt, type(request).__name__)

    def _retried(
        self, timeout_s: float, may_pass: MayPass, group_id: str, attempt: Callable[[], Answer], kind: str = ""
    ) -> Answer:
        def may_be_retried(error: BaseException) -> bool:
            return not self._is_closed and time.monotonic() < self._retries_end_s and may_pass(error)

        try:
            return _retry_through_outage(self._outage, timeout_s, may_be_retried, kind, attempt)
        except Unreachable as error:
            raise self._directory.gone(group_id, str(error)) from error
        except (CoordinatorNotAvailable, BrokerNotReachable) as error:
            is_first = timeout_s < self._retry_timeout_s  # the end of a first call's shorter time is no outage
            if is_first or not may_be_retried(error):
                raise self._directory.naming_log(error) from error
            raise self._directory.gave_up(group_id, int(timeout_s * 1000), error) from error
        except (InternalError, StateStoreInUse) as error:
            raise self._directory.naming_log(error) from error

    def _ask_once(
        self, request: Request[Reply], group_id: str, rows: pa.Table | None, timeout_s: float, request_id: str
    ) -> Reply:
        connection = self._connected(group_id)
        try:
            if rows is None:
                return connection.call(request, timeout_s, request_id)
            return connection.call_with_rows(request, rows, timeout_s, request_id)
        except (Unreachable, NotCoordinator):
            self._forget(connection)
            raise
        except BrokerSecurityFailed as error:
            if error.on_host:  # the brokers refuse the owner's credentials, on another host
                raise
            self._directory.renew(connection, error)
            self._forget(connection)
            raise Unreachable("it was asked to leave, because the brokers refuse its credentials") from error
        except (CoordinatorNotAvailable, BrokerNotReachable):
            if self._directory.are_several:  # perhaps only this coordinator can't reach the brokers
                self._directory.turn_from(connection)
                self._forget(connection)
            raise

    def _connected(self, group_id: str = "") -> Connection:
        key = group_id if self._directory.are_several else ""
        with self._connecting:
            if self._is_closed:
                raise CoordinatorNotAvailable(group_id=group_id, reason="the client is closed")
            if key not in self._connections:
                self._connections[key] = self._directory.connect(key)
            connection = self._connections[key]
            may_go_back = self._directory.are_several and self._directory.may_go_back(key, connection)
            if may_go_back and key not in self._going_back:
                self._going_back.add(key)
                threading.Thread(target=self._go_back, args=(key, connection), daemon=True).start()
            return connection

    def _go_back(self, key: str, connection: Connection) -> None:
        """Connect to an earlier coordinator, if that answers again. Calls go on meanwhile."""
        try:
            earlier = self._directory.connect(key)
            with self._connecting:
                if self._connections.get(key) is connection:
                    self._connections[key] = earlier
        except (Unreachable, ShareGroupError):
            pass  # keep the connection
        finally:
            self._going_back.discard(key)

    def _forget(self, connection: Connection) -> None:
        with self._connecting:
            self._connections = {key: kept for key, kept in self._connections.items() if kept is not connection}
        # Not closed: another thread may be in a call on it. Garbage collection closes it.


def _outage(where: str, timeout_s: float) -> Outage:
    hint = f", retrying for {timeout_s:.0f} s (share.broker.outage.timeout.ms)"
    return Outage(_log, f"sharegroup, {where}", hint)


def _retry_through_outage(
    outage: Outage, timeout_s: float, may_pass: MayPass, kind: str, attempt: Callable[[], Answer]
) -> Answer:
    """Returns the result of the attempt. While its error may pass, make it again, for up to ``timeout_s``; then raise
    the last error. ``kind``: as in Outage."""
    began_s = time.monotonic()

    def failed(state: tenacity.RetryCallState) -> None:
        outage.failed(kind, began_s, state.outcome and state.outcome.exception())

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(may_pass),
        stop=StopAtDeadline(timeout_s),
        wait=tenacity.wait_random_exponential(multiplier=0.05, max=2.0),
        before_sleep=failed,
        reraise=True,
    )
    answer = retrying(attempt)
    outage.answered(kind)
    return answer


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ShareGroupError):
        # An owner that is leaving releases the store only after it has answered its last request.
        return error.retriable or isinstance(error, (CoordinatorNotStarted, StateStoreInUse))
    return isinstance(error, Unreachable)


def _may_pass_soon(error: BaseException) -> bool:
    """Whether a retry may help before any call has worked. It does not if a broker can't be reached (the address may be
    wrong), or if a coordinator's host is unknown or its certificate not trusted. Nor after MembersNotKnown: a person
    should learn at once how long to wait."""
    return _may_pass(error) and not isinstance(error, (BrokerNotReachable, MembersNotKnown, Refused))
