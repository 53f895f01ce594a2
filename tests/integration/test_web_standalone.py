"""The page of a standalone coordinator, whose tokens people sign in with."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import urllib.parse
from types import SimpleNamespace

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan
from tests.support.ports import free_ports
from tests.support.standalone import TOKEN, StandaloneProcess, write_secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

TOKEN_FILE = "share.coordinator.token.file"
ALICE, BOB, QUERY = f"{TOKEN}-of-alice", f"{TOKEN}-of-bob", f"{TOKEN}-of-queries"


@pytest.fixture
def world(kafka, topic, tmp_path):
    """A standalone coordinator with its page, and a group of one query, which has left."""
    orders = topic("orders")
    kafka.produce(orders, [str(number) for number in range(10)])
    lines = f"admin alice:{ALICE}\nread bob:{BOB}\nmember:{QUERY}\n"
    tokens = write_secret(tmp_path / "tokens", lines)
    (port,) = free_ports(1)
    configs = {
        "bootstrap.servers": kafka.bootstrap,
        "share.state.store": f"sqlite:{tmp_path / 'state.db'}",
        "share.coordinator.audit.file": tmp_path / "audit.log",
        "share.coordinator.web.port": port,
        TOKEN_FILE: tokens,
    }
    with contextlib.closing(StandaloneProcess(tmp_path, configs)) as running:
        at = running.wait_ready().endpoint
        client = CoordinatorClient.connect("unused:1", {}, None, at, configs={TOKEN_FILE: str(tokens)})
        with contextlib.closing(client):
            session = MemberSession(client, "billing", "m1", topics=(orders,), starting_offsets="earliest")
            assert session.call(lambda who: NextPlan(**who, wait_ms=10_000)).plan.plan_id
            session.close(leave=True)
        wait_until(lambda: running.said("the web page is served at "), what="the page is shown")
        yield SimpleNamespace(running=running, port=port, audit=tmp_path / "audit.log", orders=orders)


def test_the_coordinator_s_page_is_behind_an_ingress(kafka, tmp_path):
    (port,) = free_ports(1)
    configs = {
        "bootstrap.servers": kafka.bootstrap,
        "share.state.store": f"sqlite:{tmp_path / 'state.db'}",
        "share.coordinator.web.port": port,
        "share.coordinator.web.public.url": "https://ops.example/groups",
    }
    with contextlib.closing(StandaloneProcess(tmp_path, configs)) as running:
        wait_until(lambda: running.said("the web page is served at "), what="the page is shown")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        with contextlib.closing(connection):
            connection.request("GET", "/", headers={"X-Forwarded-Prefix": "/evil"})
            answer = connection.getresponse()
            assert (answer.status, answer.headers["location"].partition("?")[0]) == (303, "/groups/login")


class Browser:
    """A browser without scripts, which keeps the cookie of its session."""

    def __init__(self, port):
        self.port, self.cookie = port, ""

    def ask(self, method, path, form=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"Cookie": self.cookie, "Origin": f"http://127.0.0.1:{self.port}"}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        with contextlib.closing(connection):
            connection.request(method, path, urllib.parse.urlencode(form or {}), headers)
            answer = connection.getresponse()
            self.cookie = (answer.headers.get("set-cookie") or self.cookie).partition(";")[0]
            found = answer.status, answer.read().decode()
        is_led = answer.status == 303 and path.startswith("/act")
        return self.ask("GET", answer.headers["location"]) if is_led else found

    def sign_in(self, token):
        return self.ask("POST", "/login", {"token": token})[0]

    def post(self, path, **form):
        csrf = re.search(r'name="csrf" value="([^"]+)"', self.ask("GET", "/")[1]).group(1)
        return self.ask("POST", path, {"csrf": csrf, **form})


@pytest.mark.slow
def test_the_coordinator_s_tokens_sign_in_and_its_audit_log_names_the_person(world):
    bob, alice = Browser(world.port), Browser(world.port)
    assert [Browser(world.port).sign_in(token) for token in ("x" * 20, QUERY)] == [401, 401]
    assert (bob.sign_in(BOB), alice.sign_in(ALICE)) == (303, 303)
    wait_until(lambda: "billing</a>" in bob.ask("GET", "/")[1], what="the group is seen")
    status, text = bob.ask("GET", "/group?group=billing")
    assert (status, "/act" in text) == (200, False)
    assert '<span class="quiet">alice</span>' in alice.ask("GET", "/")[1]
    examined = wait_until(
        lambda: "being examined" not in (text := bob.ask("GET", "/group?group=billing")[1]) and text,
        what="it is examined",
    )
    assert "--command-property share.coordinator.endpoint=" in examined
    assert "--command-property share.coordinator.token.file=" in examined
    reset = {"kind": "reset", "group": "billing", "to": "latest", "reason": "a new model"}
    status, text = bob.post("/act", **reset)
    assert (status, "NotAllowed" in text) == (403, True)
    status, text = alice.post("/act", **reset)
    assert (status, "10 record(s) that are not done are skipped" in text) == (200, True), text
    pending = re.search(r'name="pending" value="([^"]+)"', text).group(1)
    assert alice.post("/act/confirm", pending=pending)[0] == 200
    *_, line = [json.loads(each) for each in world.audit.read_text().splitlines()]
    assert line["message"].startswith("done: who=admin alice from=ipv4:127.0.0.1:")
    assert '"reason":"a new model"' in line["message"]
    assert not any(token in world.running.log_path.read_text() for token in (ALICE, BOB, QUERY))
