"""Each page stays below 100 kB: with an hour of numbers, with the longest names and reasons, and with many of them."""

from __future__ import annotations

import html
import re
import time

import pytest

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.messages import AcquireRecords, JoinGroup
from coordinator.protocol.values import Disposition
from share_sink.redrive.dlq_reader import DeadLetter
from sharegroup.group_line import GroupLine
from sharegroup.web import examinations
from sharegroup.web.history import POINTS, History
from sharegroup.web.needs import Need
from sharegroup.web.records import LISTED, KafkaRecord, preview
from sharegroup.web.watch import Snapshot, WatchedGroup
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import wait_until
from tests.support.web_site import ACTOR, LOOKER, Page, listed_record

MOST_PAGE = 100_000
IDS = pytest.mark.parametrize("group_id", ["🚀" * 249, '"' * 249])
QUOTES = '"' * 100_000
TOPIC = "o" * 249
DLQ = "errors.deadletterqueue.topic.name"


def opened(tmp_path, topics=(TOPIC,), partitions=10):
    cluster = FakeCluster()
    for topic in topics:
        cluster.add(topic, partitions, end=10_000)
    return Page(tmp_path / "state.db", cluster)


@pytest.fixture
def page(tmp_path):
    page = opened(tmp_path)
    yield page
    page.close()


def join(page, group_id, member_id, topics=(TOPIC,)):
    who = {"member_id": member_id, "process_id": member_id, "client_id": QUOTES[:200], "client_host": QUOTES[:200]}
    options = {"query": False, "topics": tuple(topics), "starting_offsets": "earliest"}
    return page.running.joined(JoinGroup(group_id=group_id, **who, **options))


def worked(page, group_id):
    """A group of many members and many runs of all states, with reasons."""
    for number in range(60):
        joined = join(page, group_id, f"{number:032x}")
    who = {"member_id": f"{59:032x}", "member_epoch": joined.member_epoch}
    page.running.service.handle(AcquireRecords(group_id=group_id, **who, max_records=100_000, wait_ms=0))
    states = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVING)
    more = {"disposition": Disposition.REJECTED, "reason": QUOTES[:500]}
    runs = [(n, n, Run(states[n % 3], 3, failures=2, releases=1, **more)) for n in range(1_000)]
    page.put(runs, group_id=group_id)


def with_an_hour(page, names):
    """The page has seen these groups for an hour, and all that can be said of a group is said of each."""
    why = tuple((Need.STUCK, f"{10**9:,} dead letters wait") for _ in range(4))
    numbers = {"members": 10**6, "lag": 10**12, "in_flight": 10**9, "archiving": 10**9, "archived": 10**12, "done": 9}
    now_s = time.time()
    groups = {}
    for name in names:
        line = GroupLine(group_id=name, state="Stable", acquired_offsets=11, oldest_ms=10**9, **numbers)
        groups[name] = WatchedGroup(line=line, attention=why, failed=10**9, is_part=True)
        history = page.watch._histories[name] = History()
        for n in range(POINTS):
            history.add(now_s - 15 * (POINTS - n), [10.0**9 * (1 + (n * 7) % 13)] * 5)
    page.watch.snapshot = Snapshot(groups=groups, round=1)


def checked(answer):
    assert answer.status_code == 200, answer.text[:2_000]
    assert len(answer.content) < MOST_PAGE
    return answer.text


@pytest.mark.parametrize("sign", ["g", "🚀", '"', "界"])
def test_all_groups_with_a_full_hour_fit_a_page(page, sign):
    with_an_hour(page, [sign * 246 + f"{n:03}" for n in range(200)])
    text = checked(page.browser(ACTOR).get("/"))
    assert text.count("<polyline") == 50


