"""An incident at night, played by clicks alone: of 24 groups one lost records, one has no dead letter topic any more,
one stands before a record that always fails, and 20 were left behind. In Chromium, over a service in this process."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import islice

import pytest
from playwright.sync_api import expect

from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.messages import JoinGroup, LeaveGroup
from coordinator.protocol.values import Disposition
from sharegroup.doctor.findings import GroupFacts
from sharegroup.doctor.rules import examine
from sharegroup.web import examinations
from sharegroup.web.needs import DEAD_LETTERS_STAND_S
from sharegroup.web.server import Address, Server
from tests.support import chromium
from tests.support.chromium import faults, signed_in
from tests.support.web_site import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

DLQ = "errors.deadletterqueue.topic.name"
ABANDONED = 20
RUNS = {
    "healthy": (),
    "loss": tuple((n, n, Run(RecordState.ARCHIVED, 5, disposition=Disposition.REJECTED)) for n in range(7)),
    "dlq-away": tuple((n, n, Run(RecordState.ARCHIVING, 5, disposition=Disposition.REJECTED)) for n in range(3)),
    "poison": ((4, 4, Run(RecordState.AVAILABLE, 9, failures=5, quarantined=True, failed_alone_ms=1)),),
}
"""By the group that has a member: its runs of orders-0."""
CLICKS = {"loss": 4, "dlq-away": 4, "poison": 4, "all abandoned": 1, "one abandoned": 5}
"""From the list of all groups, this many clicks lead to a mended group, or to the groups that are shown."""


class Night:
    """The page over the groups; and a person who clicks, and whose clicks are counted."""

    def __init__(self, site, page):
        self.site, self.page, self.clicks = site, page, 0

    def click(self, role, name, *, exact=False):
        self.clicks += 1
        self.page.get_by_role(role, name=name, exact=exact).first.click()

    def begin(self):
        """The list of all groups, as the watch sees them now."""
        look(self.site)
        self.page.goto(self.site.url)
        self.clicks = 0

    def needs(self):
        """The groups of the list with what is said of them."""
        rows = self.page.locator("tbody tr").all()
        return {row.locator("td.name").inner_text(): row.locator("td.look").inner_text() for row in rows}


@pytest.fixture(scope="module")
def browser():
    with chromium.browser() as found:
        yield found


@pytest.fixture
def night(tmp_path, browser, monkeypatch):
    monkeypatch.setattr(examinations, "KEPT_S", 0.1)
    monkeypatch.setattr(examinations, "REST", 0.0)
    monkeypatch.setattr(examinations, "PATIENCE_S", 60.0)  # this page's watch looks only when a test says so
    site = Page(tmp_path / "state.db")
    site.cluster.add("dlq")
    for group_id, runs in RUNS.items():
        join(site, group_id)
        if group_id in ("dlq-away", "poison"):
            site.admin._ask(AlterGroupConfigs(group_id=group_id, set={DLQ: "dlq"}, execute=True))
        put(site, group_id, runs)
    for number in range(ABANDONED):
        epoch = join(site, f"abandoned-{number:02}")
        who = {"member_id": "m1", "member_epoch": epoch}
        site.running.service.handle(LeaveGroup(group_id=f"abandoned-{number:02}", **who))
    site.cluster.delete("dlq")
    monkeypatch.setattr(site.site.examinations, "_examine", lambda group_id: found_in(site, group_id))
    with closing(site), closing(Server(site.app, Address(host="127.0.0.1", port=0))) as server:
        server.start()
        site.url = server.url
        page, wrong = signed_in(site.url, browser)
        yield Night(site, page)
        assert [each for each in wrong if "status of 400" not in each] == [], "a refused form has that status"
        page.context.close()


def join(site, group_id):
    """A member of a group that reads all of topic orders; returns its epoch."""
    configs = {"share.session.timeout.ms": "3600000"}
    who = {"group_id": group_id, "member_id": "m1", "process_id": "p", "query": False, "configs": configs}
    return site.running.joined(JoinGroup(**who, topics=("orders",), starting_offsets="earliest")).member_epoch


def put(site, group_id, runs):
    key = site.admin.list_offsets(group_id).partitions[0].topic_id

    def transaction(group):
        if runs:
            replay(group, RunsChanged(topic_id=key, partition=0, runs=runs))
        yield from ()

    site.running.runtime.call(group_id, transaction)


def look(site):
    """Let the watch look twice, with the time between that a dead letter may take."""
    site.watch.look()
    for group_id, (waiting, written, since_s) in site.watch._wrote_s.items():
        site.watch._wrote_s[group_id] = (waiting, written, since_s - DEAD_LETTERS_STAND_S)
    site.watch.look()


def found_in(site, group_id):
    """The doctor's findings, with the topics of the cluster."""
    description = site.admin.describe_groups([group_id])[group_id]
    topics = frozenset(site.cluster.topic_names())
    return examine(
        GroupFacts(
            description=description,
            runs=tuple(islice(site.admin.all_in_flight(group_id), 1_000)),
            plans=site.admin.plans(group_id),
            topics=topics,
            now_ms=site.running.runtime.clock.now_ms(),
            dead_letters_stand_still="dlq" not in topics,
        )
    )


