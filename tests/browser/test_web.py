"""The page in a real browser, over a real broker: from an empty cluster over a poisoned topic to a redrive."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from confluent_kafka import AcknowledgeType, TopicPartition
from confluent_kafka.admin import OffsetSpec
from playwright.sync_api import expect, sync_playwright

from coordinator.protocol.rights import Tokens
from share_source import ShareConsumer
from sharegroup.web.app import create_app
from sharegroup.web.command import site_of
from sharegroup.web.server import Address, Server
from tests.support.chromium import SIZES, launch, new_page, picture, violations
from tests.support.dead_letters import read_letters
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.broker, pytest.mark.soak]

ACTOR, LOOKER = "a" * 20, "l" * 20
TOKENS = Tokens.parse(f"admin ada:{ACTOR}\nread lo:{LOOKER}", "the test")
GROUP, BUSY = "grün/🚀 <b>billing</b>", "payments"
SCRIPT = b'<script>document.title = "broken"</script>'
POISON, BYTES, LARGE = 13, 21, 22
"""Offsets of records that members reject, or that look strange."""
WAIT_MS = 60_000
TOPICS = {"orders": 2, "dlq": 1, "payments": 1}
"""Topics and their partitions."""


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright, closing(launch(playwright)) as browser:
        yield browser


@pytest.fixture(scope="module")
def world(kafka):
    """The page over a cluster without groups; topics orders and dlq."""
    orders, dlq, payments = (kafka.create_topic(f"{name}-web", count) for name, count in TOPICS.items())
    with (
        site_of({"bootstrap.servers": kafka.bootstrap}, TOKENS, 1.0, is_tls=False) as site,
        closing(Server(create_app(site), Address(host="127.0.0.1", port=0))) as server,
    ):
        server.start()
        yield SimpleNamespace(kafka=kafka, orders=orders, dlq=dlq, payments=payments, url=server.url)


@contextmanager
def consuming(world, group_id=GROUP, *, holds=False) -> Iterator[None]:
    """A member that accepts, rejects each POISONth record, and releases the first one until the group gives it up; or
    that holds what it got first."""
    conf = {
        "bootstrap.servers": world.kafka.bootstrap,
        "group.id": group_id,
        "share.auto.offset.reset": "earliest",
        "share.acknowledgement.mode": "explicit",
        "share.delivery.count.limit": "3",
        "share.record.lock.duration.ms": "600000",
        "share.release.backoff.ms": "300000" if group_id != GROUP else "0",
        "errors.deadletterqueue.topic.name": world.dlq,
        "errors.deadletterqueue.copy.record.enable": "true",
        "max.poll.records": "40",
    }
    ended = threading.Event()

    def run() -> None:
        with ShareConsumer(conf) as consumer:
            consumer.subscribe([world.orders if group_id == GROUP else world.payments])
            while not ended.is_set():
                found = consumer.poll(0.5) or []
                if holds and found:
                    ended.wait()
                for message in found:
                    consumer.acknowledge(message, _outcome(message))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=60)


def _outcome(message):
    if message.offset() % (10 * POISON) == 0:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.REJECT if message.offset() % POISON == POISON - 1 else AcknowledgeType.ACCEPT


def _is_calm(text):
    """Whether members hold records, and the doctor has seen no dead letter that waits."""
    waits = ("is being examined", "wait for the dead letter topic")
    return text.count('class="acquired') > 2 and not any(each in text for each in waits)


@pytest.fixture(scope="module")
def busy(world, chromium):
    """A group at work: members that hold records, one that works, records that wait, dead letters."""
    with consuming(world, BUSY, holds=True), consuming(world, BUSY, holds=True), consuming(world, BUSY):
        for _ in range(5):
            poison(world, world.payments, 1)
        page, _ = signed_in(world, chromium)
        page.get_by_role("link", name=BUSY, exact=True).click(timeout=WAIT_MS)
        expect(page.locator("dt:has-text('Given up so far') + dd")).not_to_have_text("0", timeout=WAIT_MS)
        wait_until(lambda: _is_calm(page.reload().text()), what="records are held, and all dead letters written")
        page.context.close()
        yield


def signed_in(world, browser, look="light", token=ACTOR):
    page, wrong = new_page(browser, look)
    page.goto(world.url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Share groups")).to_be_visible(timeout=WAIT_MS)
    return page, wrong


def poison(world, topic, partitions):
    values = [b'{"order": %d}' % n for n in range(120)]
    for offset, value in ((0, SCRIPT), (BYTES, random.Random(7).randbytes(64)), (LARGE, b'"' * 8_000_000)):
        values[offset] = value
    headers = [(SCRIPT.decode(), SCRIPT)]
    for partition in range(partitions):
        world.kafka.produce(topic, values, partition=partition, headers=headers, message_max_bytes=9_000_000)


def test_from_an_empty_cluster_over_a_poisoned_topic_to_a_redrive(world, chromium):
    page, wrong = signed_in(world, chromium)
    expect(page.get_by_text("No group is in this state store yet")).to_be_visible(timeout=WAIT_MS)
    with consuming(world):
        poison(world, world.orders, 2)
        page.get_by_role("link", name=GROUP).click(timeout=WAIT_MS)  # the page found it by itself
        expect(page.get_by_role("heading", name=GROUP)).to_be_visible()
        expect(page.locator("dt:has-text('Given up so far') + dd")).to_have_text("20", timeout=WAIT_MS)
        dead_letters(page)
        _release_of_a_member(page)
    _single_record(world, page)
    ends = end_of(world)
    _redrive(page)
    assert end_of(world) == ends + 1
    _reset(page)
    assert wrong == []


def dead_letters(page):
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_role("heading", name="Dead letters of")).to_be_visible()
    wait_until(lambda: page.reload() and page.get_by_role("checkbox").count() >= 20, what="the dead letters are listed")
    page.get_by_role("link", name=GROUP).click()


def _release_of_a_member(page):
    page.get_by_role("button", name=re.compile("Release what")).first.click()
    expect(page.get_by_text("Nothing has been changed yet")).to_be_visible()
    page.get_by_role("link", name="Change nothing").click()


def _single_record(world, page):
    page.get_by_role("link", name=f"{world.orders}-0").click()
    page.get_by_label("First offset").fill("0")
    page.get_by_label("Last offset").fill("120")
    page.get_by_role("button", name="Show").click()
    page.goto(page.url.replace("/partition?", "/record?").split("&first")[0] + f"&offset={LARGE}")
    page.get_by_role("link", name="Read key, value and headers").click()
    expect(page.get_by_text("8,000,000 bytes, as text, cut")).to_be_visible(timeout=WAIT_MS)
    page.goto(page.url.replace(f"offset={LARGE}", f"offset={BYTES}"))
    expect(page.get_by_text("64 bytes, as hex")).to_be_visible(timeout=WAIT_MS)
    page.goto(page.url.replace(f"offset={BYTES}", "offset=0"))
    expect(page.get_by_label("Value")).to_have_text(SCRIPT.decode(), timeout=WAIT_MS)
    assert "broken" not in page.title()


def _redrive(page):
    page.get_by_role("link", name=GROUP).click()
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Redrive what is chosen").click()
    expect(page.get_by_text("1 record would be sent; nothing has been sent yet")).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("button", name="Send 1 record").click()
    expect(page.get_by_text("1 record was sent.")).to_be_visible(timeout=WAIT_MS)


def _reset(page):
    """The member has left: its group is empty as soon as its session is over."""
    page.get_by_role("link", name=GROUP).click()
    expect(page.get_by_text("Empty", exact=True)).to_be_visible(timeout=WAIT_MS)
    page.get_by_text("Reset start offsets").click()
    page.get_by_label("Reason, for the audit log").first.fill("begin anew")
    page.get_by_role("button", name="Reset…").click()
    expect(page.get_by_text("offsets are delivered again")).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("button", name="Reset start offsets").click()
    expect(page.get_by_role("heading", name="Reset start offsets: done")).to_be_visible(timeout=WAIT_MS)


def _dead_letter_of(group_id, world):
    """The offset of a dead letter of the group."""
    found = read_letters(world.kafka.bootstrap, world.dlq)
    return next(each.offset for each in found if each.said["group"] == group_id)


def end_of(world):
    """The sum of the end offsets of the topic's partitions."""
    asked = {TopicPartition(world.orders, partition): OffsetSpec.latest() for partition in range(2)}
    return sum(answer.result(60).offset for answer in world.kafka.admin.list_offsets(asked).values())


