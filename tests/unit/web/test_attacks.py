"""Attacks on the page: without a token, with a wrong one, from another site, with too much, too slowly, too often."""

from __future__ import annotations

import contextlib
import http.client
import logging
import re
import socket
import ssl
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from starlette.routing import Route

from coordinator.protocol.repeated_lines import INTERVAL_S, LogOnce
from coordinator.protocol.rights import Caller, Right
from sharegroup.web import app, guard, server, sessions
from sharegroup.web.app import create_app
from sharegroup.web.errors import BadRequest, TooManyOpen, WebNotAvailable, WebTlsRequired
from sharegroup.web.guard import MOST_BODY
from sharegroup.web.server import Address, Server
from sharegroup.web.site import HERE as PACKAGE
from tests.support.standalone import Certificates
from tests.support.waiting import wait_until
from tests.support.web_site import ACTOR, HERE, LOOKER, MEMBER


@pytest.fixture
def served(page):
    """The page on a port of its own, with a browser's connection to it."""
    address = Address(host="127.0.0.1", port=0)
    with contextlib.closing(Server(page.app, address)) as running:
        running.start()
        state = running._server.server_state
        yield SimpleNamespace(page=page, port=running.port, url=running.url, connections=state.connections)


def visitor():
    return sessions.Visitor(caller=Caller(frozenset({Right.READ}), "lo"), admin=SimpleNamespace(close=lambda: None))


def paths(app):
    """The addresses with their methods, the static files aside."""
    return [
        (each.path.replace("{path:path}", "x"), method)
        for each in app.routes
        if isinstance(each, Route)
        for method in each.methods
    ]


# --- who asks


def test_without_a_session_nothing_is_shown_or_asked(page):
    browser = page.browser()
    for path, method in paths(page.app):
        if path == "/login":
            continue
        answer = browser.client.request(method, path, headers={"origin": HERE}, params={"group": "billing"})
        assert (answer.status_code, answer.headers.get("location")) in ((303, "/login"), (401, None)), path
    assert page.admin.asked == []


@pytest.mark.parametrize(
    "token", ["", "x" * 20, MEMBER, LOOKER[:-1], LOOKER + " ", "ü" * 20, "x\r\ny: z", "x" * 60_000]
)
def test_an_unknown_token_opens_no_session(page, token):
    answer = page.browser().post("/login", {"token": token})
    expected = 303 if token.strip() == LOOKER else 401
    assert answer.status_code == expected
    assert len(page.site.sessions) == (expected == 303)


def test_many_wrong_tokens_are_answered_late_and_a_right_token_at_once(page, monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(app, "anyio", SimpleNamespace(sleep=sleep))
    browser = page.browser()
    statuses = {browser.post("/login", {"token": f"{n:020}"}).status_code for n in range(sessions.MOST_FAILURES + 2)}
    assert statuses == {401}
    assert slept == [0.0] * sessions.MOST_FAILURES + [sessions.DELAY_S] * 2
    assert browser.post("/login", {"token": ACTOR}).status_code == 303
    assert len(slept) == sessions.MOST_FAILURES + 2


def test_few_tokens_are_checked_at_once(served, monkeypatch):
    checked, may_answer = [], threading.Event()

    def visitor_of(token):
        checked.append(token)
        may_answer.wait(60)

    monkeypatch.setattr(served.page.site.sign_in_tokens, "visitor", visitor_of)
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nOrigin: {served.url.rstrip('/')}\r\n"
    with contextlib.ExitStack() as stack:
        asked = [stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 60)) for _ in range(30)]
        for connection in asked:
            connection.sendall(f"{head}Content-Length: 26\r\n\r\ntoken={'x' * 20}".encode())
        wait_until(lambda: len(checked) == app.MOST_ATTEMPTS, what="the first ones are checked")
        with ask(served.port, "/login", "") as other:
            assert status_of(other) == 200, "the attempts hold up no other page"
        assert len(checked) == app.MOST_ATTEMPTS
        may_answer.set()
        assert {status_of(connection) for connection in asked[:20]} == {401}


def test_sessions_of_one_token_end_no_session_of_another_token():
    opened = sessions.Sessions()
    other = opened.begin(visitor(), "another")
    named = [opened.begin(visitor(), "one") for _ in range(sessions.MOST_OF_A_TOKEN + 1)]
    assert [opened.find(name) is not None for name in (other, named[0], named[1])] == [True, False, True]


