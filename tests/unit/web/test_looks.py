"""The page's looks: all groups, a group, a partition, a record; whatever they are called, and whatever they hold."""

from __future__ import annotations

import contextlib
import html
import itertools
import random
import re
import threading
import time
from types import SimpleNamespace

import pytest

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import InFlightPage
from coordinator.protocol.errors import CoordinatorUnreachable
from coordinator.protocol.messages import JoinGroup, LeaveGroup, ReportEnding
from coordinator.protocol.values import Disposition
from sharegroup.doctor import findings
from sharegroup.doctor.findings import Severity
from sharegroup.group_line import GroupLine
from sharegroup.web import examinations, group_pages, history, watch
from sharegroup.web.examinations import Examinations
from sharegroup.web.needs import Need, attention
from sharegroup.web.record_page import MOST_LISTED, MOST_SEARCHED
from sharegroup.web.records import KafkaRecord
from sharegroup.web.watch import Snapshot, WatchedGroup
from tests.support.running_service import held as held_by
from tests.support.service_sinks import stage
from tests.support.waiting import wait_until
from tests.support.web_site import LOOKER, Page, listed_record

MOST_PAGE = 100_000
SCRIPT = "<script>alert(1)</script>"
WHERE = {"group": "billing", "topic": "orders", "partition": 0}


@pytest.fixture
def page(tmp_path):
    page = Page(tmp_path / "state.db")
    yield page
    page.close()


@pytest.fixture
def held(page):
    """A query holds 0 to 9 of orders-0."""
    page.running.join(starting_offsets="earliest", client_id="etl", client_host="host-1", client_pid=4711)
    page.running.start(page.running.next(max_records=20).plan_id)
    page.watch.look()
    return page


def line(group_id, **fields):
    base = {"state": "Stable", "members": 1, "lag": 5, "in_flight": 2, "archiving": 0, "archived": 0, "done": 9}
    return GroupLine(group_id=group_id, **{**base, "acquired_offsets": 11, **fields})


def Finding(**fields):  # noqa: N802 - a finding whose severity does not matter
    return findings.Finding(severity=Severity.ERROR, do="", **fields)


def names(text):
    """The groups on the page, in order."""
    return re.findall(r'<td class="name"><a href="/group\?group=[^"]*">([^<]*)</a>', text)


def examined(browser):
    """The group's page, when the doctor has spoken."""

    def text():
        found = browser.get("/group", group="billing").text
        return "" if "is being examined" in found else html.unescape(found)

    return wait_until(text, what="the group was examined")


# --- all groups


def test_groups_that_need_a_person_come_first_of_2000(page):
    groups = {f"g{n:04}": WatchedGroup(line=line(f"g{n:04}", lag=n)) for n in range(2_000)}
    groups["g0007"] = WatchedGroup(line=line("g0007"), attention=((Need.ABANDONED, "nobody consumes"),))
    groups["g0003"] = WatchedGroup(line=line("g0003"), attention=((Need.STUCK, "1 in quarantine"),))
    page.watch.snapshot = Snapshot(groups=groups, round=1)
    answer = page.browser(LOOKER).get("/")
    assert names(answer.text)[:3] == ["g0003", "g0007", "g1999"]
    assert "2,000 groups; 2 need a person" in answer.text
    assert len(answer.content) < MOST_PAGE


def looks_take_seconds(monkeypatch):
    times = itertools.count(0.0, 2.0)
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: next(times), time=lambda: 0.0))
    monkeypatch.setattr(watch, "REST", 0)


def test_the_first_look_shows_groups_before_it_ends(page, monkeypatch):
    looks_take_seconds(monkeypatch)
    for group_id in ("g1", "g2", "g3"):
        request = JoinGroup(group_id=group_id, member_id="m", process_id="p", topics=("orders",))
        page.running.joined(request)
    look_at, shown = page.watch._look_at, []
    monkeypatch.setattr(
        page.watch, "_look_at", lambda *given: shown.append(len(page.watch.snapshot.groups)) or look_at(*given)
    )
    page.watch.look()
    assert shown == [0, 1, 2]
    assert (page.watch.snapshot.round, len(page.watch.snapshot.groups)) == (1, 3)


