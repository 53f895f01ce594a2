"""Serves the page with uvicorn: its address, its certificate, its limits.

Rule: without TLS only this host can connect. A client that is slow, or opens many connections, takes none of the
others' time.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.protocol.addresses import is_loopback, show_address
from sharegroup.web.errors import WebNotAvailable, WebTlsRequired

MOST_CONNECTIONS = 256
"""Connections at once: above it, a request is answered with 503."""
HEADERS_S = 10.0
"""Seconds in which the headers of a request have to arrive."""
MOST_HEADER_BYTES = 16_384
BACKLOG = 64
LOG_EVERY_S = 60.0
"""Seconds after which uvicorn's log says the same again: a client could fill the log with refused requests."""
MOST_TEXTS = 1_000
"""Texts that are remembered for that."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where the page listens. ``certificate`` and ``key``: files in PEM; empty: no TLS. ``port`` 0: any free one."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""

    def check(self) -> None:
        """Check that other hosts reach the page with TLS only.

        Raises:
            WebTlsRequired: they could reach it without.
            WebNotAvailable: the certificate or its key is missing, or can't be used.
        """
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
        """The error for a page that can't be shown here."""
        return WebNotAvailable(listener=show_address(self.host, self.port), reason=reason)


class RateLimit(logging.Filter):
    """Lets each text pass once in LOG_EVERY_S; texts with values in them are alike if the texts without are."""

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the text was not said for a while."""
        now_s, text = time.monotonic(), str(record.msg)
        is_due = now_s - self._said_s.get(text, -LOG_EVERY_S) >= LOG_EVERY_S
        if is_due and (text in self._said_s or len(self._said_s) < MOST_TEXTS):
            self._said_s[text] = now_s
        return is_due


logging.getLogger("uvicorn.error").addFilter(RateLimit())


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a time for the headers of each request: a connection that sends none ends."""

    _waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what came; a request that is not whole has HEADERS_S from its first byte on."""
        super().data_received(data)
        if self._is_between() and self._waits is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a request."""
        if self._waits is not None:
            self._waits.cancel()
        super().connection_lost(exc)

    def _is_between(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._waits = self.loop.call_later(HEADERS_S, self._waited)

    def _waited(self) -> None:
        self._waits = None
        if self._is_between() and not self.transport.is_closing():
            self.transport.close()


class Server:
    """The server of an application, in a thread of its own. It listens from the construction on."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        """Listen at the address.

        Raises:
            WebTlsRequired, WebNotAvailable: as they say.
        """
        address.check()
        self._socket = _listening(address)
        self.port: int = self._socket.getsockname()[1]
        scheme = "https" if address.certificate else "http"
        self.url = f"{scheme}://{show_address(address.host, self.port)}/"
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            loop="asyncio",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            backlog=BACKLOG,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            ssl_certfile=address.certificate or None,
            ssl_keyfile=address.key or None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def __repr__(self) -> str:
        return f"<Server {self.url}>"

    def start(self) -> None:
        """Serve in a thread until :meth:`close`."""
        self._thread.start()

    def close(self) -> None:
        """End the connections, and serve no more."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=15)
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


def _listening(address: Address) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
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