def test_pages_on_two_ports_of_a_host_have_cookies_of_their_own(page):
    browser = page.browser(LOOKER)
    beside = {"host": "127.0.0.1:9397", "origin": "http://127.0.0.1:9397"}
    answer = browser.client.post("/login", data={"token": ACTOR}, headers=beside)
    assert answer.headers["set-cookie"].startswith("sharegroup-9397=")
    assert "lo, looks only" in browser.get("/").text


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(page):
    cookie = page.browser().post("/login", {"token": LOOKER}).headers["set-cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=strict", "Max-Age=86400"} <= set(cookie.split("; "))
    assert LOOKER not in cookie


def test_a_session_ends_after_a_day():
    now_s = [0.0]
    opened = sessions.Sessions(lambda: now_s[0])
    name = opened.begin(visitor(), LOOKER)
    now_s[0] = sessions.LONGEST_S - 1
    assert opened.find(name) is not None
    now_s[0] = sessions.LONGEST_S
    assert opened.find(name) is None
    assert len(opened) == 0


def test_sessions_are_bounded_and_the_oldest_one_ends():
    opened = sessions.Sessions()
    named = [opened.begin(visitor(), str(n)) for n in range(sessions.MOST_SESSIONS + 1)]
    assert len(opened) == sessions.MOST_SESSIONS
    assert opened.find(named[0]) is None
    assert opened.find(named[1]) is not None


def test_a_session_that_signed_out_is_over(page):
    browser = page.browser(LOOKER)
    cookies = dict(browser.client.cookies)
    assert browser.post("/logout", {}).status_code == 303
    browser.client.cookies.update(cookies)
    assert browser.get("/").status_code == 303


# --- from elsewhere


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9396", "127.0.0.1.evil.example", "", "[", "@"])
def test_a_name_that_resolves_to_this_host_is_refused(page, host):
    assert page.browser(LOOKER).client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("path", ["/", "/login", "/nowhere", "/static/page.css", "/group?group=none"])
def test_every_answer_has_the_headers_of_defence(page, path):
    headers = page.browser(LOOKER).client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self'; base-uri 'none'; form-action 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert ("no-store" in headers.get("cache-control", "")) == (not path.startswith("/static/"))


def test_no_page_has_a_script_or_a_style_of_its_own():
    """The policy would refuse them, and a browser would show half a page."""
    for path in (PACKAGE / "templates").iterdir():
        text = path.read_text(encoding="utf-8")
        assert (
            re.findall(r"<script(?! src=\"/static/)|<style|\sstyle=|\son\w+=|javascript:|https?://|\|\s*safe", text)
            == []
        )


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/%00"),
        "/../setup.py",
    ],
)
def test_a_path_leads_out_of_no_folder(page, path):
    answer = page.browser(LOOKER).client.get(path)
    assert answer.status_code == 404
    assert "import" not in answer.text


# --- too much, too slowly, too often


def test_a_form_that_is_too_large_is_refused(page):
    browser = page.browser(LOOKER)
    assert browser.post("/logout", {"x": "y" * MOST_BODY}).status_code == 413
    pieces = (b"x" * 1_000 for _ in range(100))  # without a length
    answer = browser.client.post("/logout", content=pieces, headers={"origin": HERE})
    assert (answer.status_code, BadRequest.__name__ in answer.text) == (400, True)
    many = "&".join("a=b" for _ in range(5_000)).encode()
    assert browser.client.post("/logout", content=many, headers={"origin": HERE}).status_code == 400
    assert browser.get("/").status_code == 200


def test_event_streams_are_bounded_and_pages_are_shown_beside(served):
    served.page.watch.look()
    browser = served.page.browser(LOOKER)
    cookie = cookie_of(browser, served.port)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(ask(served.port, "/events", cookie)) for _ in range(300)]
        statuses = [status_of(stream) for stream in streams]
        assert statuses.count(200) == sessions.MOST_STREAMS_OF_ONE
        assert set(statuses) <= {200, 429, 503, 0}
        with ask(served.port, "/", cookie) as other:
            assert status_of(other) == 200, "refused streams hold no connection"
    wait_until(lambda: open_streams(served.page) == 0, what="the streams have ended")
    with ask(served.port, "/events", cookie) as again:
        assert b" 200 " in read_until(again, b"retry:")  # it listens now
        served.page.watch.look()
        assert b"event: look" in read_until(again, b"event: look")