def test_open_pages_are_updated_during_a_round_over_many_groups(page, monkeypatch):
    looks_take_seconds(monkeypatch)
    for number in range(12):
        page.running.joined(JoinGroup(group_id=f"g{number:02}", member_id="m", process_id="p", topics=("orders",)))
    page.watch.look()
    looked, told = [], []
    look_at = page.watch._look_at
    monkeypatch.setattr(page.watch, "_look_at", lambda *given: looked.append(given[0]) or look_at(*given))
    page.watch.opened(["g11"])
    page.watch.tell(lambda number: told.append((number, len(looked), len(page.watch.snapshot.groups))))
    page.watch.look()
    assert looked.count("g11") >= 2, "the group of an open page is looked at before its turn"
    assert looked.index("g11") < looked.index("g05")
    assert [number for number, *_ in told] == [1] * (len(told) - 1) + [2]
    assert len(told) >= 3
    assert {groups for *_, groups in told} == {12}


def test_a_page_of_all_groups_asks_no_coordinator(held):
    browser = held.browser(LOOKER)
    held.admin.asked.clear()
    assert names(browser.get("/").text) == ["billing"]
    assert held.admin.asked == []


def test_a_search_finds_groups_by_parts_of_their_ids(page):
    page.watch.snapshot = Snapshot(
        groups={name: WatchedGroup(line=line(name)) for name in ("Billing-eu", "audit")}, round=1
    )
    browser = page.browser(LOOKER)
    assert names(browser.get("/", search="eu bill").text) == ["Billing-eu"]
    assert "No group matches" in browser.get("/", search="none").text


def test_groups_come_in_pages(page):
    page.watch.snapshot = Snapshot(groups={f"g{n:02}": WatchedGroup(line=line(f"g{n:02}")) for n in range(30)}, round=1)
    browser = page.browser(LOOKER)
    first, second = browser.get("/").text, browser.get("/", page=2).text
    assert sorted(names(first) + names(second)) == [f"g{n:02}" for n in range(30)]
    assert 'rel="next"' in first
    assert 'rel="prev"' in second


@pytest.mark.parametrize(
    ("fields", "given", "says"),
    [
        ({"state": "Empty", "members": 0}, (0, 0), "nobody consumes"),
        ({"state": "Unknown", "members": 0}, (0, 0), "no coordinator runs"),
        ({"archiving": 3}, (0, 0, 5.0), "3 dead letters wait"),
        ({}, (0, 700), "stalled for 11 min 40 s"),
        ({}, (2, 0), "2 in quarantine"),
        ({"ending": 1}, (0, 0), "1 keeps ending"),
        ({"dead_letter_topic_missing": True}, (0, 0), "its dead letter topic is missing"),
        ({"oldest_ms": 400_000}, (0, 0), "held for 6 min 40 s"),
    ],
)
def test_a_group_shows_why_a_person_should_look(fields, given, says):
    assert [why for _, why in attention(line("g", **fields), *given)] == [says]
    assert attention(line("g", lag=0), 0, 10_000) == ()
    assert attention(line("g", without_dead_letter=5_100), 0, 0)[0] == (
        Need.LOSS,
        "5,100 given up without a dead letter",
    )
    assert attention(line("g", slowed=2), 0, 0)[0] == (Need.SLOW, "2 slowed: sinks release")
    assert attention(line("g", archiving=3), 0, 0, 4.9) == (), "dead letters that are being written"
    assert attention(line("g", lag=7, paused_lag=7, **fields), 0, 0) == attention(line("g", lag=0, **fields), 0, 0)
    assert attention(line("g"), 2, 0, is_part=True) == ((Need.STUCK, "2 or more in quarantine"),)


FACTS = {
    Need.LOSS: {"without_dead_letter": 3},
    Need.STUCK: {"archiving": 3},
    Need.SLOW: {"slowed": 1},
    Need.ABANDONED: {"state": "Empty"},
}
"""What a group of this need has."""
MIXED = [set(some) for size in range(5) for some in itertools.combinations(Need, size)]
"""All sets of needs."""


def in_need(group_id, needs, **fields):
    """A group as the watch sees it, with these needs."""
    found = line(group_id, **{name: value for need in needs for name, value in FACTS[need].items()}, **fields)
    return WatchedGroup(line=found, attention=attention(found, 0, 0, 9.0))


