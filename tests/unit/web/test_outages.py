"""Brokers or a coordinator are away: every page says so at once, and shows what was known before."""

from __future__ import annotations

import threading
from urllib.parse import unquote

import pytest

from coordinator.protocol import errors
from sharegroup.web import outages, site
from sharegroup.web.outages import Waiting
from sharegroup.web.site import AWAY
from tests.support.web_site import ACTOR, LOOKER

WHERE = {"group": "billing", "topic": "orders", "partition": 0}
LOOKS = {
    "/": {},
    "/group": {"group": "billing"},
    "/partition": WHERE,
    "/records": WHERE,
    "/record": {**WHERE, "offset": 3},
    "/history": {**WHERE, "offset": 3},
    "/content": {**WHERE, "offset": 3},
    "/deadletters": {"group": "billing"},
    "/deadletter": {"group": "billing", "at": "0@1"},
}
"""The pages by their addresses, with what they ask for."""
KNOWN = ("/", "/group")
"""The pages of which something is known without a call."""
AWAY_ERRORS = (
    errors.BrokerNotReachable(addresses="b:1", timeout_ms=1, reason="refused"),
    errors.CoordinatorUnreachable(endpoints="c:1", reason="refused"),
    errors.CoordinatorNotAvailable(group_id="billing", reason="it waits"),
    errors.OutageTooLong(group_id="billing", timeout_ms=1, reason="refused", addresses="b:1", log=""),
)
SAYS = "The Kafka brokers (fake:9092) have not answered since"


@pytest.fixture
def page(page, monkeypatch):
    """What the page knows of its group is from when its query held 20 records."""
    monkeypatch.setattr(site, "PATIENCE_S", 0.2)
    page.watch.look()
    return page


@pytest.fixture
def hung(page):
    """No call of the page is answered until the test ends; ``waited_for`` has those that were given up."""
    ended, ask, page.waited_for = threading.Event(), page.admin._ask, []

    def hangs(*given):
        if ended.wait(60):
            return ask(*given)
        return page.waited_for.append(given)

    page.admin._ask = page.admin._look = hangs
    yield page
    ended.set()


def test_all_pages_are_named_here():
    assert set(LOOKS) == {"/", *(path for looks in _looks() for path in looks)} - {"/redrive"}


def _looks():
    from sharegroup.web.app import _LOOKS

    return _LOOKS


@pytest.mark.parametrize("path", LOOKS)
def test_each_page_says_at_once_that_the_brokers_are_away(hung, path, monkeypatch):
    browser = hung.browser(ACTOR)
    if path == "/":  # it makes no call: a busy machine may make it slowly
        monkeypatch.setattr(site, "PATIENCE_S", 20.0)
    hung.brokers_answer(False)
    answer = browser.get(path, **LOOKS[path])
    assert not hung.waited_for
    assert answer.status_code == (200 if path in KNOWN else 503)
    assert SAYS in answer.text and SAYS in unquote(answer.headers[AWAY])
    if path == "/group":
        assert "This is the group as of" in answer.text
        assert '<td data-name="Holds" class="number">20</td>' in answer.text
    hung.brokers_answer(True)
    assert AWAY not in browser.get("/").headers


def test_a_page_that_waits_already_is_answered_when_the_outage_is_noticed(hung):
    browser, answers = hung.browser(LOOKER), []
    asking = threading.Thread(target=lambda: answers.append(browser.get("/group", group="billing")))
    asking.start()
    hung.brokers_answer(False)
    asking.join(timeout=20)
    assert [answer.status_code for answer in answers] == [200]


@pytest.mark.parametrize("error", AWAY_ERRORS, ids=lambda error: type(error).__name__)
def test_a_group_is_shown_as_it_was_known_whatever_fails(page, error):
    page.admin.broken = error
    answer = page.browser(LOOKER).get("/group", group="billing")
    assert (answer.status_code, "This is the group as of" in answer.text) == (200, True)
    assert type(error).__name__ in answer.text
    refreshed = page.browser(LOOKER).client.get("/group?group=billing", headers={"hx-request": "true"})
    assert refreshed.status_code == 503, "an open page keeps what it shows"


def test_a_group_that_was_never_seen_is_not_invented(page):
    page.admin.broken = AWAY_ERRORS[0]
    assert page.browser(LOOKER).get("/group", group="none").status_code == 503


def test_an_action_asked_for_in_an_outage_is_refused_soon(hung):
    browser = hung.browser(ACTOR)
    secret = browser.secret()
    hung.brokers_answer(False)
    answer = browser.post("/act", {"group": "billing", "kind": "delete"}, csrf=secret)
    assert (answer.status_code, "nothing was changed" in answer.text) == (503, True)
    assert not hung.waited_for


def test_a_group_that_does_not_answer_keeps_its_numbers_and_is_marked(page):
    described = page.admin.describe_groups
    page.admin.describe_groups = lambda group_ids: (_ for _ in ()).throw(AWAY_ERRORS[1])
    page.watch.look()
    seen = page.watch.snapshot.groups["billing"]
    assert seen.line.in_flight == 20
    assert seen.attention[0][1] == "CoordinatorUnreachable"
    page.admin.describe_groups = described
    page.watch.look()
    assert page.watch.snapshot.groups["billing"].attention == ()


def test_a_coordinator_is_reported_after_seconds_without_an_answer(page, monkeypatch):
    now_s, told = [1_000.0], []
    monkeypatch.setattr(outages.time, "time", lambda: now_s[0])
    page.watch.tell(lambda number: told.append(number))
    for error, is_answer in ((AWAY_ERRORS[1], False), (errors.GroupIdNotFound(group_id="x"), True), (None, True)):
        waiting = page.watch.waiting
        try:
            with waiting.asking():
                if error is not None:
                    raise error
        except type(error or AWAY_ERRORS[0]):
            pass
        now_s[0] += outages.LATE_S
        assert (waiting.late_since_s() is None) == is_answer
        page.outages.look()
        assert ("The groups' coordinator has not answered since 00:16:40 UTC." in page.outages.text()) != is_answer
        page.outages.look()
    assert len(told) == 2, "open pages look again when an outage begins, and when it ends"


def test_a_call_that_hangs_counts_from_its_beginning(monkeypatch):
    now_s = [50.0]
    monkeypatch.setattr(outages.time, "time", lambda: now_s[0])
    waiting = Waiting()
    with waiting.asking():
        assert waiting.late_since_s() is None
        now_s[0] += outages.LATE_S
        assert waiting.late_since_s() == 50.0
    assert waiting.late_since_s() is None
