"""An open page whose answers fail keeps what it shows, says since when it was not refreshed, and follows again; a form
without a mouse. In Chromium, over a service in this process: no broker."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from playwright.sync_api import expect

from coordinator.protocol.errors import CoordinatorUnreachable
from coordinator.protocol.messages import LeaveGroup
from sharegroup.web.server import Address, Server
from tests.support import chromium
from tests.support.chromium import faults, signed_in
from tests.support.waiting import wait_until
from tests.support.web_site import ACTOR, Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.fixture(scope="module")
def browser():
    with chromium.browser() as found:
        yield found


@pytest.fixture
def site(tmp_path):
    """The page over a group whose member holds 20 records, and sends no heartbeats."""
    site = Page(tmp_path / "state.db")
    configs = {"share.session.timeout.ms": "3600000"}
    site.running.join(starting_offsets="earliest", client_id="etl", configs=configs)
    site.running.start(site.running.next(max_records=20).plan_id)
    site.watch.look()
    with closing(site), closing(Server(site.app, Address(host="127.0.0.1", port=0))) as server:
        server.start()
        site.url = server.url
        yield site


@pytest.fixture
def page(site, browser):
    """The page of the group; the watch looks whenever a test says so."""
    page, _ = signed_in(site.url, browser, ACTOR)
    page.get_by_role("link", name="billing").click()
    expect(held(page)).to_have_text("20")
    wait_until(lambda: site.watch._told, what="the page listens")
    yield page
    page.context.close()


def held(page):
    return page.locator("dt:has-text('Held') + dd")


def stale(page):
    return page.locator("#stale")


def released(site):
    """The member leaves: nothing is held any more."""
    site.running.ask(LeaveGroup)


def test_a_page_whose_coordinator_fails_keeps_its_content_and_is_marked(site, page):
    site.admin.broken = CoordinatorUnreachable(endpoints="c:1", reason="refused")
    site.watch.look()
    says = re.compile(r"^Not refreshed since \d\d:\d\d:\d\d UTC\.$")
    expect(stale(page).locator("span")).to_have_text(says)
    expect(held(page)).to_have_text("20")
    expect(page.get_by_role("link", name="Sign in again")).to_be_hidden()
    assert faults(page, "stale") == []
    site.admin.broken = None
    released(site)
    site.watch.look()
    expect(held(page)).to_have_text("0")
    expect(stale(page)).to_be_hidden()


def test_a_page_whose_server_is_away_follows_again(site, page):
    page.route("**/*", lambda route: route.abort())
    site.watch.look()
    expect(stale(page)).to_be_visible()
    expect(held(page)).to_have_text("20")
    page.unroute("**/*")
    released(site)
    site.watch.look()
    expect(held(page)).to_have_text("0")
    expect(stale(page)).to_be_hidden()


def test_an_event_stream_that_is_refused_is_asked_for_again(site, page):
    streams = []
    page.route("**/events", lambda route: streams.append(route) or route.fulfill(status=429, body="too many"))
    page.reload()
    wait_until(lambda: page.wait_for_timeout(50) or len(streams) > 1, what="the page asks for its stream again")
    expect(stale(page)).to_be_hidden()
    page.unroute("**/events")
    wait_until(lambda: page.wait_for_timeout(50) or site.watch._told, what="the page listens")
    released(site)
    site.watch.look()
    expect(held(page)).to_have_text("0")


def test_a_session_that_is_over_keeps_the_page_and_its_forms(site, page):
    page.get_by_text("Reset start offsets").click()
    page.locator("#reset-reason").fill("a long reason")
    (cookie,) = (each["value"] for each in page.context.cookies())
    site.site.sessions.end(cookie)
    site.watch.look()
    expect(stale(page)).to_contain_text("The session is over.")
    expect(held(page)).to_have_text("20")
    expect(page.locator("#reset-reason")).to_have_value("a long reason")
    page.get_by_role("link", name="Sign in again").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_paused_page_is_not_refreshed_until_the_button_go_on(site, page):
    page.get_by_role("button", name="Pause").click()
    wait_until(lambda: page.wait_for_timeout(50) or not site.watch._told, what="the page listens no more")
    released(site)
    site.watch.look()
    expect(held(page)).to_have_text("20")
    page.get_by_role("button", name="Go on").click()
    expect(held(page)).to_have_text("0")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_a_form_that_is_refused_is_corrected_with_the_keyboard_alone(page):
    page.locator("summary", has_text="Reset start offsets").focus()
    page.keyboard.press("Enter")
    page.get_by_label("To", exact=True).select_option("offset")
    page.get_by_label("Time, offset or shift").fill("-5")
    page.locator("#reset-reason").fill("a long reason")
    page.keyboard.press("Enter")
    expect(page.get_by_text("-5 is below 0")).to_be_visible()
    assert faults(page, "form") == []
    expect(page.get_by_label("Time, offset or shift")).to_be_focused()
    expect(page.get_by_label("Reason, for the audit log")).to_have_value("a long reason")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("End session…")).to_be_visible()
    assert "force" not in page.locator("main").inner_text()


def test_an_outage_is_named_on_open_pages_without_a_reload(site, page):
    expect(page.locator("#away")).to_be_hidden()
    site.brokers_answer(False)
    expect(page.locator("#away")).to_contain_text("have not answered since")
    assert faults(page, "away") == []
    site.brokers_answer(True)
    expect(page.locator("#away")).to_be_hidden()