def test_groups_come_by_their_worst_need_whatever_else_they_need(page):
    groups = {f"g{n}": in_need(f"g{n}", needs, lag=10 + n) for n, needs in enumerate(MIXED)}
    page.watch.snapshot = Snapshot(groups=groups, round=1)
    assert all({need for need, _ in groups[f"g{n}"].attention} == needs for n, needs in enumerate(MIXED))
    browser = page.browser(LOOKER)
    shown = names(browser.get("/").text)
    assert [min(MIXED[int(name[1:])], default=9) for name in shown] == [1] * 8 + [2] * 4 + [3, 3, 4, 9]
    for need in Need:
        assert names(browser.get("/", show=need.word).text) == [
            name for name in shown if min(MIXED[int(name[1:])], default=9) == need
        ]
    assert names(browser.get("/", show="none").text) == ["g0"]
    assert names(browser.get("/", show="loss", search="g1").text) == [name for name in shown[:8] if "g1" in name]


@pytest.mark.parametrize(
    ("order", "first"), [("lag", "g9"), ("oldest", "g2"), ("given-up", "g3"), ("name", "g0"), ("need", "g5")]
)
def test_the_list_is_ordered_as_asked_and_keeps_the_search(page, order, first):
    groups = {f"g{n}": WatchedGroup(line=line(f"g{n}", lag=n), given_up=7 * (n == 3)) for n in range(10)}
    groups["g2"] = WatchedGroup(line=line("g2", oldest_ms=9_000))
    groups["g5"] = in_need("g5", {Need.ABANDONED})
    page.watch.snapshot = Snapshot(groups=groups, round=1)
    text = page.browser(LOOKER).get("/", order=order, search="g").text
    assert names(text)[0] == first
    assert all("search=g" in link for link in re.findall(r'href="(/\?[^"]*show=[^"]*)"', text))


def test_dead_letters_need_a_person_only_when_none_is_written(page):
    stands = page.watch._dead_letters_stand_s
    waiting = [(0, 9, 0), (3, 9, 1), (3, 9, 4), (2, 10, 7), (4, 11, 9), (4, 11, 15), (0, 15, 20), (5, 15, 50)]
    seconds = [stands(line("g", archiving=wait, archived=written), at_s) for wait, written, at_s in waiting]
    assert seconds == [0, 0, 3, 0, 0, 6, 0, 0]


def test_a_failed_look_is_shown_with_the_earlier_groups(held):
    looked_s = held.watch.snapshot.groups["billing"].at_s
    held.admin.broken = CoordinatorUnreachable(endpoints="c:1", reason="refused")
    held.watch.look()
    text = held.browser(LOOKER).get("/").text
    assert names(text) == ["billing"]
    assert "CoordinatorUnreachable" in text
    assert f"As of {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(looked_s))} UTC" in text


def test_a_group_that_was_deleted_is_forgotten(held):
    held.watch.snapshot = Snapshot(groups={"gone": WatchedGroup(line=line("gone"))}, round=1)
    held.watch.look()
    assert list(held.watch.snapshot.groups) == ["billing"]


# --- a group, a partition, a record


def test_a_group_page_shows_the_doctor_the_strip_and_the_holders(held):
    text = examined(held.browser(LOOKER))
    assert "Nothing is wrong." in text
    assert 'aria-label="offsets 0 to 9: 10 held by a member"' in text
    assert "etl <code>m1</code>" in text and "host-1, 4711" in text
    assert "<code>m1</code>" in text


def test_a_page_of_an_ordered_group_says_what_waits(page):
    page.running.join(starting_offsets="earliest", configs={"share.order": "partition"}, client_id="etl")
    plan = page.running.next(max_records=200).plan_id
    page.running.start(plan)
    stage(page.running, (3, 5, 1, 2, 3_600_000))
    page.running.next(plan)
    page.cluster.move("orders", 200, 0)
    page.cluster.move("orders", 200, 1)
    assert held_by(page.running.next(plan)) == {("orders", 1): [(100, 199)]}
    page.running.join("m2", client_id="late")
    page.running.next(member="m2")
    text = examined(page.browser(LOOKER))
    assert "1 partition(s) wait for released records: orders-0 for offset 3, released at" in text
    assert re.search(r"Waits for offset 3, released at [^<]*, 1 of 5 tries used up, delivered again from", text)
    assert "1 member(s) wait for partitions that others hold: late (m2)." in text
    assert ">waits for partitions</td>" in text


