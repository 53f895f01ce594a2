"""The way of a person through the page, by clicking: from an empty cluster over a poisoned topic to a redrive."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from coordinator.service.brokers.cluster import LATEST, KafkaCluster
from tests.support.chromium import WAIT_MS, faults, signed_in
from tests.support.kafka_broker import KafkaBroker
from tests.support.poisoned import BYTES_AT, LARGE_AT, POISONED, RECORDS, SCRIPT, produce_poisoned
from tests.support.waiting import wait_until

GROUP = "grün/🚀 <b>billing</b>"
PARTITIONS = 2
REJECTED = PARTITIONS * (RECORDS // POISONED)
"""The number of records that queries reject, each with a dead letter."""


def from_an_empty_cluster_to_a_redrive(
    url: str,
    browser: Browser,
    kafka: KafkaBroker,
    orders: str,
    *,
    begin: Callable[[], object],
    end: Callable[[], object],
) -> None:
    """The page at ``url`` shows no group; ``begin`` starts two queries of GROUP on the topic, ``end`` ends them."""
    page, wrong = signed_in(url, browser)
    expect(page.get_by_text("No group is in this state store yet")).to_be_visible()
    produce_poisoned(kafka, orders, PARTITIONS)
    begin()
    page.get_by_role("link", name=GROUP).click(timeout=2 * WAIT_MS)  # the page found it by itself
    expect(page.get_by_role("heading", name=GROUP)).to_be_visible()
    expect(page.locator("dt:has-text('Given up so far') + dd")).to_have_text(str(REJECTED), timeout=2 * WAIT_MS)
    expect(page.locator("td[data-name='Plan'] code")).to_have_count(2)
    look_at_dead_letters(page)
    release_of_a_member(page)
    look_at_records(orders, page)
    page.get_by_role("link", name=GROUP).click()
    ends = end_of(kafka, orders)
    redrive(page)
    assert end_of(kafka, orders) == ends + 1
    end()
    reset(page)
    assert wrong == []


def look_at_dead_letters(page: Page) -> None:
    page.get_by_role("link", name="Dead letters").click()
    expect(page.get_by_role("heading", name="Dead letters of")).to_be_visible()
    wait_until(
        lambda: page.reload() and page.get_by_role("checkbox").count() >= REJECTED, what="the dead letters are listed"
    )
    page.get_by_role("button", name=re.compile(r"^\d+@\d+$")).first.click()
    page.get_by_role("link", name="Who had it").click()
    expect(page.locator("td.name").nth(1)).to_have_text("rejected")
    page.get_by_role("link", name=GROUP).click()


def release_of_a_member(page: Page) -> None:
    page.get_by_role("button", name=re.compile("End the session of")).first.click()
    expect(page.get_by_text("Nothing has been changed yet")).to_be_visible()
    page.get_by_role("link", name="Change nothing").click()


def look_at_records(orders: str, page: Page) -> None:
    record_at(page, POISONED - 1)  # it is done: the window no longer has it
    page.get_by_role("link", name="Read who had it").click()
    expect(page.get_by_text("The history is whole.")).to_be_visible()
    for at, event in enumerate(("acquired", "rejected")):  # in Spark the sink writes the dead letter
        expect(page.locator("td.name").nth(at)).to_have_text(event)
    content_of(orders, POISONED - 1, LARGE_AT, page)
    expect(page.get_by_text("8,000,000 bytes, as text, cut")).to_be_visible()
    content_of(orders, LARGE_AT, BYTES_AT, page)
    expect(page.get_by_text("64 bytes, as hex")).to_be_visible()
    content_of(orders, BYTES_AT, 0, page)
    expect(page.get_by_label("Value")).to_have_text(SCRIPT.decode())
    assert "broken" not in page.title()


def record_at(page: Page, offset: int) -> None:
    page.get_by_label("Record at offset").fill(str(offset))
    page.get_by_role("button", name="Open").click()


def content_of(orders: str, before: int, offset: int, page: Page) -> None:
    """Goes from a page about the record ``before`` to what another record of its partition holds."""
    page.get_by_role("link", name=f"{orders}-0@{before}", exact=True).click()
    page.get_by_role("link", name=f"{orders}-0", exact=True).click()
    record_at(page, offset)
    page.get_by_role("link", name="Read key, value and headers").click()


def redrive(page: Page) -> None:
    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Redrive what is chosen").click()
    expect(page.get_by_text("1 record would be sent; nothing has been sent yet")).to_be_visible()
    assert faults(page, "redrive") == []
    page.get_by_role("button", name="Send 1 record").click()
    expect(page.get_by_text("1 record was sent.")).to_be_visible()


def reset(page: Page) -> None:
    """The queries have stopped: their group is empty."""
    page.get_by_role("link", name=GROUP).click()
    expect(page.get_by_text("Empty", exact=True)).to_be_visible()
    page.get_by_text("Reset start offsets").click()
    page.locator("#reset-reason").fill("begin anew")
    page.get_by_role("button", name="Reset…").click()
    expect(page.get_by_text("record(s) below the start offset of before are delivered")).to_be_visible()
    page.get_by_role("button", name="Reset start offsets").click()
    expect(page.get_by_role("heading", name="Reset start offsets: done")).to_be_visible()
    assert faults(page, "done") == []


def end_of(kafka: KafkaBroker, topic: str) -> int:
    """The sum of the end offsets of the topic's partitions, from a broker that may just have stood still."""
    where = [(topic, partition) for partition in range(PARTITIONS)]
    return sum(KafkaCluster(kafka.bootstrap, {}, WAIT_MS).offsets(where, LATEST).values())
