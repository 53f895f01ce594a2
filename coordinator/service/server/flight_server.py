"""Arrow Flight in front of the service: one action a request, its token checked before anything else.

Rule: no body, however malformed, and no error ends the service; every error crosses by its name. Acknowledgements and
sinks' outcomes come with Arrow rows in the action's body: a stream of Flight would be decoded, and decompressed, before
this code could look at it (37 kB took 1.2 GB). A call is checked in this order: its token, its protocol version, its
right, the size of its body, its JSON, its rows, the allow lists of its token. gRPC itself receives and decompresses a
message before all of these: listen only where clients are trusted that far.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from coordinator.config.resolved import ServerConfig
from coordinator.core.commands import StageRuns
from coordinator.protocol.addresses import show_address
from coordinator.protocol.admin_messages import Action, ListGroups
from coordinator.protocol.errors import (
    CoordinatorOverloaded,
    CoordinatorVersionMismatch,
    GroupNotAllowed,
    InternalError,
    InvalidRequest,
    ListenerNotAvailable,
    NotAllowed,
    NotAuthorized,
    RequestTooLarge,
    ShareGroupError,
    TopicNotAllowed,
)
from coordinator.protocol.format_versions import PROTOCOL, PROTOCOL_HEADER, REQUEST_ID_HEADER
from coordinator.protocol.messages import Acknowledge, Done, Heartbeat, Message, Request, StageOutcomes
from coordinator.protocol.request_rows import read_rows, split_body
from coordinator.protocol.rights import Caller, Right, Tokens
from coordinator.protocol.wire import (
    WITH_ROWS,
    Health,
    Healthy,
    StepDown,
    TokenHolder,
    WhoAmI,
    decode_request,
    encode,
    encode_error,
    request_name,
)
from coordinator.service.process.rate_limited_log import RateLimitedLog
from coordinator.service.server.allow_lists import check_allowed, limited, shown_to
from coordinator.service.server.audit import Refusals, begun, ended
from coordinator.service.server.listener import LOOPBACK, Listener

__all__ = ["LOOPBACK", "FlightServer"]

ON_LOOPBACK = Listener()
_TOKEN = "token"  # noqa: S105 - the name of the middleware that knows the caller
_PROTOCOL, _REQUEST_ID = "protocol", "request id"
"""The names of the middlewares for the client's protocol version, and for the id of its request."""

_log = logging.getLogger(__name__)


