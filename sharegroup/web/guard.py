"""Checks every request before a page sees it: its sender, its size and its duration. Adds headers to every answer.

Rule: a request that is refused here reaches no coordinator. Rights are checked elsewhere: ``app.py`` says which right
an address needs, and ``site.py`` checks it."""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.protocol.addresses import is_loopback
from sharegroup.web.errors import BadRequest, Forged
from sharegroup.web.public_url import PublicUrl

_log = logging.getLogger(__name__)

MOST_BODY = 65_536
"""A form has up to this many bytes."""
BODY_S, REQUEST_S, STREAM_S = 10.0, 60.0, 600.0
"""A form must arrive within BODY_S seconds, and an answer within REQUEST_S. An event stream ends after STREAM_S."""
NO_PUBLIC_URL = PublicUrl()
EVENTS = "/events"
_STATIC = "/static/"

CSP = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # same-origin, as with no-referrer browsers send Origin: null with a form.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Guard:
    """Middleware around the pages. ``is_tls``: the page uses TLS. Without TLS it answers only requests that name this
    host, or ``public``, its address in browsers: so no other name can resolve to it (DNS rebinding)."""

    def __init__(self, app: ASGIApp, *, is_tls: bool, public: PublicUrl = NO_PUBLIC_URL) -> None:
        self._app, self._is_tls, self._public = app, is_tls, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._public.inside(scope["path"])
        scope = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        answered = False

        async def send_with_headers(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers(scope["path"], message["headers"])]
            await send(message)  # it may wait for a client that does not read, until the server ends the connection
            answered = True

        refusal = self._refusal(scope)
        if refusal is not None:
            status, why = refusal
            await PlainTextResponse(why, status)(scope, receive, send_with_headers)
            return
        with anyio.move_on_after(STREAM_S if scope["path"] == EVENTS else REQUEST_S) as limit:
            await self._app(scope, receive, send_with_headers)
        if limit.cancelled_caught and not answered:
            await PlainTextResponse("The answer took too long.", 504)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns the status and the reason of a refusal; None if the request is not refused."""
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "GET and POST only."
        host = host_of(header(scope, "host"))
        if not self._is_tls and not is_loopback(host) and not (host and host == self._public.host):
            return 421, "This page is at 127.0.0.1 or localhost only."
        length = header(scope, "content-length") or "0"
        if not length.isdecimal() or int(length) > MOST_BODY:
            return 413, f"A form has at most {MOST_BODY} bytes."
        return None

    def _headers(self, path: str, given: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        found = {**_HEADERS}
        if not path.startswith(_STATIC):
            found["cache-control"] = "no-store"
        known = {name.lower() for name, _ in given}
        return [(name.encode(), text.encode()) for name, text in found.items() if name.encode() not in known]


def header(scope: Scope, name: str) -> str:
    """Returns the header of a request; empty if it is missing, or there more than once."""
    found = [value.decode("latin-1") for key, value in scope["headers"] if key == name.encode()]
    return found[0] if len(found) == 1 else ""


def host_of(address: str) -> str:
    """Returns the host in a Host or Origin header, without its port."""
    try:
        return urlsplit(f"//{address}").hostname or ""
    except ValueError:
        return ""


def check_origin(scope: Scope, public: str = "") -> None:
    """Check that a form was sent from this page, by its headers Origin and Sec-Fetch-Site. ``public``: the origin at
    which browsers see the page, if it is configured. Raises Forged if another site sent the form, or if a program sent
    it without this page's Origin."""
    origin = urlsplit(header(scope, "origin"))
    if public and header(scope, "origin").lower() != public:
        raise Forged(reason=f"its Origin is not {public}")
    if not public and (
        not origin.netloc or origin.netloc.lower() != header(scope, "host").lower() or origin.scheme != scope["scheme"]
    ):
        raise Forged(reason="its Origin is not this page")
    if header(scope, "sec-fetch-site") not in ("", "same-origin"):
        raise Forged(reason="its Sec-Fetch-Site is not this page")


async def body_of(receive: Receive) -> bytes:
    """Returns the body of a request. Raises BadRequest if it is too large, or takes too long to arrive."""
    parts: list[bytes] = []
    size = 0
    with anyio.move_on_after(BODY_S) as limit:
        more = True
        while more:
            message: dict[str, Any] = dict(await receive())
            if message["type"] == "http.disconnect":
                raise BadRequest(what="The form did not arrive whole.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > MOST_BODY:
                raise BadRequest(what=f"A form has at most {MOST_BODY} bytes.")
            more = message.get("more_body", False)
    if limit.cancelled_caught:
        raise BadRequest(what=f"The form did not arrive within {BODY_S:.0f} s.")
    return b"".join(parts)
