"""A connection to one coordinator: a call is one Flight action, and the coordinator's errors are raised as their
classes.

Rule: :class:`Unreachable` means that the outcome of the call is unknown: the call may have been carried out. Only its
subclasses :class:`Refused` and :class:`TokenRefused` mean that it was not."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pyarrow.flight as flight

from coordinator.client.forks import UsedAfterFork, check_process, closed, opened
from coordinator.protocol.errors import CoordinatorVersionMismatch
from coordinator.protocol.format_versions import PROTOCOL, PROTOCOL_HEADER, REQUEST_ID_HEADER
from coordinator.protocol.messages import AcquireRecords, Message, NextPlan, Reply, Request
from coordinator.protocol.request_rows import body_with_rows
from coordinator.protocol.wire import Endpoint, Health, Healthy, decode_answer, encode

CALL_TIMEOUT_S = 45.0
"""A call waits this many seconds for its answer: longer than a wait for records, and than the load of a large group."""
HEALTH_TIMEOUT_S = 5.0
"""A health check waits this many seconds: it does no work, so a coordinator that does not answer it hangs."""

_WATCHED = (
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 3_000),  # keepalive_timeout_ms has no effect (seen)
    ("grpc.min_reconnect_backoff_ms", 3_000),  # the most time for a new connection
    ("grpc.use_local_subchannel_pool", 1),  # else a new connection waits for the backoff of one that failed before
    ("grpc.enable_http_proxy", 0),  # else https_proxy gets the requests to a coordinator on this host, with the token
    ("grpc.enable_retries", 0),  # gRPC's own retries are invisible here; CoordinatorClient retries
)
_CAUSE = re.compile(r"last error: (.{1,200})")
_UNKNOWN_HOST = re.compile(r"(address lookup failed for \S+: Domain name not found)")
_HANDSHAKE = re.compile(r"ssl_error_ssl|certificate.verify.failed|wrong.version.number", re.IGNORECASE)


class Unreachable(Exception):
    """No answer came: the coordinator crashed, exited or hangs, or another program has its port now."""


class Refused(Unreachable):
    """No coordinator can answer there: the host name is unknown, or the TLS handshake fails. Waiting rarely helps."""


class NoAnswer(Unreachable):
    """No answer came in time: the coordinator is slow, or hangs."""


class TokenRefused(Unreachable):
    """The coordinator does not know the token: it is another coordinator, or the token is wrong."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The settings of TLS. ``roots``: PEM of the trusted certificates, empty for the system's. ``hostname``: the name
    in the coordinator's certificate, empty for the address's own."""

    roots: bytes = field(default=b"", repr=False)
    hostname: str = ""


class Connection:
    """A connection to one coordinator process. Thread-safe. If the host is down or the process is stopped, a call fails
    within about five seconds."""

    def __init__(self, endpoint: Endpoint, tls: Tls | None = None) -> None:
        opened(self)
        self.endpoint = endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        options: dict[str, Any] = {"generic_options": list(_WATCHED)}
        if tls is not None:
            options |= {"tls_root_certs": tls.roots or None, "override_hostname": tls.hostname or None}
        self._client: Any = flight.FlightClient(f"grpc{'+tls' if tls else ''}://{host}:{endpoint.port}", **options)
        self._headers = [
            (b"authorization", f"Bearer {endpoint.token}".encode()),
            (PROTOCOL_HEADER.encode(), str(PROTOCOL).encode()),
        ]

    def call(self, request: Request[Reply], timeout_s: float = CALL_TIMEOUT_S, request_id: str = "") -> Reply:
        """The coordinator's reply to the request. ``request_id``: the same for all tries of a request.

        Raises:
            ShareGroupError: the coordinator's error.
            Unreachable: no answer came."""
        if isinstance(request, NextPlan | AcquireRecords):
            timeout_s += request.wait_ms / 1000
        return cast("Reply", self._ask(request, encode(request), timeout_s, request_id))

    def call_with_rows(
        self, request: Request[Reply], rows: pa.Table, timeout_s: float = CALL_TIMEOUT_S, request_id: str = ""
    ) -> Reply:
        """The reply to a request whose records are sent as Arrow rows after it. Raises as :meth:`call`."""
        return cast("Reply", self._ask(request, body_with_rows(encode(request), rows), timeout_s, request_id))

    def _ask(self, request: Request[Any], body: Any, timeout_s: float, request_id: str) -> Message:
        check_process()
        client = self._client
        if client is None:
            raise Unreachable("the connection is closed")
        action = flight.Action(type(request).__name__, body)
        headers = [*self._headers, (REQUEST_ID_HEADER.encode(), request_id.encode())]
        options = flight.FlightCallOptions(timeout=timeout_s, headers=headers)
        try:
            (answer,) = client.do_action(action, options)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreachable(error) from error
        return decode_answer(answer.body.to_pybytes())

    def check_health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> Healthy:
        """The answer of the coordinator process behind the connection.

        Raises:
            Unreachable: no answer came.
            CoordinatorVersionMismatch: the coordinator speaks another version of the protocol."""
        healthy = self.call(Health(), timeout_s)
        if healthy.protocol != PROTOCOL:
            raise CoordinatorVersionMismatch(
                pid=healthy.pid, theirs=f"{healthy.protocol} (sharegroup {healthy.version})", ours=PROTOCOL
            )
        return healthy

    def close(self) -> None:
        """Close the connection. In a forked process this does nothing: it is the other process's."""
        with contextlib.suppress(UsedAfterFork):
            check_process()
            client, self._client = self._client, None  # gRPC ends its threads with its last client
            if client is not None:
                client.close()
            closed(self)


def _unreachable(error: Exception) -> Unreachable:
    """The Unreachable for an error of the Flight library, with its cause alone: the whole text is long."""
    name = type(error).__name__
    if isinstance(error, flight.FlightUnauthenticatedError):
        return TokenRefused(name)
    if isinstance(error, flight.FlightTimedOutError):
        return NoAnswer(name)
    if unknown := _UNKNOWN_HOST.search(str(error)):
        return Refused(unknown.group(1))
    cause = _CAUSE.search(str(error))
    if cause and _HANDSHAKE.search(cause.group(1)):
        return Refused(f"{name}: {cause.group(1).strip()}")
    return Unreachable(f"{name}: {cause.group(1).strip()}" if cause else name)