class _Holder(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The holder of a call's token."""

    def __init__(self, caller: Caller) -> None:
        super().__init__()
        self.caller = caller


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Checks the token of every call, in constant time."""

    def __init__(self, tokens: Tokens, rate_limited: RateLimitedLog) -> None:
        super().__init__()
        self._tokens = tokens
        self._rate_limited = rate_limited

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> _Holder:
        given = (headers.get("authorization") or [""])[0]
        given = given.encode() if isinstance(given, str) else bytes(given)
        caller = self._tokens.caller(given)
        if caller is None:
            self._rate_limited.warn("token", f"refused: a call with {'a wrong' if given else 'no'} token")
            raise flight.FlightUnauthenticatedError(NotAuthorized.__name__)
        return _Holder(caller)


class _Header(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """A header of a call as text; empty if the client sent none."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class _HeaderReader(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads a header of every call."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> _Header:
        given = (headers.get(self._name) or [""])[0]
        return _Header(given if isinstance(given, str) else bytes(given).decode("ascii", "replace"))


class Call(NamedTuple):
    """A request's origin: the caller who sends it, where it calls from, the client's protocol version, the request's id
    (empty: the client gave none), the host that passed the request on (None: it is this one's), and whether the client
    has ceased to wait."""

    caller: Caller
    peer: str
    protocol: str
    request_id: str = ""
    from_host: str | None = None
    is_gone: Callable[[], bool] = lambda: False


class ByOwner(Protocol):
    """Returns the answer of the owner of a group, which may be on another host; ``here`` answers as this process."""

    def __call__(self, name: str, body: pa.Buffer, head: Head, call: Call, here: Callable[[], bytes]) -> bytes:
        """The answer as bytes."""


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves ``handle`` from its construction until ``shutdown``.

    ``tokens``: those that callers may show; a text is one token with all rights. ``is_ready`` is the answer to
    Health; requests are handled either way. ``greet`` is called with each peer that has shown the token. ``step_down``
    is called with the reason why this coordinator shall leave; None: it refuses to. All of them are called from the
    server's threads, and from the construction on.
    """

    def __init__(
        self,
        handle: Callable[[Request[Any]], Message],
        tokens: str | Tokens,
        *,
        version: str = "",
        listener: Listener = ON_LOOPBACK,
        limits: ServerConfig | None = None,
        rate_limited: RateLimitedLog | None = None,
        is_ready: Callable[[], bool] = lambda: True,
        greet: Callable[[str], None] = lambda peer: None,
        step_down: Callable[[str], None] | None = None,
        by_owner: ByOwner | None = None,
    ) -> None:
        """``by_owner`` None: this process owns every group that it is asked for."""
        limits = limits or ServerConfig.parse()
        self._handle = handle
        self._version = version
        self._listener = listener
        self._max_requests = limits.queued_max_requests
        self._max_bytes = limits.socket_request_max_bytes
        self._rate_limited = rate_limited or RateLimitedLog(_log)
        self._refusals = Refusals()
        self._counting = threading.Lock()
        self._running: Counter[frozenset[Right] | None] = Counter()
        """How many requests of this host (None) are handled, and of other hosts by right."""
        self._is_ready, self._greet, self._step_down = is_ready, greet, step_down
        self._by_owner = by_owner
        self.last_request_s = time.monotonic()
        pair = [(listener.certificate, listener.key)] if listener.certificate else []
        known = tokens if isinstance(tokens, Tokens) else Tokens(((tokens, Caller()),))
        self._open_keys = known.open_keys(limits.allowed_topics)
        middleware = {_TOKEN: _TokenCheck(known, self._rate_limited), _PROTOCOL: _HeaderReader(PROTOCOL_HEADER)}
        middleware[_REQUEST_ID] = _HeaderReader(REQUEST_ID_HEADER)
        try:
            super().__init__(listener.location, tls_certificates=pair, middleware=middleware)
        except pa.ArrowException as error:
            where = show_address(listener.host, listener.port)
            raise ListenerNotAvailable(listener=where, reason=f"the server did not start there ({error})") from error

    def __repr__(self) -> str:
        return f"<FlightServer {self.address}>"

    @property
    def address(self) -> str:
        """``host:port`` by which clients reach it."""
        return self._listener.advertised or show_address(self._listener.host, self.port)

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one runs. Health does not count."""
        with self._counting:
            return 0.0 if self._running.total() else time.monotonic() - self.last_request_s

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        self._greet(context.peer())
        call = Call(
            _caller_of(context),
            context.peer(),
            _header_of(context, _PROTOCOL),
            _header_of(context, _REQUEST_ID),
            is_gone=context.is_cancelled,
        )
        return [self.answer(action.type, action.body, call)]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return []

    # --- inside

    def answer(self, name: str, body: pa.Buffer, call: Call) -> bytes:
        """The answer to a request, of this host or of another one: the reply, or an error by its name."""
        shown = request_name(name)
        try:
            self._check_protocol(call.protocol, name)
            self._check_right(call, name)
            self._check_size(shown, body.size)
            head = head_of(name, body) if call.from_host is None else Head()
            if self._by_owner is None or not head.group_id:
                return self._answered_here(name, body, call)
            if call.caller.is_bound:  # an owner on another host does not know the token
                request = _request_of(name, body)
                bound = self._check_allowed(call, request)
                body = body if bound is request else pa.py_buffer(encode(bound))
                if isinstance(request, ListGroups) and not request.group_ids:  # it would name all groups
                    return self._answered_here(name, body, call)
            return self._by_owner(name, body, head, call, lambda: self._answered_here(name, body, call))
        except ShareGroupError as error:
            self._say_refused(error)
            return encode_error(error)
        except Exception as error:  # noqa: BLE001 - our mistake in one request must reach its caller by name
            _log.exception("request failed: %s", shown)
            return encode_error(InternalError(what=shown, reason=type(error).__name__))

    def _answered_here(self, name: str, body: pa.Buffer, call: Call) -> bytes:
        request = _request_of(name, body)
        return encode(self._reply(self._check_allowed(call, request), call))

    def _check_protocol(self, protocol: str, name: str) -> None:
        """Check the client's version. Another version may send Health alone, whose answer names this one.

        Raises:
            CoordinatorVersionMismatch: the client speaks another version of the protocol, or names none.
        """
        if protocol != str(PROTOCOL) and name != Health.__name__:
            theirs = f"{PROTOCOL} (sharegroup {self._version})"
            raise CoordinatorVersionMismatch(pid=os.getpid(), theirs=theirs, ours=protocol[:20] or "of no version")

    def _check_right(self, call: Call, name: str) -> None:
        """Check the caller's right to send the request.

        Raises:
            NotAllowed: the caller's token lacks it.
        """
        with self._telling(call, name):
            call.caller.check(name)

    def _check_allowed(self, call: Call, request: Request[Any]) -> Request[Any]:
        """Check that the allow lists of the caller's token have the group and the topics of the request. Returns the
        request with the limits of its dead letter topic.

        Raises:
            GroupNotAllowed, TopicNotAllowed: they do not.
        """
        with self._telling(call, type(request).__name__):
            check_allowed(call.caller, request)
        return limited(call.caller, request)

    @contextlib.contextmanager
    def _telling(self, call: Call, name: str) -> Iterator[None]:
        """A context that logs what the caller's token is refused, in the audit log and the log."""
        try:
            yield
        except (NotAllowed, GroupNotAllowed, TopicNotAllowed) as error:
            self._refusals.log(call.caller, call.peer, name, error)
            self._rate_limited.warn("right", f"refused: {error}")
            raise

    def _reply(self, request: Request[Any], call: Call) -> Message:
        if isinstance(request, Health):
            return Healthy(pid=os.getpid(), protocol=PROTOCOL, version=self._version, ready=self._is_ready())
        if isinstance(request, WhoAmI):
            rights = tuple(sorted(right.value for right in call.caller.rights))
            return TokenHolder(
                name=call.caller.name,
                rights=rights,
                open_keys=self._open_keys,
                groups=call.caller.groups,
                topics=call.caller.topics.source,
                dead_letters=call.caller.topics.dead_letters,
            )
        if isinstance(request, StepDown) and self._step_down is not None and call.from_host is None:
            self._step_down(request.reason)
            return Done()
        if isinstance(request, Action):
            return self._audited(request, call)
        return shown_to(call.caller, self._counted(request, call))

    def _audited(self, request: Action[Any], call: Call) -> Message:
        caller = call.caller
        begun(caller, call.peer, request)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        try:
            by = f"{caller} from {call.peer} at {now}"
            answer = self._counted(msgspec.structs.replace(request, by=by, name=caller.name), call)
        except Exception as error:
            ended(caller, call.peer, request, error)
            raise
        ended(caller, call.peer, request, answer)
        return answer

    def _check_size(self, name: str, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            raise RequestTooLarge(name=name, size_bytes=size_bytes, limit_bytes=self._max_bytes)

    def _say_refused(self, error: ShareGroupError) -> None:
        """Log a refusal that points to a fault of a client or an overload of this process."""
        if isinstance(error, (InvalidRequest, RequestTooLarge, CoordinatorOverloaded, CoordinatorVersionMismatch)):
            self._rate_limited.warn(type(error).__name__, f"refused: {type(error).__name__}: {str(error)[:200]}")

    def _counted(self, request: Request[Any], call: Call) -> Message:
        """Handle the request unless too many requests run. A heartbeat is never refused: a full queue must end no
        session. Requests of other hosts count for themselves, up to half as many of each right."""
        of = None if call.from_host is None else call.caller.rights
        limit = self._max_requests if of is None else max(1, self._max_requests // 2)
        with self._counting:
            if self._running[of] >= limit and not isinstance(request, Heartbeat):
                raise CoordinatorOverloaded(limit=limit)
            self._running[of] += 1
        try:
            return self._handle(request)
        finally:
            with self._counting:
                self._running[of] -= 1
                if call.from_host is None:
                    self.last_request_s = time.monotonic()


def _caller_of(context: Any) -> Caller:
    caller: Caller = context.get_middleware(_TOKEN).caller
    return caller


def _header_of(context: Any, name: str) -> str:
    client = context.get_middleware(name)
    return client.text if client is not None else ""


class Head(msgspec.Struct, frozen=True):
    """The fields that are read of a request that is passed on."""

    group_id: str = ""
    wait_ms: int = 0


_head = msgspec.json.Decoder(Head)


def head_of(name: str, body: pa.Buffer) -> Head:
    """The head of a request. Empty for one that concerns no group, or that can't be read: its handler refuses it."""
    if name == StepDown.__name__:
        return Head()
    try:
        return _head.decode(split_body(body)[0] if name in WITH_ROWS else memoryview(body))
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidRequest):
        return Head()


def _request_of(name: str, body: pa.Buffer) -> Request[Any]:
    """Returns the request in the body, with its rows as values.

    Raises:
        InvalidRequest: the name is unknown, or the body can't be decoded.
    """
    if name not in WITH_ROWS:
        return decode_request(name, body.to_pybytes())
    # Imported here: pyarrow.compute costs 60 ms of the process's start.
    from coordinator.protocol import outcome_rows
    from coordinator.service.server import acknowledged_rows

    text, rows = split_body(body)
    request = decode_request(name, text)
    if isinstance(request, StageOutcomes):
        outcomes = outcome_rows.partition_outcomes(read_rows(rows, outcome_rows.SCHEMA))
        return StageRuns(**msgspec.structs.asdict(request), partitions=outcomes)
    acks = acknowledged_rows.partition_acks(read_rows(rows, acknowledged_rows.SCHEMA))
    return Acknowledge(**msgspec.structs.asdict(request), partitions=acks)