@IDS
def test_a_group_and_its_records_fit_a_page(page, group_id):
    worked(page, group_id)
    with_an_hour(page, [group_id])
    large = {"key": preview(QUOTES.encode()), "value": preview(QUOTES.encode()), "clientId": QUOTES[:500]}
    more = {**large, "state": "IN_PROGRESS", "stage": "probation", "deliveryCount": 2**31}
    page.kafka.listed = [listed_record(10**3 + n, **more) for n in range(200)]
    browser = page.browser(ACTOR)
    where = {"group": group_id, "topic": TOPIC, "partition": 0}
    examined = wait_until(
        lambda: "being examined" not in (text := checked(browser.get("/group", **where))) and text, what="examined"
    )
    assert html.escape(group_id[:200]).replace("&quot;", "&#34;") in examined
    for path, more in (
        ("/partition", {}),
        ("/partition", {"first": 0, "last": 199}),
        ("/records", {}),
        ("/record", {"offset": 2}),
        ("/history", {"offset": 2}),
    ):
        checked(browser.get(path, **where, **more))
    for value in (b'"' * 50_000, "⟨\u202e".encode() * 9_000, b'{"a":"' + b"\\u005b" * 1_300 + b'"}'):
        headers = tuple((QUOTES[:1_000], value) for _ in range(60))
        page.kafka.records[TOPIC, 0, 3] = KafkaRecord(key=value, value=value, headers=headers, timestamp_ms=10**17)
        for form in ("", "text", "json", "hex"):
            checked(browser.get("/content", **where, offset=3, form=form))


@IDS
def test_dead_letters_with_long_reasons_fit_a_page(page, group_id):
    join(page, group_id, "m1")
    page.cluster.add("d" * 249)
    page.admin._ask(AlterGroupConfigs(group_id=group_id, set={DLQ: "d" * 249}, execute=True))
    large = QUOTES.encode()
    headers = ((QUOTES[:1_000], large),) * 60
    record = {"partition": 0, "timestamp_ms": 10**17, "key": large, "value": large, "headers": headers}
    origin = {"origin_topic": QUOTES, "origin_partition": 2**31, "group_id": group_id, "delivery_count": 10**9}
    page.kafka.found = []
    for n in range(LISTED):
        said = {"message": QUOTES + str(n), "disposition": QUOTES + str(n)}
        page.kafka.found.append(DeadLetter(offset=10**18 + n, origin_offset=10**18 + n, **record, **origin, **said))
    browser = page.browser(ACTOR)
    text = checked(browser.get("/deadletters", group=group_id))
    (reason, *_) = re.findall(r'name="reason" value="([^"]+)"', text)
    checked(browser.get("/deadletters", group=group_id, reason=reason))
    for form in ("", "text", "json", "hex"):
        checked(browser.get("/deadletter", group=group_id, at=f"0@{10**18}", form=form))
    begun = browser.post("/redrive", {"group": group_id, "scope": "all"})
    job = wait_until(
        lambda: "by itself" not in (text := checked(browser.client.get(begun.headers["location"]))) and text,
        what="done",
    )
    assert "500 records would be sent" in job


def test_a_group_of_1500_topics_fits_a_page(tmp_path):
    topics = [f"orders-of-region-{number:04}" + "x" * 200 for number in range(1_500)]
    page = opened(tmp_path, topics, partitions=1)
    try:
        join(page, "billing", "m1", topics)
        browser = page.browser(ACTOR)
        text = checked(browser.get("/group", group="billing"))
        assert re.search(r'<input id="reset-topic" name="topic"[^>]* list="[^"]+"', text)
        assert text.count('<option value="orders-of-region-') == 100
    finally:
        page.close()


def test_a_group_of_many_partitions_with_many_runs_fits_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(examinations, "KEPT_S", 3_600.0)
    page = opened(tmp_path, ("orders",), 200)
    try:
        page.running.join(starting_offsets="earliest")
        page.running.start(page.running.next(max_records=2_000_000).plan_id)
        states = (RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVING)
        page.put([(n, n, Run(states[n % 3], 1)) for n in range(1_000)])
        browser = page.browser(LOOKER)
        for number in (1, 20):
            answer = browser.get("/group", group="billing", page=number)
            assert (answer.status_code, answer.text.count("<path ") > 20) == (200, True)
            assert len(answer.content) < MOST_PAGE
        is_examined = lambda: "is being examined" not in browser.get("/group", group="billing").text  # noqa: E731
        wait_until(is_examined, what="the group was examined")
        page.admin.asked.clear()
        browser.get("/group", group="billing", page=3)
        assert sorted(page.admin.asked) == ["DescribeGroup", "ListInFlight", "ListPlans", "ListWindows", "ListWindows"]
    finally:
        page.close()