def test_what_needs_a_person_is_found_and_mended_by_clicks(night):
    night.begin()
    listed = list(night.needs())
    assert listed[:3] in (["loss", "dlq-away", "poison"], ["loss", "poison", "dlq-away"])
    assert listed[3:23] == [f"abandoned-{number:02}" for number in range(ABANDONED)]
    assert faults(night.page, "groups-at-night") == []
    taken = {name: mend(night) for name, mend in MENDS.items()}
    assert taken == CLICKS
    look(night.site)
    needs = {group_id: seen.need for group_id, seen in night.site.watch.snapshot.groups.items()}
    left = {group_id for group_id, need in needs.items() if need and "abandoned" not in group_id}
    assert left == {"dlq-away", "poison"}, "their dead letters wait: this service has no process that writes them"
    assert "dlq" in night.site.cluster.topic_names()


def loss(night):
    """Records were given up without a dead letter topic: the group gets one."""
    night.begin()
    assert "7 given up without a dead letter" in night.needs()["loss"]
    night.click("link", "loss", exact=True)
    night.click("button", "Let loss-dead-letters take them…")
    night.click("button", "Name a dead letter topic")
    expect(night.page.get_by_text("It is done")).to_be_visible()
    night.page.go_back()
    expect(night.page.get_by_text("carried out already")).to_be_visible()
    night.page.go_forward()
    night.click("link", "To the group")
    expect(night.page.get_by_text("Nothing is wrong.")).to_be_visible()
    return night.clicks


def dlq_away(night):
    """The dead letter topic was deleted: it is created."""
    night.begin()
    assert "3 dead letters wait" in night.needs()["dlq-away"]
    night.click("link", "dlq-away")
    night.click("button", "Create dlq…")
    expect(night.page.get_by_text("which did not exist, is created")).to_be_visible()
    night.click("button", "Name a dead letter topic")
    night.click("link", "To the group")
    expect(night.page.get_by_text("Nothing is wrong.")).to_be_visible()
    return night.clicks


def poison(night):
    """A record that fails alone is given up."""
    night.begin()
    assert "1 in quarantine" in night.needs()["poison"]
    night.click("link", "poison")
    night.click("button", "Give it up…")
    night.click("button", "Archive records")
    night.click("link", "To the group")
    expect(night.page.get_by_text("failed 5 time(s)")).to_be_hidden()
    return night.clicks


def all_abandoned(night):
    """Groups that were left behind are shown alone."""
    night.begin()
    night.click("link", re.compile(r"^abandoned \d+$"))
    expect(night.page.locator("tbody tr")).to_have_count(ABANDONED)
    return night.clicks


def one_abandoned(night):
    """A group that was left behind is deleted."""
    night.begin()
    night.click("link", "abandoned-07")
    night.clicks += 1
    night.page.get_by_text("Delete the group").click()
    night.click("button", "Delete…")
    night.click("button", "Delete the group")
    night.click("link", "All groups")
    look(night.site)
    expect(night.page.get_by_role("link", name="abandoned-07")).to_have_count(0)
    return night.clicks


MENDS = {
    "loss": loss,
    "dlq-away": dlq_away,
    "poison": poison,
    "all abandoned": all_abandoned,
    "one abandoned": one_abandoned,
}


def test_a_form_that_is_refused_is_corrected_with_the_keyboard_alone(night):
    night.begin()
    night.page.goto(f"{night.site.url}group?group=poison")
    summary = night.page.locator("summary", has_text="Reset start offsets")
    summary.focus()
    night.page.keyboard.press("Enter")
    night.page.get_by_label("To", exact=True).select_option("offset")
    night.page.get_by_label("Time, offset or shift").fill("-5")
    night.page.get_by_label("Reason, for the audit log").first.fill("a long reason")
    night.page.keyboard.press("Enter")
    expect(night.page.get_by_text("-5 is below 0")).to_be_visible()
    assert faults(night.page, "form") == []
    expect(night.page.get_by_label("Time, offset or shift")).to_be_focused()
    expect(night.page.get_by_label("Reason, for the audit log")).to_have_value("a long reason")
    night.page.keyboard.press("ControlOrMeta+a")
    night.page.keyboard.type("5")
    night.page.keyboard.press("Enter")
    expect(night.page.get_by_text("End session…")).to_be_visible()
    assert "force" not in night.page.locator("main").inner_text()


def test_an_outage_is_named_on_open_pages_without_a_reload(night):
    night.begin()
    expect(night.page.locator("#away")).to_be_hidden()
    night.site.brokers_answer(False)
    expect(night.page.locator("#away")).to_contain_text("have not answered since")
    assert faults(night.page, "away") == []
    night.site.brokers_answer(True)
    expect(night.page.locator("#away")).to_be_hidden()
