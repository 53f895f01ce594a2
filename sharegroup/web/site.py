"""The parts of the page that its requests share, and the one way in which a request becomes an answer.

Rule: a handler is called only with a session that has the right for it and, for a POST, with a form of this page."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from html import escape
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, quote_plus, urlencode

import anyio
import anyio.to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from coordinator.admin.admin import Admin
from coordinator.protocol.errors import (
    GroupIdNotFound,
    GroupNotAllowed,
    MemberNotFound,
    NotAllowed,
    NotAuthorized,
    NotInFlight,
    ShareGroupError,
    TopicNotAllowed,
    UnknownSharePartition,
    UnknownTopic,
)
from coordinator.protocol.rights import Caller
from sharegroup.durations import duration, second_of
from sharegroup.top import short
from sharegroup.web.errors import Away, BadRequest, Forged, NotSignedIn, TooManyOpen
from sharegroup.web.examinations import Examinations
from sharegroup.web.guard import body_of, check_origin
from sharegroup.web.jobs import Jobs
from sharegroup.web.outages import UNANSWERED, Outages
from sharegroup.web.public_url import PublicUrl
from sharegroup.web.records import KafkaReads
from sharegroup.web.sessions import Session, Sessions
from sharegroup.web.sign_in_tokens import CoordinatorTokens, OwnTokens
from sharegroup.web.texts import clean
from sharegroup.web.watch import Watch
from sharegroup.web.words import said

_log = logging.getLogger(__name__)

Row = TypeVar("Row")

HERE = Path(__file__).parent
MOST_TEXT = 1_000
"""One field of a form or of an address has up to this many characters."""
MOST_FIELDS = 400
"""A form has up to this many fields: a list of dead letters has one for each chosen one."""

LABELS = {
    "at": "Time, offset or shift",
    "create": "If it is missing",
    "first": "First offset",
    "key": "Key",
    "last": "Last offset",
    "member": "Member",
    "name": "Dead letter topic",
    "offset": "Record at offset",
    "partition": "Partition",
    "reason": "Reason, for the audit log",
    "search": "Search",
    "to": "To",
    "topic": "Topic",
    "value": "Value; empty: its default",
}
"""The texts beside the fields of forms, by the fields' names."""


def label(name: str) -> str:
    """Returns the text beside the field of this name."""
    return LABELS.get(name, name.capitalize())


