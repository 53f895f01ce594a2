"""The page behind a proxy: its links, forms, redirects, cookie and checks follow --public-url, and no header."""

from __future__ import annotations

import html
import re
from contextlib import closing

import pytest
from starlette.testclient import TestClient

from sharegroup.web.errors import WebNotAvailable
from sharegroup.web.public_url import PublicUrl
from tests.support.web_site import ACTOR, Page

GROUP = {"group": "billing"}
PUBLIC = "https://ops.example/groups"
FORWARDED = {
    "x-forwarded-proto": "https",
    "x-forwarded-host": "evil.example",
    "x-forwarded-prefix": "/evil",
    "forwarded": "host=evil.example;proto=https",
    "x-forwarded-for": "10.0.0.1",
}
"""Headers that anybody may send."""
PROXIES = {
    "passes the path and the host": ("http://ops.example", "/groups"),
    "passes the path, names this host": ("http://127.0.0.1:9396", "/groups"),
    "cuts the path off": ("http://ops.example", ""),
    "cuts the path off, names this host": ("http://127.0.0.1:9396", ""),
}
"""What the page gets from a proxy: scheme and host, and the path before its own."""


@pytest.fixture
def page(tmp_path):
    with closing(Page(tmp_path / "state.db", public=PUBLIC)) as page:
        page.running.join(starting_offsets="earliest")
        page.watch.look()
        yield page


class Proxied:
    """A browser whose requests come through a proxy."""

    def __init__(self, page, proxy):
        base_url, self.prefix = PROXIES[proxy]
        self.client = TestClient(page.app, base_url=base_url, follow_redirects=False)
        self.cookies = {}

    def ask(self, path, data=None, origin="https://ops.example", **headers):
        """The answer at a path of the browser's."""
        assert path == "/groups" or path.startswith(("/groups/", "/groups?"))
        inner = self.prefix + (path.removeprefix("/groups") or "/")
        more = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items()), **headers}
        if data is None:
            return self.client.get(inner, headers=more)
        return self.client.post(inner, data=data, headers={"origin": origin, **more})

    def sign_in(self):
        answer = self.ask("/groups/login", {"token": ACTOR})
        self.cookies = dict([answer.headers["set-cookie"].split(";")[0].split("=", 1)])
        return answer


def addresses(text):
    """All addresses of the page's links, forms and scripts."""
    return [html.unescape(each) for each in re.findall(r' (?:href|action|src|hx-get|data-events)="([^"]*)"', text)]


@pytest.mark.parametrize("proxy", PROXIES)
def test_all_addresses_lead_through_the_proxy(page, proxy):
    browser = Proxied(page, proxy)
    assert browser.ask("/groups/").headers["location"] == "/groups/login"
    signed = browser.sign_in()
    assert signed.headers["location"] == "/groups/"
    cookie = signed.headers["set-cookie"]
    assert cookie.startswith("__Secure-sharegroup=") and "Path=/groups;" in cookie and "Secure" in cookie
    todo, seen = ["/groups/"], set()
    while todo:
        path = todo.pop()
        seen.add(path)
        answer = browser.ask(path)
        assert answer.status_code < 400, path
        for found in addresses(answer.text) if "text/html" in answer.headers.get("content-type", "") else ():
            assert found.startswith(("/groups/", "#")), (path, found)
            is_page = not found.startswith(("/groups/events", "/groups/act", "/groups/logout", "/groups/redrive", "#"))
            if is_page and found not in seen and len(seen) < 40 and found.split("?")[0] not in PAGES_OF_FORMS:
                todo.append(found.split("#")[0])
    assert {"/groups/", "/groups/group?group=billing", "/groups/static/page.css"} <= seen
    text = browser.ask("/groups/group?group=billing").text
    (csrf, *_) = re.findall(r'name="csrf" value="([^"]+)"', text)
    asked = browser.ask("/groups/act", {**GROUP, "kind": "release_member", "member": "m1", "csrf": csrf})
    assert asked.headers["location"].startswith("/groups/dry-run?pending=")
    assert "Nothing has been changed yet" in browser.ask(asked.headers["location"]).text


PAGES_OF_FORMS = ("/groups/record", "/groups/partition", "/groups/deadletter")
"""Pages that a form leads to with its fields."""


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize(
    "origin",
    ["http://ops.example", "https://evil.example", "http://127.0.0.1:9396", "https://ops.example:8443", "null"],
)
def test_a_form_of_another_origin_is_refused_behind_a_proxy(page, proxy, origin):
    browser = Proxied(page, proxy)
    assert browser.ask("/groups/login", {"token": ACTOR}, origin=origin).status_code == 403


@pytest.mark.parametrize("public", ["", PUBLIC])
def test_headers_of_a_proxy_change_nothing(tmp_path, public):
    with closing(Page(tmp_path / "state.db", public=public)) as page:
        client = TestClient(page.app, base_url="http://127.0.0.1:9396", follow_redirects=False)
        plain, forwarded = client.get("/login"), client.get("/login", headers=FORWARDED)
        assert (plain.text, plain.status_code) == (forwarded.text, forwarded.status_code)
        for origin in ("https://evil.example", "https://127.0.0.1:9396"):
            answer = client.post("/login", data={"token": ACTOR}, headers={**FORWARDED, "origin": origin})
            assert answer.status_code == 403
        assert client.get("/login", headers={**FORWARDED, "host": "evil.example"}).status_code == 421


def test_the_page_answers_to_its_public_name_alone(page):
    client = TestClient(page.app, base_url="http://127.0.0.1:9396")
    for host, status in (("ops.example", 200), ("OPS.example:443", 200), ("evil.example", 421), ("", 421)):
        assert client.get("/login", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("text", "origin", "prefix", "cookie"),
    [
        ("https://ops.example", "https://ops.example", "", "__Host-sharegroup"),
        ("https://Ops.Example:443/", "https://ops.example", "", "__Host-sharegroup"),
        ("https://ops.example:8443/a/b/", "https://ops.example:8443", "/a/b", "__Secure-sharegroup-8443"),
        ("http://localhost:8080/x", "http://localhost:8080", "/x", "sharegroup-8080"),
        ("https://[2001:db8::1]/x", "https://[2001:db8::1]", "/x", "__Secure-sharegroup"),
    ],
)
def test_a_public_address_is_taken_apart(tmp_path, text, origin, prefix, cookie):
    found = PublicUrl.parse(text)
    assert (found.origin, found.prefix) == (origin, prefix)
    with closing(Page(tmp_path / "state.db", public=text)) as page:
        assert page.site.cookie(type("Request", (), {"headers": {"host": "127.0.0.1:9396"}})()) == cookie


@pytest.mark.parametrize(
    "text",
    ["ops.example", "ftp://ops.example", "https://", "https://a:b@ops.example", "https://ops.example/?x=1",
     "https://ops.example/#x", "http://ops.example", "https://ops.example/a b", "https://ops.example//evil.example",
     'https://ops.example/"x', "https://ops.example:99999"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_by_name(text):
    with pytest.raises(WebNotAvailable, match="--public-url"):
        PublicUrl.parse(text)
    with pytest.raises(WebNotAvailable, match=r"share\.coordinator\.web\.public\.url"):
        PublicUrl.parse(text, "share.coordinator.web.public.url")