def test_refused_connections_do_not_fill_the_log():
    now_s = 0.0
    rate_limit = server.RateLimit(LogOnce(logging.getLogger("uvicorn.error"), lambda: now_s))
    records = [logging.makeLogRecord({"msg": text}) for text in ("Exceeded", "Invalid", "Exceeded")]
    assert [rate_limit.filter(record) for record in records] == [True, True, False]
    later = {"msg": "Exceeded"}
    now_s += INTERVAL_S
    assert rate_limit.filter(logging.makeLogRecord(later))


def test_a_client_that_sends_no_headers_is_left(served, monkeypatch):
    monkeypatch.setattr(server, "HEADERS_S", 0.2)
    for said in (b"", b"GET / HTTP/1.1\r\nHost: 127", b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow:
            slow.sendall(said)
            while slow.recv(65_536):
                pass


@pytest.mark.parametrize("requests", [1, 200])
def test_clients_that_do_not_read_are_left_and_hold_nothing(served, monkeypatch, requests):
    monkeypatch.setattr(server, "WRITE_S", 0.2)
    monkeypatch.setattr(server, "HEADERS_S", 1.0)
    monkeypatch.setattr(guard, "REQUEST_S", 0.3)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 10)
    asked = f"GET /static/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode() * requests
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            client.connect(("127.0.0.1", served.port))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                client.send(asked)
            wait_until(lambda: login_status(served.port) == 200, what="another client gets the page")
        wait_until(lambda: not served.connections, what="the server has left them all")


def test_idle_connections_make_room_for_a_new_one(served, monkeypatch):
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
    monkeypatch.setattr(server, "HEADERS_S", 600.0)
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 60)) for _ in range(20)]
        with ask(served.port, "/login", "") as other:
            assert status_of(other) == 200
        assert len(served.connections) <= 5
        assert all(status_of(connection) == 0 for connection in idle[:15]), "the oldest are closed"


def test_a_form_that_does_not_arrive_is_refused_and_others_are_served(served, monkeypatch):
    browser = served.page.browser(LOOKER)
    monkeypatch.setattr(guard, "BODY_S", 0.3)
    cookie = cookie_of(browser, served.port)
    head = f"POST /logout HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nOrigin: {served.url.rstrip('/')}\r\n"
    head += f"Cookie: {cookie}\r\nContent-Length: 1000\r\n\r\ncsrf="
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 60)) for _ in range(50)]
        for connection in slow:
            connection.sendall(head.encode())
        with ask(served.port, "/login", "") as other:
            assert status_of(other) == 200
        assert {status_of(connection) for connection in slow} == {400}
    assert browser.get("/").status_code == 200, "the session goes on"


def test_an_answer_that_takes_too_long_is_given_up(served, monkeypatch):
    browser = served.page.browser(LOOKER)
    monkeypatch.setattr(guard, "REQUEST_S", 0.3)
    answered = threading.Event()
    served.page.admin._ask = served.page.admin._look = lambda *given: answered.wait(60)
    cookie = cookie_of(browser, served.port)
    try:
        with ask(served.port, "/partition?group=billing&topic=orders&partition=0", cookie) as slow:
            assert status_of(slow) == 504
    finally:
        answered.set()