def test_a_group_page_says_what_became_of_the_records(held):
    """A record that Kafka removed was not given up, nor was an offset without a record."""
    for partition in held.running.engine.groups["billing"].partitions.values():
        counts = partition.counts
        counts.removed, counts.archived[Disposition.NONE], counts.archived[Disposition.REJECTED] = 5, 3, 2
    text = held.browser(LOOKER).get("/group", group="billing").text
    assert "<dt>Accepted so far</dt><dd>0</dd>" in text
    assert "<dt>Given up so far</dt><dd>4</dd>" in text
    assert "<dt>Removed by Kafka</dt><dd>10</dd>" in text
    assert text.count("2 given up, 5 removed by Kafka") == 2
    assert "Skipped by resets" not in text


STATES = (RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED, RecordState.ARCHIVING)


@pytest.mark.parametrize("seed", range(5))
def test_one_thing_has_one_number_on_all_pages(held, seed):
    """The list, the group's page, its chart and the sums over its partitions say the same, whatever the group has."""
    chance = random.Random(seed)
    plan = held.running.engine.groups["billing"].members["m1"].newest.plan_id
    for index in range(2):
        states = enumerate(chance.choice(STATES) for _ in range(30))
        runs = [(n, n, Run(state, 1, plan_id=plan if state == RecordState.ACQUIRED else None)) for n, state in states]
        held.put(runs, partitions=(index,))
    for partition in held.running.engine.groups["billing"].partitions.values():
        counts = partition.counts
        counts.archived[Disposition.NONE] += chance.randrange(9)
        counts.archived[Disposition.REJECTED] += chance.randrange(9)
        counts.removed += chance.randrange(9)
    held.watch.look()
    browser = held.browser(LOOKER)
    listed, group = browser.get("/").text, browser.get("/group", group="billing").text
    in_list = dict(
        re.findall(r'<td data-name="(Lag|Held|Dead letters wait|Given up)" class="number">([^<]*)</td>', listed)
    )
    facts = {
        name.removesuffix(" so far"): number for name, number in re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", group)
    }
    assert {name: facts[name] for name in in_list} == in_list
    assert set(in_list) == {"Lag", "Held", "Dead letters wait", "Given up"}
    charts = dict(re.findall(r"(Lag|Held): <strong>([^<]*)</strong> now", group))
    assert charts == {name: facts[name] for name in ("Lag", "Held")}
    for name, word in (("Lag", r"lag (\d+)"), ("Held", r"held (\d+)"), ("Given up", r"(\d+) given up")):
        assert str(sum(map(int, re.findall(word, group.split("Partitions</h2>")[1].split("<h2 id")[0])))) == facts[name]
    (row,) = re.findall(r'<td data-name="Holds" class="number">([^<]*)</td>', group)
    assert row == facts["Held"]


@pytest.mark.parametrize(
    ("disposition", "says"),
    [(Disposition.NONE, "without a record: the log does not hold one there"), (Disposition.REJECTED, "given up")],
)
def test_a_record_that_was_given_up_is_no_gap(held, disposition, says):
    held.put([(3, 3, Run(RecordState.ARCHIVED, 1, disposition=disposition))], partitions=(0,))
    text = held.browser(LOOKER).get("/record", **WHERE, offset=3).text
    assert f"the record is <strong>{says}</strong>" in text
    assert ("Given up as" in text) == (disposition is Disposition.REJECTED)


def test_the_doctor_s_finding_stands_on_top_with_its_command(page):
    page.running.join(starting_offsets="earliest")
    page.running.ask(LeaveGroup)
    text = examined(page.browser(LOOKER))
    assert "The group has no member with a session" in text
    assert "sharegroup groups --describe --bootstrap-server" in text
    assert text.index("What the doctor says") < text.index("Partitions</h2>")


MISSING = {"error": "DeadLetterTopicMissing", "text": "Dead letter topic dlq does not exist. Create it."}


