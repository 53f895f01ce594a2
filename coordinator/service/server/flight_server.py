"""The server for clients: Arrow Flight, one action for each request. The token is checked before anything else.

gRPC receives and decompresses a message before its token is known, so listen only where clients are trusted that far.
:mod:`coordinator.service.requests` decides what a request may do, and who handles it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from coordinator.protocol.addresses import show_address
from coordinator.protocol.errors import ListenerNotAvailable, NotAuthorized
from coordinator.protocol.format_versions import PROTOCOL_HEADER, REQUEST_ID_HEADER
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.rights import Caller, Tokens
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.requests import Requests
from coordinator.service.server.listener import LOOPBACK, Listener

__all__ = ["LOOPBACK", "FlightServer"]

ON_LOOPBACK = Listener()
_TOKEN = "token"  # noqa: S105 - the name of the middleware that knows the caller
_PROTOCOL, _REQUEST_ID = "protocol", "request id"
"""The names of the middlewares for the client's protocol version, and for the id of its request."""

_log = logging.getLogger(__name__)


class _Found(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """What a middleware has found in the headers of a call: the holder of its token, or the text of a header."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Checks the token of every call, in constant time."""

    def __init__(self, tokens: Tokens, once: LogOnce) -> None:
        super().__init__()
        self._tokens = tokens
        self._once = once

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> _Found:
        given = (headers.get("authorization") or [""])[0]
        given = given.encode() if isinstance(given, str) else bytes(given)
        caller = self._tokens.caller(given)
        if caller is None:
            self._once.warn("token", f"a call with {'a wrong' if given else 'no'} token was refused")
            raise flight.FlightUnauthenticatedError(NotAuthorized.__name__)
        return _Found(caller)


class _HeaderReader(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads a header of every call as text; empty if the client sent none."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> _Found:
        given = (headers.get(self._name) or [""])[0]
        return _Found(given if isinstance(given, str) else bytes(given).decode("ascii", "replace"))


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves ``requests`` from its construction until ``shutdown``.

    ``tokens``: those that callers may show; a text is one token with all rights. ``greet`` is called with each peer
    that has shown one, from the server's threads."""

    def __init__(
        self,
        requests: Requests,
        tokens: str | Tokens,
        *,
        listener: Listener = ON_LOOPBACK,
        once: LogOnce | None = None,
        greet: Callable[[str], None] = lambda peer: None,
    ) -> None:
        self._requests, self._listener, self._greet = requests, listener, greet
        pair = [(listener.certificate, listener.key)] if listener.certificate else []
        known = tokens if isinstance(tokens, Tokens) else Tokens(((tokens, Caller()),))
        check = _TokenCheck(known, once or LogOnce(_log))
        middleware = {_TOKEN: check, _PROTOCOL: _HeaderReader(PROTOCOL_HEADER)}
        middleware[_REQUEST_ID] = _HeaderReader(REQUEST_ID_HEADER)
        try:
            super().__init__(listener.location, tls_certificates=pair, middleware=middleware)
        except pa.ArrowException as error:
            where = show_address(listener.host, listener.port)
            raise ListenerNotAvailable(listener=where, reason=f"the server did not start there ({error})") from error

    @property
    def address(self) -> str:
        return self._listener.advertised or show_address(self._listener.host, self.port)

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        peer = context.peer()
        self._greet(peer)
        caller: Caller = context.get_middleware(_TOKEN).value
        found = (context.get_middleware(name) for name in (_PROTOCOL, _REQUEST_ID))
        protocol, request_id = ("" if header is None else header.value for header in found)
        asker = Asker(caller, peer, protocol, request_id, is_gone=context.is_cancelled)
        return [self._requests.answer(action.type, action.body, asker)]

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return []
