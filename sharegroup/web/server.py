"""Serves the page with uvicorn: its address, its certificate, its limits.

Rule: without TLS only this host can connect. A client that is slow, or opens many connections, does not slow others
down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.protocol.addresses import is_loopback, show_address
from coordinator.protocol.repeated_lines import LogOnce
from sharegroup.web.errors import WebNotAvailable, WebTlsRequired

MOST_CONNECTIONS, MOST_ACCEPTED = 256, 320
"""Up to MOST_CONNECTIONS connections use HTTP; a further one closes an open one, first the oldest that waits for its
client. MOST_ACCEPTED includes those in a TLS handshake; a further one ends the oldest handshake of the address that has
the most."""
HEADERS_S, HANDSHAKE_S, WRITE_S = 10.0, 5.0, 15.0
"""The headers of a request must arrive within HEADERS_S seconds, and a TLS handshake must end within HANDSHAKE_S. A
connection is aborted if its client reads nothing of an answer for one to two times WRITE_S."""
MOST_HEADER_BYTES = 16_384
BACKLOG = 64


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the page listens. ``certificate``, ``key``: files in PEM; empty: no TLS. ``port`` 0: any free one."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""

    def check(self) -> None:
        """Check that other hosts can reach the page only with TLS.

        Raises:
            WebTlsRequired: other hosts could reach the page without TLS.
            WebNotAvailable: the certificate or its key is missing, or can't be used."""
        if bool(self.certificate) != bool(self.key):
            raise self.unavailable("TLS needs --tls-certificate and --tls-key")
        if not self.certificate and not is_loopback(self.host):
            raise WebTlsRequired(listener=show_address(self.host, self.port))
        if self.certificate:
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key, lambda: b"")
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
                raise self.unavailable(f"certificate and key can't be used: {reason}") from None

    def unavailable(self, reason: str) -> WebNotAvailable:
        return WebNotAvailable(listener=show_address(self.host, self.port), reason=reason)


class RateLimit(logging.Filter):
    """Lets each message pass once a minute: a client could fill the log with refused requests. Messages that differ
    only in their arguments count as the same."""

    def __init__(self, once: LogOnce) -> None:
        super().__init__()
        self._once = once

    def filter(self, record: logging.LogRecord) -> bool:
        return self._once.left_out(str(record.msg)) is not None


_uvicorn = logging.getLogger("uvicorn.error")
_uvicorn.addFilter(RateLimit(LogOnce(_uvicorn)))


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with time limits for the headers of each request, and for the client to read each answer. A connection
    without a request is closed, and one whose client does not read is aborted. ``listening``: the socket that accepted
    it."""

    _waits: asyncio.TimerHandle | None = None
    _looks: asyncio.TimerHandle | None = None
    _was_stuck = False
    _made_s = 0.0

    def __init__(self, *given: Any, listening: _Listening, **named: Any) -> None:
        super().__init__(*given, **named)
        self._listening = listening

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request. If there are too many connections, close the oldest that waits for its client."""
        super().connection_made(transport)
        self._listening.handshake_is_over(transport.get_extra_info("socket").fileno())
        self._made_s = self.loop.time()
        self._wait()
        self._looks = self.loop.call_later(WRITE_S, self._look)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """An incomplete request has HEADERS_S from its first byte on."""
        super().data_received(data)
        if self._is_between() and self._waits is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waits, self._looks):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._was_stuck = False
        super().resume_writing()

    def _make_room(self) -> None:
        others = [each for each in self.connections if isinstance(each, PatientProtocol) and each is not self]
        oldest = min(
            others, key=lambda each: (not each._is_between(), not each._waits_for_client(), each._made_s), default=self
        )
        self.connections.discard(oldest)
        oldest.transport.abort()

    def _waits_for_client(self) -> bool:
        """Whether nothing happens until the client sends or reads."""
        return self._is_between() or self.flow.write_paused or self.cycle.more_body

    def _look(self) -> None:
        """Abort the connection if its client has read nothing since the last check. If nothing aborted it, the pending
        answer, and a close that waits for it, would stay for ever."""
        is_stuck = self.flow.write_paused or self.transport.is_closing()
        if is_stuck and self._was_stuck:
            self.transport.abort()
            return
        self._was_stuck = is_stuck
        self._looks = self.loop.call_later(WRITE_S, self._look)

    def _is_between(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._waits = self.loop.call_later(HEADERS_S, self._waited)

    def _waited(self) -> None:
        self._waits = None
        if self._is_between() and not self.transport.is_closing():
            self.transport.close()


class Server:
    """The server of an application, in a thread of its own. It listens from its construction on, which raises as
    Address.check, and WebNotAvailable if the address can't be used."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        address.check()
        self._socket = _listening(address)
        self.port: int = self._socket.getsockname()[1]
        scheme = "https" if address.certificate else "http"
        self.url = f"{scheme}://{show_address(address.host, self.port)}/"
        config = uvicorn.Config(
            app,
            http=cast(Any, partial(PatientProtocol, listening=self._socket)),
            ws="none",
            lifespan="off",
            loop="asyncio",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS + 1,  # connection_made keeps below it
            backlog=BACKLOG,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            ssl_certfile=address.certificate or None,
            ssl_keyfile=address.key or None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=15)
        self._socket.close()

    def _run(self) -> None:
        loop = _Loop()
        try:
            loop.run_until_complete(self._server.serve(sockets=[self._socket]))
            loop.run_until_complete(_ended())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


async def _ended() -> None:
    """Cancel the loop's other tasks and wait for them, as asyncio.run does at its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers give a TLS handshake HANDSHAKE_S seconds, for which uvicorn has no setting."""

    async def create_server(self, *given: Any, **named: Any) -> Any:
        if named.get("ssl") is not None:
            named["ssl_handshake_timeout"] = HANDSHAKE_S
        return await super().create_server(*given, **named)


class _Listening(socket.socket):
    """A socket that accepts up to MOST_ACCEPTED connections. No protocol knows a connection during its TLS handshake,
    so the socket keeps these connections with their hosts, the oldest first."""

    _accepted: tuple[socket.socket, ...] = ()
    _handshakes: tuple[tuple[socket.socket, str], ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        """Returns a connection and its address. Raises ConnectionAbortedError if there are too many, and all use HTTP;
        asyncio continues then."""
        connection, address = super().accept()
        self._accepted = tuple(each for each in self._accepted if each.fileno() >= 0)
        self._handshakes = tuple(each for each in self._handshakes if each[0].fileno() >= 0)
        if len(self._accepted) >= MOST_ACCEPTED and not self._end_a_handshake():
            connection.close()
            raise ConnectionAbortedError
        self._accepted += (connection,)
        self._handshakes += ((connection, address[0]),)
        return connection, address

    def handshake_is_over(self, descriptor: int) -> None:
        self._handshakes = tuple(each for each in self._handshakes if each[0].fileno() != descriptor)

    def _end_a_handshake(self) -> bool:
        """End the oldest handshake of the host that has the most, so that a host with many silent connections keeps no
        other out. Returns False if there is none."""
        if not self._handshakes:
            return False
        most, _ = Counter(host for _, host in self._handshakes).most_common(1)[0]
        oldest = next(each for each in self._handshakes if each[1] == most)
        self._handshakes = tuple(each for each in self._handshakes if each is not oldest)
        with contextlib.suppress(OSError):  # its client was faster; asyncio closes it
            oldest[0].shutdown(socket.SHUT_RDWR)
        return True


def _listening(address: Address) -> _Listening:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        listening = _Listening(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise address.unavailable(error.strerror or str(error)) from None
    return listening