def test_how_a_query_ended_is_shown_before_the_doctor_has_finished(held, monkeypatch):
    """The finding of before, though it is new enough to be shown, is dropped."""
    browser, asked = held.browser(LOOKER), threading.Event()
    monkeypatch.setattr(held.site.examinations, "_examine", lambda group_id: [Finding(rule="x", what="all is well")])
    wait_until(lambda: "all is well" in browser.get("/group", group="billing").text, what="the group is examined")
    monkeypatch.setattr(held.site.examinations, "_examine", lambda group_id: asked.wait(60) and [])
    member = {"member_id": "m1", "member_epoch": held.running.epochs["m1"]}
    held.running.service.handle(ReportEnding(group_id="billing", **MISSING, **member))
    text = browser.get("/group", group="billing").text
    assert "Query etl (m1) has ended: DeadLetterTopicMissing: Dead letter topic dlq does not exist." in text
    assert "is being examined" in text and "all is well" not in text
    asked.set()


def test_a_member_that_holds_nothing_now_holds_nothing_for_too_long(held, monkeypatch):
    browser = held.browser(LOOKER)
    stale = Finding(rule="member-holds-too-long", what="m1 has held 20 record(s)", about={"member": "m1"})
    monkeypatch.setattr(held.site.examinations, "_examine", lambda group_id: [stale])
    wait_until(lambda: "has held 20" in browser.get("/group", group="billing").text, what="the group is examined")
    held.running.ask(LeaveGroup)
    assert "has held 20" not in browser.get("/group", group="billing").text


def test_findings_that_are_old_are_shown_no_more(monkeypatch):
    now_s, found = [100.0], [["held for 6 min"], []]
    monkeypatch.setattr(examinations, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(examinations, "PATIENCE_S", 60.0)
    with contextlib.closing(Examinations(lambda group_id: found.pop(0))) as doctor:
        assert doctor.of("billing").found == ("held for 6 min",)
        now_s[0] += 480.0
        assert doctor.of("billing").found == ()


def test_a_window_is_zoomed_to_single_offsets_and_a_record(held):
    browser = held.browser(LOOKER)
    text = browser.get("/partition", **WHERE, first=2, last=4).text
    assert re.findall(r"</svg>(\d+)</button>", text) == ["2", "3", "4"]
    assert 'aria-label="3: held by a member"' in text, "the state is not in its colour alone"
    record = browser.get("/record", **WHERE, offset=3).text
    assert "held by a member" in record
    assert "m1" in record
    assert 'href="/history?' in record


@pytest.mark.parametrize("path", ["/group", "/partition"])
def test_the_pages_of_a_group_and_a_partition_say_what_is_paused(held, path):
    told = "Nothing is acquired from orders: share.paused.topics has them."
    browser = held.browser(LOOKER)
    assert told not in browser.get(path, **WHERE).text
    held.site.admin.pause("billing", execute=True)
    assert told in browser.get(path, **WHERE).text


def test_a_completed_record_is_opened_by_its_offset(held):
    (plan,) = held.admin.plans("billing")
    held.running.start(held.running.next(start=plan.plan_id, max_records=20).plan_id)
    assert held.running.start_offsets()["orders", 0] == 10
    browser = held.browser(LOOKER)
    for path in ("/group", "/partition"):
        text = browser.get(path, **WHERE).text
        assert re.search(r'action="/record".*name="offset"[^>]*required', text, re.DOTALL)
    assert "done: it lies before the start offset" in browser.get("/record", **WHERE, offset=0).text


def test_a_records_history_names_members_and_ends_of_deliveries(held):
    held.running.ask(LeaveGroup)
    held.running.join(SCRIPT, client_host=SCRIPT, client_id=f"name {SCRIPT}")
    held.running.start(held.running.next(member=SCRIPT, max_records=100).plan_id, SCRIPT)
    text = held.browser(LOOKER).get("/history", **WHERE, offset=0).text
    events = re.findall(r'<td class="name">([^<]*)</td>', text)
    assert events == ["acquired", "failed: its lock was lost", "acquired"]
    assert "The history is whole." in text
    assert SCRIPT not in text and f"name {html.escape(SCRIPT)} <code>" in text
    assert "was not delivered yet" in held.browser(LOOKER).get("/history", **WHERE, offset=99).text
    assert len(text.encode()) < MOST_PAGE


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("/group", {"group": "none"}, 404),
        ("/group", {}, 400),
        ("/history", {**WHERE, "partition": 9, "offset": 0}, 404),
        ("/history", {**WHERE, "offset": "-1"}, 400),
        ("/partition", {**WHERE, "partition": 9}, 404),
        ("/partition", {**WHERE, "topic": "none"}, 404),
        ("/partition", {**WHERE, "partition": "x"}, 400),
        ("/partition", {**WHERE, "first": "-1"}, 400),
        ("/record", WHERE, 400),
        ("/record", {**WHERE, "offset": 2**63}, 400),
        ("/records", {**WHERE, "topic": "secrets"}, 404),
        ("/records", {**WHERE, "offset": "-1"}, 400),
        ("/content", {**WHERE, "offset": 0, "form": "exe"}, 400),
        ("/content", {**WHERE, "topic": "secrets", "offset": 0}, 404),
        ("/nowhere", {}, 404),
        ("/", {"page": "0"}, 400),
        ("/", {"show": "some"}, 400),
        ("/", {"order": "age"}, 400),
        ("/", {"search": "x" * 2_000}, 400),
    ],
)
def test_an_address_without_a_target_returns_an_error_page(held, path, params, status):
    answer = held.browser(LOOKER).get(path, **params)
    assert answer.status_code == status
    assert 'role="alert"' in answer.text
    assert held.kafka.read == []