def test_streams_of_all_sessions_are_bounded():
    opened = sessions.Sessions()
    for _ in range(sessions.MOST_STREAMS // sessions.MOST_STREAMS_OF_ONE):
        found = opened.find(opened.begin(visitor(), LOOKER))
        for _ in range(sessions.MOST_STREAMS_OF_ONE):
            opened.open_stream(found)
    with pytest.raises(TooManyOpen, match="Event streams: 64 at most"):
        opened.open_stream(opened.find(opened.begin(visitor(), LOOKER)))


# --- where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
def test_other_hosts_reach_the_page_with_tls_alone(page, host):
    with pytest.raises(WebTlsRequired, match="so needs TLS"):
        Server(page.app, Address(host=host, port=0))


def test_with_tls_the_cookie_is_this_host_s_alone(page, tmp_path):
    files = Certificates(tmp_path)
    address = Address(host="127.0.0.1", port=0, certificate=str(files.certificate), key=str(files.key))
    secure = create_app(replace(page.site, is_tls=True))
    trusted = ssl.create_default_context(cafile=str(files.ca))
    with contextlib.closing(Server(secure, address)) as running:
        running.start()
        connection = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=60, context=trusted)
        with contextlib.closing(connection):
            origin = {"Origin": running.url.rstrip("/")}
            connection.request("POST", "/login", f"token={LOOKER}", origin)
            answer = connection.getresponse()
            answer.read()
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith(f"__Host-sharegroup-{running.port}=")
            assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= set(cookie.split("; "))
            assert "strict-transport-security" not in answer.headers, "it would hold for all ports of the host"
            connection.request("POST", "/login", f"token={LOOKER}", {"Origin": f"http://127.0.0.1:{running.port}"})
            assert connection.getresponse().status == 403
        with ask(running.port, "/login", "") as plain:
            assert status_of(plain) == 0


@contextlib.contextmanager
def silent_handshakes(page, tmp_path):
    """A server with TLS, 20 connections that say nothing to it, and a function that opens one which speaks."""
    files = Certificates(tmp_path)
    address = Address(host="127.0.0.1", port=0, certificate=str(files.certificate), key=str(files.key))
    trusted = ssl.create_default_context(cafile=str(files.ca))
    with contextlib.closing(Server(page.app, address)) as running, contextlib.ExitStack() as stack:
        running.start()
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", running.port), 60)) for _ in range(20)]

        def speaking():
            connection = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=60, context=trusted)
            return stack.enter_context(contextlib.closing(connection))

        yield silent, speaking


def test_tls_handshakes_are_bounded_in_number_and_time(page, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "HANDSHAKE_S", 0.5)
    monkeypatch.setattr(server, "MOST_ACCEPTED", 5)
    with silent_handshakes(page, tmp_path) as (silent, speaking):
        assert all(status_of(connection) == 0 for connection in silent)

        def is_served():
            with contextlib.suppress(OSError):  # its handshake took too long
                connection = speaking()
                connection.request("GET", "/login")
                return connection.getresponse().status == 200
            return False

        wait_until(is_served, what="a client that speaks is served")


def test_silent_tls_handshakes_keep_nobody_out(page, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "HANDSHAKE_S", 300.0)
    monkeypatch.setattr(server, "MOST_ACCEPTED", 5)
    with silent_handshakes(page, tmp_path) as (silent, speaking):
        assert status_of(silent[0]) == 0, "the oldest made room"
        for _ in range(3):
            connection = speaking()
            connection.request("GET", "/login")
            assert connection.getresponse().status == 200


def test_a_taken_port_and_a_wrong_certificate_are_named(page, served, tmp_path):
    with pytest.raises(WebNotAvailable, match="in use"):
        Server(page.app, Address(host="127.0.0.1", port=served.port))
    with pytest.raises(WebNotAvailable, match="needs --tls-certificate and --tls-key"):
        Server(page.app, Address(host="127.0.0.1", port=0, key="k.pem"))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(WebNotAvailable, match="can't be used"):
        Server(page.app, Address(host="0.0.0.0", port=0, certificate=str(wrong), key=str(wrong)))


def ask(port, path, cookie):
    """A connection on which this page was asked for."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    return connection


def login_status(port):
    """The status of the sign-in page, on a connection of its own; 0: the connection was closed without an answer."""
    with ask(port, "/login", "") as connection:
        return status_of(connection)


def cookie_of(browser, port):
    """The browser's session as the page on this port expects it."""
    (session,) = browser.client.cookies.values()
    return f"sharegroup-{port}={session}"


def status_of(connection):
    """The status of the answer; 0: the connection was closed without one."""
    with contextlib.suppress(ConnectionError):
        head = read_until(connection, b"\r\n")
        return int(head.split()[1]) if head else 0
    return 0


def read_until(connection, mark):
    found = b""
    while mark not in found and (more := connection.recv(4_096)):
        found += more
    return found


def open_streams(page):
    return sum(each.streams for each in page.site.sessions._sessions.values())
