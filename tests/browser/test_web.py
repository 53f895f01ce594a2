"""The page in a real browser, over a real broker: from an empty cluster over a poisoned topic to a redrive, by
clicking; axe-core's rules in light, in the dark and on a phone; the keyboard. The queries of the former have no Spark:
tests/spark/test_web.py has it with Spark."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
from confluent_kafka import AcknowledgeType
from playwright.sync_api import expect

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import Identity, MemberSession
from coordinator.protocol.messages import NextPlan, StartPlan
from sharegroup import Admin, ShareConsumer
from sharegroup.web.history import LONGEST_S, POINTS, History
from tests.support import chromium
from tests.support.chromium import SIZES, faults, new_page, page_server, picture, signed_in, violations
from tests.support.dead_letters import read_dead_letters
from tests.support.page_steps import GROUP as POISONED_GROUP
from tests.support.page_steps import PARTITIONS, from_an_empty_cluster_to_a_redrive
from tests.support.plain_query import PlainQuery
from tests.support.poisoned import POISONED, produce_poisoned
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.broker]

GROUP = "payments"
OTHERS = (GROUP, "thumbnails", "e-mails 🚀", "invoices")
STORE, DLQ = "share.state.store", "errors.deadletterqueue.topic.name"
LIMIT = 3
TOPICS = {"payments": 1, "orders": 2, "dlq": 1}
"""The number of partitions by topic."""


@pytest.fixture(scope="module")
def browser():
    with chromium.browser() as found:
        yield found


@pytest.fixture(scope="module")
def world(kafka, tmp_path_factory):
    """The page over a group at work: two ShareConsumers that hold records, one that works, two queries whose batches
    were tried before, a record in quarantine, dead letters."""
    payments, orders, dlq = (kafka.create_topic(f"{name}-web", count) for name, count in TOPICS.items())
    store = f"sqlite:{tmp_path_factory.mktemp('web') / 'state.db'}"
    conf = {"bootstrap.servers": kafka.bootstrap, "share.state.store": store}
    found = SimpleNamespace(kafka=kafka, payments=payments, orders=orders, dlq=dlq, conf=conf)
    with ExitStack() as opened:
        admin = opened.enter_context(Admin(conf))
        produce_poisoned(kafka, payments, 1)
        for holding in (1, 2):
            opened.enter_context(consuming(found, holds=True))
            wait_until(lambda many=holding: len(holders(admin)) == many, what=f"{holding} hold records")
        queries_at_work(found, opened)
        other_groups(found, opened)
        opened.enter_context(consuming(found, holds=False))
        for _ in range(4):
            produce_poisoned(kafka, payments, 1)
        wait_until(lambda: is_calm(admin), what="all dead letters are written, and all holds stand")
        found.url = opened.enter_context(page_server(conf, hours()))
        yield found


def other_groups(world, opened: ExitStack) -> None:
    """A group that nobody consumes, one that waits, and one that works all off."""
    client = opened.enter_context(closing(CoordinatorClient.connect(world.kafka.bootstrap, {}, world.conf[STORE])))
    options = {"topics": (world.orders,), "starting_offsets": "earliest"}
    MemberSession(client, "invoices", "monthly", **options).close(leave=True)
    opened.enter_context(closing(MemberSession(client, "e-mails 🚀", "sender", **options)))
    accept = lambda _: AcknowledgeType.ACCEPT  # noqa: E731
    opened.enter_context(PlainQuery(client, "thumbnails", "resize", world.orders, accept, {}, most=30))


def hours() -> dict[str, History]:
    """The last hour of the groups, as if they had been looked at all the time: a rush in the middle of it."""
    found, now_s = {}, time.time()
    for number, group_id in enumerate(OTHERS):
        chance = random.Random(number)
        found[group_id] = History()
        for point in range(POINTS):
            rush = math.exp(-(((point - 90 - 20 * number) / 25) ** 2))
            lag = (40 + 900 * rush) * (0.9 + 0.2 * chance.random())
            rates = [(8 + 30 * rush) * (0.8 + 0.4 * chance.random()) for _ in range(2)]
            ago_s = LONGEST_S * (1 - point / POINTS) - 10
            found[group_id].add(now_s - ago_s, (round(lag), 20 + round(60 * rush), *rates, 0))
    return found


@contextmanager
def consuming(world, *, holds: bool) -> Iterator[None]:
    """A ShareConsumer that accepts, rejects POISONED records, and releases some; or that holds what it got first."""
    conf = {
        **world.conf,
        "group.id": GROUP,
        "share.auto.offset.reset": "earliest",
        "share.acknowledgement.mode": "explicit",
        "share.delivery.count.limit": str(LIMIT),
        "share.record.lock.duration.ms": "600000",
        "share.release.backoff.ms": "300000",
        DLQ: world.dlq,
        "errors.deadletterqueue.copy.record.enable": "true",
        "max.poll.records": "40",
    }
    ended = threading.Event()

    def run() -> None:
        with ShareConsumer(conf) as consumer:
            consumer.subscribe([world.payments])
            while not ended.is_set():
                found = consumer.poll(0.5) or []
                if holds and found:
                    ended.wait()
                for message in found:
                    consumer.acknowledge(message, outcome(message.offset()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=60)


def outcome(offset: int) -> AcknowledgeType:
    if offset % 130 == 0:
        return AcknowledgeType.RELEASE
    return by_offset(offset)


def queries_at_work(world, opened: ExitStack) -> None:
    """Two queries, as a driver without Spark. The only record of partition 0 fails until it is quarantined; then each
    query gets records of its own, and comes back to its batch once."""
    client = CoordinatorClient.connect(world.kafka.bootstrap, {}, world.conf["share.state.store"])
    opened.enter_context(closing(client))

    def process_of(member_id: str) -> MemberSession:
        options = {"topics": (world.orders,), "starting_offsets": "earliest"}
        return opened.enter_context(closing(MemberSession(client, GROUP, member_id, **options)))

    def plan_of(session: MemberSession, start: str = "") -> str:
        def next_plan(who: Identity) -> NextPlan:
            return NextPlan(**who, start=start, max_records=30, wait_ms=500)

        plan_id = wait_until(lambda: session.call(next_plan).plan.plan_id, what="the query has a batch")
        session.call(lambda who: StartPlan(**who, plan_id=plan_id))
        return plan_id

    def comes_back(member_id: str, plan_id: str, times: int) -> MemberSession:
        for _ in range(times):
            session = process_of(member_id)
            session.call(lambda who: StartPlan(**who, plan_id=plan_id))
        return session

    world.kafka.produce(world.orders, [b"poison"], partition=0)
    poisoned = plan_of(process_of("scoring-a"))
    world.kafka.produce(world.orders, [b"%d" % number for number in range(80)], partition=1)
    comes_back("scoring-b", plan_of(process_of("scoring-b")), 1)
    first = comes_back("scoring-a", poisoned, LIMIT)  # now the coordinator has other records for it than the poison
    comes_back("scoring-a", plan_of(first, poisoned), 1)


def holders(admin: Admin) -> set[str]:
    """The members that hold records."""
    if not admin.list_groups().groups:
        return set()
    return {run.member_id for run in admin.all_in_flight(GROUP, only_state=("ACQUIRED",))}


def is_calm(admin: Admin) -> bool:
    """Whether two ShareConsumers and two queries hold records, one is in quarantine, and no dead letter waits."""
    partitions = admin.list_offsets(GROUP).partitions
    waits = any(p.archiving for p in partitions) or not any(p.archived_total for p in partitions)
    is_quarantined = any(run.stage == "failed alone" for run in admin.all_in_flight(GROUP))
    return not waits and is_quarantined and len(holders(admin)) >= 4


def test_from_an_empty_cluster_over_a_poisoned_topic_to_a_redrive(kafka, topic, browser, tmp_path):
    orders, dlq, store = topic("orders", PARTITIONS), topic("dlq"), f"sqlite:{tmp_path / 'state.db'}"
    letters = {DLQ: dlq, "errors.deadletterqueue.copy.record.enable": "true"}
    running = ExitStack()

    def begin() -> None:
        client = CoordinatorClient.connect(kafka.bootstrap, {}, store)
        running.enter_context(closing(client))
        both = threading.Barrier(2)
        queries = [
            PlainQuery(client, POISONED_GROUP, name, orders, by_offset, letters, most=30, others=both)
            for name in ("a", "b")
        ]
        for query in queries:  # when both have joined
            running.enter_context(query)

    with running, page_server({"bootstrap.servers": kafka.bootstrap, "share.state.store": store}) as url:
        from_an_empty_cluster_to_a_redrive(url, browser, kafka, orders, begin=begin, end=running.close)


def by_offset(offset: int) -> AcknowledgeType:
    return AcknowledgeType.REJECT if offset % POISONED == POISONED - 1 else AcknowledgeType.ACCEPT


def dead_letter_of(world) -> int:
    """The offset of a dead letter of the group."""
    found = read_dead_letters(world.kafka.bootstrap, world.dlq)
    return next(each.offset for each in found if each.said["group"] == GROUP)


PAGES = {
    "groups": ("/", {}),
    "group": ("/group", {}),
    "partition": ("/partition", {"topic": "payments", "partition": 0}),
    "offsets": ("/partition", {"topic": "payments", "partition": 0, "first": 0, "last": 119}),
    "records": ("/records", {"topic": "payments", "partition": 0}),
    "record": ("/record", {"topic": "orders", "partition": 0, "offset": 0}),
    "history": ("/history", {"topic": "orders", "partition": 0, "offset": 0}),
    "content": ("/content", {"topic": "payments", "partition": 0, "offset": 0}),
    "dead-letters": ("/deadletters", {}),
    "dead-letter": ("/deadletter", {"at": "0@"}),
}
"""Addresses and parameters by the name of the page."""


@pytest.fixture(scope="module")
def page(world, browser):
    """A page of a person who may act."""
    found, wrong = signed_in(world.url, browser)
    yield found
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_no_page_breaks_a_serious_rule_of_axe_or_its_own_policy(world, page, name):
    path, given = PAGES[name]
    where = {"group": GROUP, **given}
    if "topic" in given:
        where["topic"] = getattr(world, given["topic"])
    if "at" in given:
        where["at"] += str(dead_letter_of(world))
    page.goto(f"{world.url.rstrip('/')}{path}?{urlencode(where)}")
    wait_until(lambda: "is being examined" not in page.reload().text(), what="the doctor has spoken")
    assert faults(page, name) == []


def test_members_and_actions_fit_a_phone(world, page):
    width, height = SIZES["phone"]
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{world.url.rstrip('/')}/group?{urlencode({'group': GROUP})}")
    for name in ("Reset start offsets", "Alter a config"):
        page.get_by_text(name).click()
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for name in ("Members", "Actions"):
        heading = page.get_by_role("heading", name=name, exact=True)
        picture(
            page, name.lower(), "phone", heading.evaluate("each => each.getBoundingClientRect().top + scrollY - 10")
        )


def test_a_sign_in_page_breaks_no_serious_rule_of_axe(world, browser):
    page, wrong = new_page(browser)
    page.goto(world.url)
    assert [*faults(page, "login"), *wrong] == []


def test_a_dry_run_page_breaks_no_serious_rule_of_axe(world, page):
    page.goto(f"{world.url.rstrip('/')}/group?{urlencode({'group': GROUP})}")
    page.get_by_text("Alter a config").click()
    page.get_by_label("Key").fill("share.session.timeout.ms")
    page.get_by_label("Value; empty: its default").fill("60000")
    page.get_by_role("button", name="Alter…").click()
    expect(page.get_by_text("Nothing has been changed yet")).to_be_visible()
    assert faults(page, "confirm") == []


def test_an_error_page_breaks_no_serious_rule_of_axe(world, browser):
    page, wrong = signed_in(world.url, browser)
    answer = page.goto(f"{world.url.rstrip('/')}/group?{urlencode({'group': 'no such group'})}")
    assert answer is not None and answer.status == 404
    assert faults(page, "error") == []
    assert len(wrong) == 1 and "404" in wrong[0], "the browser says that the answer is an error, and nothing else"


def test_the_page_works_with_the_keyboard_alone(world, browser):
    page, _ = signed_in(world.url, browser)
    page.keyboard.press("/")
    expect(page.get_by_label("Search")).to_be_focused()
    page.keyboard.type("pay")
    page.keyboard.press("Enter")
    expect(page.get_by_text("match “pay”")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.get_by_role("link", name=GROUP).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="What the doctor says")).to_be_visible()
