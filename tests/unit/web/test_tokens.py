"""Tokens of standalone coordinators sign people in, and their allow lists hold on the page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.errors import CoordinatorUnreachable, InvalidRequest, InvalidToken
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.rights import Tokens
from coordinator.service.requests.requests import Requests
from coordinator.service.server.flight_server import FlightServer
from sharegroup.web import command, coordinator_page
from sharegroup.web.dead_letter_pages import digest
from sharegroup.web.sign_in_tokens import CoordinatorTokens
from tests.support.web_site import Browser, Page, finished, letter, pending_of

ADA, LO, ALL, MEMBER = "a" * 20, "l" * 20, "x" * 20, "m" * 20
TOKENS = Tokens.parse(f"admin ada:{ADA}\nread lo:{LO}\nread,member,admin all:{ALL}\nmember:{MEMBER}", "the test")
"""A coordinator's tokens."""


@pytest.fixture(scope="module")
def tokens():
    def handle(request):
        raise InvalidRequest(what="A group has an id.")

    server = FlightServer(Requests(version="1").begin(handle), TOKENS)
    yield CoordinatorTokens({"share.coordinator.endpoint": server.address})
    server.shutdown()


def test_the_page_s_own_tokens_are_those_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"admin ada:{ADA}\nmember:{MEMBER}\n")
    path.chmod(0o600)
    own, told = command._tokens({}, str(path))
    assert own is not None and told == f"Its tokens: {path}"
    assert [str(caller) for _, caller in own.holders] == ["admin ada", "member"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"member:{MEMBER}", "no token has the right `read` or `admin`"),
        (f"ann:{ADA}", "is not RIGHTS:TOKEN"),
        (f"read lo:{LO} groups=a", "can't have groups="),
    ],
)
def test_a_file_of_tokens_with_which_nobody_signs_in_is_refused(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(line)
    path.chmod(0o600)
    with pytest.raises(InvalidToken, match=says):
        command._tokens({}, str(path))


def of(tokens, token):
    """The name and whether it may act; None: no session is opened."""
    visitor = tokens.visitor(token)
    if visitor is None:
        return None
    with contextlib.closing(visitor):
        return visitor.name, visitor.is_admin


def test_a_person_is_known_by_the_name_of_the_token(tokens):
    assert of(tokens, ADA) == ("ada", True)
    assert of(tokens, LO) == ("lo", False)
    assert of(tokens, ALL) == ("all", True)


def test_a_token_without_the_right_to_look_opens_no_session(tokens):
    assert of(tokens, MEMBER) is None
    assert of(tokens, "nobody-has-this-token") is None


def test_commands_of_the_doctor_reach_a_standalone_coordinator():
    config = {
        "bootstrap.servers": "broker:9092",
        "share.coordinator.endpoint": "c1:9095",
        "share.coordinator.token.file": "/etc/tokens",
        "share.coordinator.max.request.bytes": "1000000",
        "security.protocol": "SASL_SSL",
        "sasl.password": "hush",
    }
    words = coordinator_page._connects(config)
    assert words[::2] == ("--command-property",) * 4
    assert words[1::2][:3] == (
        "share.coordinator.endpoint=c1:9095",
        "share.coordinator.token.file=/etc/tokens",
        "security.protocol=SASL_SSL",
    )
    assert "hush" not in " ".join(words)


def test_a_login_at_an_earlier_coordinator_gets_the_rights(tokens, monkeypatch):
    def unknown(admin):
        raise InvalidRequest(what="This coordinator knows no request 'WhoAmI'.")

    monkeypatch.setattr(Admin, "who_am_i", unknown)
    assert [of(tokens, token) for token in (ADA, LO, MEMBER)] == [("", True), ("lo", False), None]


BOUND = "b" * 20
LISTED = Tokens.parse(f"admin bo:{BOUND} groups=billing topics=orders dlq=dlq", "the test")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """The groups billing and payroll read two topics, and their dead letters are of both."""
    page = Page(tmp_path / "state.db")
    page.site.sign_in_tokens._tokens = LISTED  # type: ignore[attr-defined]
    for topic in ("salaries", "dlq"):
        page.cluster.add(topic, 1, end=10)
    for group_id in ("billing", "payroll"):
        page.running.joined(JoinGroup(group_id=group_id, member_id="m", process_id="p", topics=("orders", "salaries")))
        page.admin._ask(
            AlterGroupConfigs(group_id=group_id, set={"errors.deadletterqueue.topic.name": "dlq"}, execute=True)
        )
    page.watch.look()
    page.kafka.found = [letter(offset=0), letter(offset=1, origin_topic="salaries", message="too high", value=b"9000")]
    yield page
    page.close()


@pytest.fixture
def browser(page: Page) -> Browser:
    return page.browser(BOUND)


def test_groups_beyond_the_tokens_list_are_not_shown(page: Page, browser: Browser) -> None:
    page.watch.snapshot = replace(page.watch.snapshot, error="payroll can't be looked at")
    for path in ("/", "/?search=pay"):
        assert "payroll" not in browser.get(path).text.replace("“pay”", "")
    assert "1 group;" in browser.get("/").text


def test_an_outage_shows_no_group_beyond_the_tokens_list(page: Page, browser: Browser) -> None:
    page.admin.broken = CoordinatorUnreachable(endpoints="c:1", reason="refused")
    assert "salaries" not in browser.get("/group", group="payroll").text
    assert "salaries" in browser.get("/group", group="billing").text


def test_records_of_a_topic_beyond_the_tokens_list_are_not_read(page: Page, browser: Browser) -> None:
    answer = browser.get("/content", group="billing", topic="salaries", partition=0, offset=3)
    assert (answer.status_code, "TopicNotAllowed" in answer.text, page.kafka.read) == (403, True, [])
    assert browser.get("/content", group="billing", topic="orders", partition=0, offset=3).status_code == 200
    answer = browser.get("/records", group="billing", topic="salaries", partition=0)
    assert (answer.status_code, "TopicNotAllowed" in answer.text, page.kafka.bounds) == (403, True, [])
    assert browser.get("/records", group="billing", topic="orders", partition=0).status_code == 200


def test_dead_letters_beyond_the_tokens_list_are_neither_shown_nor_sent(page: Page, browser: Browser) -> None:
    shown = browser.get("/deadletters", group="billing").text
    assert "timeout" in shown and "too high" not in shown and "9000" not in shown
    assert browser.get("/deadletter", group="billing", at="0@0").status_code == 200
    assert "9000" not in browser.get("/deadletter", group="billing", at="0@1").text
    for form in ({"scope": "all"}, {"chosen": ["0@0", "0@1"]}, {"scope": "all", "reason": digest("too high")}):
        page.kafka.sent.clear()
        dry = finished(browser, browser.post("/redrive", {"group": "billing", **form}))
        with contextlib.suppress(ValueError):  # nothing is to be confirmed
            finished(browser, browser.post("/redrive/confirm", {"pending": pending_of(dry)}))
        assert (0, 1) not in page.kafka.sent


def test_a_coordinator_says_which_lists_the_token_has() -> None:
    server = FlightServer(Requests(version="1"), LISTED)
    try:
        visitor = CoordinatorTokens({"share.coordinator.endpoint": server.address}).visitor(BOUND)
        assert visitor is not None
        with contextlib.closing(visitor):
            allowed = visitor.caller
        assert (allowed.groups, allowed.topics.source, allowed.topics.dead_letters) == ("billing", "orders", "dlq")
    finally:
        server.shutdown()