_STATUS: dict[int, tuple[type[ShareGroupError], ...]] = {
    401: (NotSignedIn, NotAuthorized),
    403: (NotAllowed, GroupNotAllowed, TopicNotAllowed, Forged),
    404: (GroupIdNotFound, UnknownSharePartition, UnknownTopic, MemberNotFound, NotInFlight),
    429: (TooManyOpen,),
    503: (Away, *UNANSWERED),
}
PATIENCE_S = 1.0
"""While brokers or coordinators do not answer, a page waits this many seconds for its own calls."""
AWAY = "sharegroup-away"
"""This header of an answer tells open pages what does not answer now."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """The parts that all requests share. ``admin`` makes the page's own calls, which read all groups; ``cluster``: the
    brokers' addresses, for the heading; ``instead``: by address, what is shown instead of a page about an error."""

    admin: Admin = field(repr=False)
    sign_in_tokens: OwnTokens | CoordinatorTokens
    sessions: Sessions
    watch: Watch
    examinations: Examinations
    kafka: KafkaReads
    jobs: Jobs
    outages: Outages
    cluster: str
    is_tls: bool = False
    public: PublicUrl = field(default_factory=PublicUrl)
    instead: dict[str, Instead] = field(default_factory=dict, repr=False)

    def cookie(self, request: Request) -> str:
        """Returns the name of the session's cookie; with TLS, one that only this host can set. It includes the port
        that the browser sees: a host's cookies go to all of its ports, and each port may have a page of its own."""
        _, _, port = (self.public.origin or request.headers.get("host", "")).rpartition(":")
        first = "" if not self.is_secure else "__Secure-" if self.public.prefix else "__Host-"
        return f"{first}sharegroup{f'-{port}' if port.isdecimal() and port.isascii() else ''}"

    @property
    def is_secure(self) -> bool:
        """Whether browsers use TLS, with the page or with a proxy before it."""
        return self.public.is_tls if self.public.origin else self.is_tls


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request of a person."""

    site: Site
    request: Request
    session: Session | None
    form: Mapping[str, list[str]]

    @property
    def signed_in(self) -> Session:
        """The person's session. Only for handlers that need a right."""
        assert self.session is not None
        return self.session

    @property
    def admin(self) -> Admin:
        return self.signed_in.visitor.admin

    @property
    def caller(self) -> Caller:
        """The holder of the person's token. Its allow lists limit what the page itself reads and sends."""
        return self.signed_in.visitor.caller

    def text(self, name: str, default: str = "") -> str:
        """Returns a field of the form or of the address. Raises BadRequest if the text is too long."""
        values = self.form.get(name) if self.request.method == "POST" else self.request.query_params.getlist(name)
        found = values[0] if values else default
        if len(found) > MOST_TEXT:
            raise BadRequest(what=f"{label(name)}: it has more than {MOST_TEXT} characters.", field=name)
        return found

    @property
    def group_id(self) -> str:
        """Returns the group of the form or of the address. Raises BadRequest if none is named."""
        if not (found := self.text("group")):
            raise BadRequest(what="The address names no group: choose one from the list of groups.", field="group")
        return found

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """Returns a whole number of the form or of the address. Raises BadRequest if the number is missing, is no whole
        number, or is below ``least``."""
        text = self.text(name).strip()
        if not text and default is not None:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            why = f"{text!r} is no whole number" if text else "a number is missing"
        elif len(digits) > 19 or not least <= int(text) < 2**63:
            why = f"{text} is below {least}" if text.startswith("-") or int(text) < least else f"{text} is too large"
        else:
            return int(text)
        raise BadRequest(what=f"{label(name)}: {why}.", field=name)

    def paged(self, rows: Sequence[Row], most: int) -> tuple[Sequence[Row], dict[str, int]]:
        """Returns the rows of the page that the address names, up to ``most``, with its number and the number of
        pages, under the names that templates use."""
        pages = max(1, -(-len(rows) // most))
        number = min(self.number("page", 1, least=1), pages)
        return rows[(number - 1) * most : number * most], {"number": number, "pages": pages}

    @property
    def is_refresh(self) -> bool:
        """Whether an open page asks. After an error that page keeps what it shows, and what was typed in it."""
        return bool(self.request.headers.get("hx-request"))

    def redirect(self, path: str) -> Response:
        """Redirect to a page, so that Back leads to pages and never to a form's answer."""
        return RedirectResponse(self.site.public.prefix + path, 303)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        given = {"visit": self, "site": self.site, "session": self.session, "away": self.site.outages.text(), **values}
        html = _environment().get_template(template).render(given)
        if prefix := self.site.public.prefix:  # text has no quote: they are escaped in it
            html = _ADDRESS.sub(rf"\g<0>{prefix[1:]}/", html)
        return HTMLResponse(html, status)


Handler = Callable[[Visit], Response]
Instead = Callable[[Visit, ShareGroupError], "Response | None"]


def answers(
    site: Site, handler: Handler, *, right: str, limiter: anyio.CapacityLimiter | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Returns the Starlette endpoint of a handler. ``right``: read, admin, or "" for anybody; ``limiter``: how many
    requests the handler answers at once; None: the limit of all pages."""

    async def endpoint(request: Request) -> Response:
        session = site.sessions.find(request.cookies.get(site.cookie(request), ""))
        visit = Visit(site=site, request=request, session=session, form={})
        try:
            if request.method == "POST":
                check_origin(request.scope, site.public.origin)
                body = await body_of(request.receive)
                visit = Visit(site=site, request=request, session=session, form=_fields(body))
            _check(visit, right)
        except ShareGroupError as error:
            return await anyio.to_thread.run_sync(partial(_refused, visit, error))
        response = await _within_patience(visit, partial(_answered, handler, visit), limiter, is_bounded=bool(right))
        if response is None:
            response = await anyio.to_thread.run_sync(partial(_refused, visit, Away(what=site.outages.text())))
        if text := site.outages.text():
            response.headers[AWAY] = quote(text)
        return response

    return endpoint


def _answered(handler: Handler, visit: Visit) -> Response:
    try:
        return handler(visit)
    except ShareGroupError as error:
        return _refused(visit, error)
    except Exception:  # noqa: BLE001 - our mistake in one page is told without its details
        _log.exception("request failed: %s", visit.request.url.path)
        return visit.page("error.html", 500, name="InternalError", text="The page's log says why.", of_group="")


async def _within_patience(
    visit: Visit, answer: Callable[[], Response], limiter: anyio.CapacityLimiter | None, *, is_bounded: bool
) -> Response | None:
    """Returns the answer; None if brokers or coordinators do not answer, and the answer did not come within PATIENCE_S.
    For a confirmed action there is no limit: the page says how it ended."""
    found: list[Response] = []
    async with anyio.create_task_group() as tasks:

        async def give_up() -> None:
            while not visit.site.outages.text():
                await anyio.sleep(PATIENCE_S / 4)
            await anyio.sleep(PATIENCE_S)
            tasks.cancel_scope.cancel()

        if is_bounded and not visit.request.url.path.endswith("/confirm"):
            tasks.start_soon(give_up)
        found.append(await anyio.to_thread.run_sync(answer, abandon_on_cancel=True, limiter=limiter))
        tasks.cancel_scope.cancel()
    return found[0] if found else None


def _refused(visit: Visit, error: ShareGroupError) -> Response:
    """Returns the page that says why a request was refused; in an outage the last known state, if the page has one."""
    if isinstance(error, NotSignedIn):
        return _sent_to_login(visit, error)
    instead = visit.site.instead.get(visit.request.url.path)
    with suppress(ShareGroupError):
        found = None if instead is None or visit.is_refresh else instead(visit, error)
        if found is not None:
            return found
    group_id = (visit.form.get("group") or [visit.request.query_params.get("group", "")])[0][:MOST_TEXT]
    return visit.page("error.html", status_of(error), name=type(error).__name__, text=said(error), of_group=group_id)


def status_of(error: ShareGroupError) -> int:
    """Returns the HTTP status of an error."""
    return next((number for number, kinds in _STATUS.items() if isinstance(error, kinds)), 400)


def _check(visit: Visit, right: str) -> None:
    """Check the visitor's right, and that the form belongs to this session.

    Raises:
        NotSignedIn, NotAllowed: the session is missing, or lacks the right.
        Forged: the form belongs to no such session."""
    if not right:
        return
    if visit.session is None:
        raise NotSignedIn()
    if visit.request.method == "POST" and not visit.session.is_csrf(visit.text("csrf")):
        raise Forged(reason="it lacks the session's secret")
    if right == "admin" and not visit.session.visitor.is_admin:
        raise NotAllowed(request=visit.request.url.path, needed="admin", given=f"read {visit.session.visitor.name}")


def _sent_to_login(visit: Visit, error: NotSignedIn) -> Response:
    if visit.request.method == "POST" and visit.form.get("kind"):
        kept = {name: values[0][:MOST_TEXT] for name, values in visit.form.items() if name != "csrf" and values}
        return visit.page("login.html", 401, error=str(error), kept=urlencode(kept))
    if visit.request.method != "GET" or visit.request.url.path == "/events" or visit.is_refresh:
        return visit.page("error.html", 401, name=type(error).__name__, text=str(error), of_group="")
    return visit.redirect("/login")


def _fields(body: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise BadRequest(what=f"The form can't be read; it has at most {MOST_FIELDS} fields.") from None


# --- templates

_ADDRESS = re.compile(r' (?:href|(?:form)?action|src|hx-get|data-events)="/(?!/)')
_TO_QUOTE = re.compile("[\x00-\x7f\ud800-\udfff]+")


@cache
def _environment() -> Environment:
    """The templates. Every value is escaped, and a missing one is an error."""
    loader = FileSystemLoader(HERE / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(duration=duration, short=short, number=_number, time=_time, shortened=_shortened, brief=_brief)
    made.globals.update(query=_query)
    return made


def _query(path: str, **values: Any) -> str:
    """Returns the address of a page with these values, except None. Characters beyond ASCII are not encoded: browsers
    do that, and the page is a third as large."""
    return f"{path}?{'&'.join(f'{name}={_quoted(str(value))}' for name, value in values.items() if value is not None)}"


def _quoted(text: str) -> str:
    return _TO_QUOTE.sub(lambda found: quote_plus(found[0], errors="replace"), text)


def _number(number: float | None) -> str:
    return "–" if number is None else f"{number:,.0f}"


def _time(time_ms: int | None) -> str:
    return "–" if time_ms is None else second_of(time_ms, " UTC")


def _brief(text: str, most: int = 120) -> str:
    """As _shortened, for lists: in up to 2 * most bytes of HTML, since one character may take six."""
    if len(text) <= most and len(found := clean(text)) <= most and _size(found) <= 2 * most:
        return found
    head, tail = clean(text[: most * 2 // 3]), clean(text[-most // 4 :])
    return f"{_within(head, most * 4 // 3)} … {_within(tail[::-1], most // 2)[::-1]}"


def _within(text: str, most: int) -> str:
    """Returns the first characters that fit into ``most`` bytes of HTML."""
    sizes = accumulate(map(_size, text))
    return text[: sum(size <= most for size in sizes)]


def _size(text: str) -> int:
    return len(escape(text).encode())


def _shortened(text: str, most: int = 120) -> str:
    head, tail = clean(text[: most * 2 // 3]), clean(text[-most // 4 :])
    return clean(text) if len(text) <= most else f"{head} … {tail}"
