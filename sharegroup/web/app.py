"""The page as a Starlette application: its addresses, sign-in and sign-out, static files, and the event stream that
notifies open pages.

Rule: each address names the right that it needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from coordinator.protocol.errors import ShareGroupError
from sharegroup.web import actions, dead_letter_pages, forms, group_pages, groups_page, record_page
from sharegroup.web.errors import TooManyOpen
from sharegroup.web.guard import EVENTS, Guard
from sharegroup.web.sessions import LONGEST_S, Session
from sharegroup.web.site import HERE, Handler, Site, Visit, answers
from sharegroup.web.words import told

READ, ADMIN, ANYBODY = "read", "admin", ""
KEEP_ALIVE_S = 15.0
"""An event stream sends a sign of life after this many seconds without an event."""
MOST_TOKEN, MOST_KEPT = 4_096, 8_192
"""A token of up to MOST_TOKEN characters is checked. A form of up to MOST_KEPT characters is kept during a sign-in."""
MOST_ATTEMPTS = 8
"""Up to this many tokens are checked at once, since coordinators are asked for each."""
_LOOKS = (group_pages.LOOKS, record_page.LOOKS, dead_letter_pages.LOOKS)
_ACTIONS = (actions.ACTIONS, dead_letter_pages.ACTIONS)


def create_app(site: Site) -> Starlette:
    """Returns the application of this page."""

    def route(path: str, handler: Handler, right: str, method: str = "GET") -> Route:
        return Route(path, answers(site, handler, right=right), methods=[method])

    routes = [
        route("/login", show_login, ANYBODY),
        Route("/login", _signs_in(site), methods=["POST"]),
        route("/logout", sign_out, READ, "POST"),
        route("/", groups_page.show, READ),
        *(route(path, handler, READ) for looks in _LOOKS for path, handler in looks.items()),
        *(route(path, handler, ADMIN, "POST") for acts in _ACTIONS for path, handler in acts.items()),
        *(route(path, handler, ADMIN) for path, handler in actions.LOOKS.items()),
        Route(EVENTS, _events(site), methods=["GET"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        Route("/{path:path}", answers(site, _nothing_here, right=READ), methods=["GET"]),
    ]
    for each in (group_pages, forms, actions, dead_letter_pages):
        site.instead.update(each.INSTEAD)
    return Starlette(routes=routes, middleware=[Middleware(Guard, is_tls=site.is_tls, public=site.public)])


def show_login(visit: Visit) -> Response:
    """The form for a token."""
    return visit.redirect("/") if visit.session is not None else visit.page("login.html", error="", kept="")


def sign_in(visit: Visit) -> Response:
    """Begin a session if somebody has the token."""
    token = visit.form.get("token", [""])[0].strip()
    kept = visit.form.get("kept", [""])[0]
    kept = urlencode(parse_qsl(kept)) if len(kept) <= MOST_KEPT else ""
    is_word = token.isascii() and token.isprintable() and " " not in token and len(token) <= MOST_TOKEN
    try:
        visitor = visit.site.sign_in_tokens.visitor(token) if token and is_word else None
    except ShareGroupError as error:
        return visit.page("login.html", 503, error=told(error), kept=kept)
    if visitor is None:
        return visit.page("login.html", 401, error="Nobody has this token, or it has no right to look.", kept=kept)
    response = visit.redirect(f"/form?{kept}" if kept and visitor.is_admin else "/")
    name = visit.site.sessions.begin(visitor, token)
    response.set_cookie(value=name, max_age=int(LONGEST_S), httponly=True, samesite="strict", **_cookie(visit))
    return response


def _cookie(visit: Visit) -> dict[str, Any]:
    site = visit.site
    return {"key": site.cookie(visit.request), "path": site.public.prefix or "/", "secure": site.is_secure}


def _signs_in(site: Site) -> Callable[[Request], Awaitable[Response]]:
    """Returns the endpoint for sign-in. MOST_ATTEMPTS tokens are checked at once, and others wait. After many wrong
    tokens from an address, further wrong ones are answered late. A right token never is, since all visitors through a
    tunnel have one address."""
    tried = answers(site, sign_in, right=ANYBODY, limiter=anyio.CapacityLimiter(MOST_ATTEMPTS))

    async def endpoint(request: Request) -> Response:
        answer = await tried(request)
        if answer.status_code == 401:
            await anyio.sleep(site.sessions.failed(request.client.host if request.client else ""))
        return answer

    return endpoint


def sign_out(visit: Visit) -> Response:
    """End the session of this browser."""
    visit.site.sessions.end(visit.request.cookies.get(visit.site.cookie(visit.request), ""))
    response = visit.redirect("/login")
    response.delete_cookie(httponly=True, samesite="strict", **_cookie(visit))
    return response


def _nothing_here(visit: Visit) -> Response:
    return visit.page("error.html", 404, name="Not found", text="There is no such page.", of_group="")


# --- the event stream


class EventStream(StreamingResponse):
    """Sends an event ``look`` after each round over all groups, until the session ends, and counts as open."""

    media_type = "text/event-stream"

    def __init__(self, site: Site, session: Session, name: str) -> None:
        self._site, self._session, self._name = site, session, name
        super().__init__(self._looks(), headers={"x-accel-buffering": "no"})  # a proxy passes each event on at once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._site.sessions.close_stream(self._session)

    async def _looks(self) -> AsyncIterator[bytes]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def told(number: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(news.set)

        stop = self._site.watch.tell(told)
        try:
            yield b"retry: 5000\n\n"
            while self._site.sessions.find(self._name) is not None:
                with anyio.move_on_after(KEEP_ALIVE_S):
                    await news.wait()
                yield b"event: look\ndata: now\n\n" if news.is_set() else b": here\n\n"
                news.clear()
        finally:
            stop()


def _events(site: Site) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        name = request.cookies.get(site.cookie(request), "")
        session = site.sessions.find(name)
        if session is None:
            return PlainTextResponse("Sign in first.", 401)
        try:
            site.sessions.open_stream(session)
        except TooManyOpen as error:
            return PlainTextResponse(str(error), 429, headers={"retry-after": "60", "connection": "close"})
        return EventStream(site, session, name)

    return endpoint