@pytest.mark.parametrize("look", SIZES)
def test_no_page_breaks_a_serious_rule_of_axe_or_its_own_policy(world, busy, chromium, look):
    page, wrong = new_page(chromium, look)
    page.goto(world.url)
    found = {"login": violations(page)}
    picture(page, "login", look)
    page.context.close()
    page, wrong = signed_in(world, chromium, look)
    where = {"group": BUSY, "topic": world.payments, "partition": 0}
    for name, query in {
        "groups": ("/", {}),
        "group": ("/group", where),
        "partition": ("/partition", where),
        "offsets": ("/partition", {**where, "first": 0, "last": 119}),
        "record": ("/record", {**where, "offset": 0}),
        "content": ("/content", {**where, "offset": 0}),
        "dead-letters": ("/deadletters", where),
        "dead-letter": ("/deadletter", {**where, "at": f"0@{_dead_letter_of(BUSY, world)}"}),
    }.items():
        page.goto(f"{world.url.rstrip('/')}{query[0]}?{urlencode(query[1])}")
        wait_until(lambda: "is being examined" not in page.reload().text(), what="the doctor has spoken")
        found[name] = violations(page)
        wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        found[name] += ["wider than the screen"] if wide else []
        picture(page, name, look)
    page.goto(f"{world.url.rstrip('/')}/group?{urlencode(where)}")
    page.get_by_text("Alter a config").click()
    page.get_by_label("Key").fill("share.session.timeout.ms")
    page.get_by_label("Value; empty: its default").fill("60000")
    page.get_by_role("button", name="Alter…").click()
    expect(page.get_by_text("Nothing has been changed yet")).to_be_visible()
    found["confirm"] = violations(page)
    picture(page, "confirm", look)
    assert {name: broken for name, broken in found.items() if broken} == {}
    assert wrong == []
    page.context.close()


def test_the_page_works_with_the_keyboard_alone(world, chromium):
    page, _ = signed_in(world, chromium)
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("billing")
    page.keyboard.press("Enter")
    expect(page.get_by_text("match “billing”")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.get_by_role("link", name=GROUP).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="What the doctor says")).to_be_visible()


def test_who_only_looks_sees_no_action(world, chromium):
    page, _ = signed_in(world, chromium, token=LOOKER)
    page.get_by_role("link", name=GROUP).click()
    expect(page.get_by_role("heading", name="Members")).to_be_visible()
    assert page.locator("form[action='/act']").count() == 0