def test_windows_beyond_the_partition_are_brought_inside(held):
    browser = held.browser(LOOKER)
    assert "Offsets 9 to 9" in browser.get("/partition", **WHERE, first=5_000, last=9_000).text
    assert browser.get("/partition", group="billing", topic="orders", partition=1).status_code == 200


def test_records_that_are_not_done_are_listed_from_an_offset_on(held):
    held.put([(0, 299, Run(RecordState.ACKNOWLEDGED)), (300, 300, Run(RecordState.AVAILABLE, 1))])
    held.cluster.move("orders", 10**6)
    held.kafka.listed = [listed_record(offset) for offset in range(300, 450)]
    browser = held.browser(LOOKER)
    text = browser.get("/records", **WHERE).text
    assert held.kafka.bounds[-1].starts == {("orders", 0): 300}, "what is done is left out"
    assert text.count('<button form="one" name="offset"') == MOST_LISTED and 'action="/record"' in text
    assert "offset=400" in text and ">Earlier<" not in text
    text = browser.get("/records", **WHERE, offset=400).text
    assert 'value="449"' in text and "offset=300" in text
    assert f"offset={400 + MOST_SEARCHED}" in text, "the next ones are further than one page looks"
    text = browser.get("/records", **WHERE, offset=10**6).text
    assert "none of the next offsets" in text and ">Later<" not in text


# --- whatever they hold


def test_script_in_a_record_is_text(held):
    value = f'{{"a": "{SCRIPT}"}}'.encode()
    headers = ((SCRIPT, SCRIPT.encode()),)
    held.kafka.listed = [listed_record(3, key=SCRIPT, value=SCRIPT, clientId=SCRIPT, state="ACQUIRED")]
    text = held.browser(LOOKER).get("/records", **WHERE).text
    assert SCRIPT not in text and text.count(html.escape(SCRIPT)) == 3
    held.kafka.records["orders", 0, 3] = KafkaRecord(key=SCRIPT.encode(), value=value, headers=headers, timestamp_ms=0)
    for form in ("", "text", "json", "hex"):
        text = held.browser(LOOKER).get("/content", **WHERE, offset=3, form=form).text
        assert SCRIPT not in text
        assert form == "hex" or html.escape(SCRIPT) in text


@pytest.mark.parametrize("group_id", [SCRIPT, "a/b/../c", "grün 🚀/x?y=1&z#w", '"><img src=x onerror=alert(1)>'])
def test_a_group_of_any_name_is_found_by_its_link(page, group_id):
    page.running.joined(
        JoinGroup(group_id=group_id, member_id=SCRIPT, process_id="p", topics=("orders",), starting_offsets="earliest")
    )
    page.watch.look()
    browser = page.browser(LOOKER)
    text = browser.get("/").text
    assert names(text) == [html.escape(group_id).replace("&quot;", "&#34;")]
    (link,) = re.findall(r'href="(/group[^"]*)"', text)
    answer = browser.client.get(html.unescape(link))
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text


# --- many runs


def test_a_look_at_many_runs_scans_few_and_marks_counts_as_partial(held, monkeypatch):
    monkeypatch.setattr(watch, "MOST_SCANNED", 3)
    monkeypatch.setattr(group_pages, "MOST_HELD", 3)
    held.cluster.move("orders", 1_000)
    plan = held.running.engine.groups["billing"].members["m1"].newest.plan_id
    failed = [(n, n, Run(RecordState.ACQUIRED, 2 + n % 2, failures=1, plan_id=plan)) for n in range(50)]
    held.put(failed, partitions=(0,))
    shown = []
    answer = held.admin._ask

    def asked(request, group_id=""):
        shown.append(answer(request, group_id))
        return shown[-1]

    held.admin._look = asked
    held.watch.look()
    assert len(shown) == 4, "the list of groups, and of the group its description, and pages of all and of held runs"
    assert [len(each.runs) for each in shown if isinstance(each, InFlightPage)] == [3, 51]
    seen = held.watch.snapshot.groups["billing"]
    assert (seen.failed, seen.is_part, seen.line.in_flight) == (3, True, 60)
    browser = held.browser(LOOKER)
    assert re.search(r'<td data-name="Tried again" class="number">3\+</td>', browser.get("/").text)
    text = browser.get("/group", group="billing").text
    assert re.search(r'<td data-name="Holds" class="number">3\+</td>', text)
    assert "More runs are held than were looked at" in text


def test_a_member_is_shown_beside_the_colour_of_its_records(held):
    held.running.join("m2")
    held.running.start(held.running.next(member="m2", max_records=20).plan_id, "m2")
    browser = held.browser(LOOKER)
    text = browser.get("/group", group="billing").text
    dots = dict(re.findall(r'<rect class="acquired (h\d)"[^>]*/></svg>[^<]*<code>(m\d)</code>', text))
    assert sorted(dots.values()) == ["m1", "m2"]
    assert set(re.findall(r'<path class="acquired (h\d)"', text)) == set(dots)
    one = browser.get("/partition", **WHERE).text
    assert re.findall(r'<rect class="acquired (h\d)"[^>]*/></svg>[^<]*<code>', one)[0] in one.split("<h2>")[0]


def test_a_query_has_its_batch_beside_its_plan(held):
    browser = held.browser(LOOKER)
    assert query_and_batch(browser) == ("–", "–")
    stage(held.running, (0, 9, 1, 1), query_id="etl-query", query_name="nightly", checkpoint=SCRIPT, batch_id=1_234)
    assert query_and_batch(browser) == ("etl-query", "1,234")
    pages = [browser.get(path, **WHERE).text for path in ("/group", "/partition")]
    assert all("nightly <code>m1</code>" in text and SCRIPT not in text for text in pages)
    assert html.escape(SCRIPT) in pages[0]


def query_and_batch(browser):
    text = browser.get("/group", group="billing").text
    (found,) = re.findall(r'data-name="Query">([^<]*)</td>\s*<td data-name="Batch" class="number">([^<]*)</td>', text)
    return found


def test_a_member_that_has_no_plan_and_holds_nothing_is_not_named(held):
    held.running.join("m2")
    text = held.browser(LOOKER).get("/group", group="billing").text
    assert re.search(r"<code>m2</code>.*?<td data-name=.Plan.>none</td>", text, re.DOTALL)


def test_the_last_hour_shows_the_current_and_the_largest_value(held):
    now_s = time.time()
    kept = held.watch._histories["billing"] = history.History()
    for ago_s, lag in ((1_800, 50), (900, 720), (0, 7)):
        kept.add(now_s - ago_s, (lag, 1, None, 2.0, 0))
    text = held.browser(LOOKER).get("/group", group="billing").text
    assert "Lag: <strong>200</strong> now, 720 at most" in text and "<dt>Lag</dt><dd>200</dd>" in text
    assert "<span>30 min ago</span><span>now</span>" in text


def test_a_page_s_refresh_has_the_same_address(held):
    text = held.browser(LOOKER).get("/partition", **WHERE, first=2, last=4).text
    assert 'hx-get="/partition?group=billing&amp;topic=orders&amp;partition=0&amp;first=2&amp;last=4"' in text
