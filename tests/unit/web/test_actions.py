"""The page's actions: what they would do in numbers, what a confirmation does, and who may not; dead letters and their
redrive."""

from __future__ import annotations

import html
import logging
import re
import threading
import time
from dataclasses import replace

import pytest

from coordinator.config.group_keys import PAUSED
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.errors import GroupIdNotFound, InvalidRequest, UnknownSharePartition
from coordinator.protocol.messages import LeaveGroup
from share_sink.errors import DeadLettersNotRead
from sharegroup.web.actions import KINDS
from sharegroup.web.dead_letter_pages import digest
from sharegroup.web.errors import BadRequest
from sharegroup.web.records import _without_record
from sharegroup.web.sessions import MOST_PENDING, PENDING_S, Session
from sharegroup.web.site import Visit
from tests.support.waiting import wait_until
from tests.support.web_site import ACTOR, HERE, LOOKER, SCRIPT, finished, letter, pending_of

GROUP = {"group": "billing"}
RECORD = {**GROUP, "topic": "orders", "partition": 0}
DLQ = "errors.deadletterqueue.topic.name"


@pytest.fixture
def filed(page):
    """The group has dead letters of two reasons, beside one of another group."""
    page.cluster.add("dlq")
    page.admin._ask(AlterGroupConfigs(group_id="billing", set={DLQ: "dlq"}, execute=True))
    page.kafka.found = [
        letter(offset=n, message=f"bad {SCRIPT}" if n % 2 else "timeout", origin_offset=10 + n) for n in range(6)
    ] + [letter(offset=6, group_id="audit")]
    return page


@pytest.mark.parametrize(
    ("topics", "partitions", "named"),
    [(["orders"], [9], "topic orders, partition 9"), (["nope"], [], "topic nope"), ([], [9], "partition 9")],
)
def test_offsets_that_a_group_does_not_have_are_named(page, topics, partitions, named):
    with pytest.raises(UnknownSharePartition, match=rf"no state of {named}\."):
        page.admin.list_offsets("billing", topics, partitions=partitions)


def starts(page):
    return [p.start_offset for p in page.admin.list_offsets("billing").partitions]


def executed(page):
    """The actions that were carried out."""
    return [name for name in page.admin.asked if name.endswith("!")]


def shown(browser, kind, **fields):
    """The page that an action's form leads to."""
    return browser.post("/act", {**GROUP, "kind": kind, **fields})


def confirmed(browser, answer):
    return browser.post("/act/confirm", {"pending": pending_of(answer)})


# --- actions


@pytest.mark.parametrize(
    ("fields", "says", "after"),
    [
        ({"to": "latest"}, "200 record(s) that are not done are skipped", [100, 100]),
        ({"to": "offset", "at": "7"}, "14 record(s) that are not done are skipped", [7, 7]),
        ({"to": "shift", "at": "3", "topic": "orders"}, "6 record(s) that are not done are skipped", [3, 3]),
        ({"to": "earliest"}, "0 of 2 start offsets are moved", [0, 0]),
        ({"to": "offset", "at": "99999999"}, "2 start offset(s) that are asked for lie before or beyond", [100, 100]),
        ({"to": "time", "at": "2026-11-01T08:00"}, "200 record(s) that are not done are skipped", [100, 100]),
    ],
)
def test_a_reset_is_shown_in_numbers_and_done_when_confirmed(page, actor, fields, says, after):
    page.running.ask(LeaveGroup)
    page.cluster.timestamps = {("orders", 0): {}, ("orders", 1): {}}
    answer = shown(actor, "reset", **fields)
    assert says in answer.text
    assert (starts(page), executed(page)) == ([0, 0], [])
    assert "Reset start offsets: done" in confirmed(actor, answer).text
    assert starts(page) == after


def test_a_reset_is_confirmed_though_records_arrive(page, actor):
    page.running.ask(LeaveGroup)
    answer = shown(actor, "reset", to="latest")
    page.cluster.move("orders", 101)
    assert "Reset start offsets: done" in confirmed(actor, answer).text
    assert starts(page) == [100, 100], "the offsets that were shown"


def test_numbers_that_changed_before_the_confirmation_are_shown_again(page, actor):
    page.running.ask(LeaveGroup)
    answer = shown(actor, "reset", to="latest")
    page.admin.reset_offsets("billing", 7, execute=True)
    before = executed(page)
    again = confirmed(actor, answer)
    assert "has changed meanwhile" in again.text
    assert "186 record(s) that are not done are skipped" in again.text
    assert (starts(page), executed(page)) == ([7, 7], before)
    confirmed(actor, again)
    assert starts(page) == [100, 100]


def test_a_reset_of_all_is_confirmed_though_a_topic_was_deleted(page, actor):
    page.cluster.add("refunds", end=9)
    page.running.join(starting_offsets="earliest", topics=("orders", "refunds"), member_epoch=1)
    page.running.ask(LeaveGroup)
    page.cluster.delete("refunds")
    answer = shown(actor, "reset", to="latest")
    assert "The brokers do not show topic refunds at present" in answer.text
    assert "Reset start offsets: done" in confirmed(actor, answer).text
    assert starts(page) == [100, 100, 0]


def test_a_group_that_was_made_anew_is_not_changed_by_a_confirmation(page, actor):
    page.running.ask(LeaveGroup)
    answer = shown(actor, "release_member", member="m1")
    page.admin.delete_group("billing", execute=True)
    page.running.join(starting_offsets="earliest")
    again = confirmed(actor, answer)
    assert "has changed meanwhile" in again.text
    assert page.running.engine.groups["billing"].sessions


@pytest.fixture
def two_topics(page):
    """The group reads two topics."""
    page.cluster.add("refunds", end=9)
    page.running.join(starting_offsets="earliest", topics=("orders", "refunds"), member_epoch=1)
    return page


def paused(page):
    return page.admin.describe_groups(["billing"])["billing"].configs.get(PAUSED, "")


@pytest.mark.parametrize(
    ("calls", "value"),
    [
        ([("pause", [])], "*"),
        ([("pause", ["orders"]), ("pause", ["refunds", "orders"])], "orders,refunds"),
        ([("pause", ["orders", "refunds"]), ("resume", ["orders"])], "refunds"),
        ([("pause", ["orders"]), ("pause", [])], "*"),
        ([("pause", []), ("pause", ["orders"])], "*"),
        ([("pause", []), ("resume", [])], ""),
        ([("pause", ["orders"]), ("resume", ["orders"])], ""),
        ([("resume", ["orders"])], ""),
    ],
)
def test_topics_are_paused_and_resumed(two_topics, calls, value):
    for action, topics in calls:
        before = paused(two_topics)
        getattr(two_topics.admin, action)("billing", topics)
        assert paused(two_topics) == before, "a dry run changes nothing"
        getattr(two_topics.admin, action)("billing", topics, execute=True)
    assert paused(two_topics) == value


def test_two_who_pause_at_once_do_not_undo_each_other(two_topics, monkeypatch):
    admin, looked = two_topics.admin, type(two_topics.admin)._described

    def another_pauses_meanwhile(group_id):
        found = looked(admin, group_id)
        monkeypatch.undo()
        admin.pause("billing", ["refunds"], execute=True)
        return found

    monkeypatch.setattr(admin, "_described", another_pauses_meanwhile)
    altered = admin.pause("billing", ["orders"], execute=True)
    assert [(each.before, each.after) for each in altered.effects] == [("refunds", "refunds,orders")]


def test_a_topic_of_a_paused_group_is_not_resumed_alone(two_topics):
    two_topics.admin.pause("billing", execute=True)
    with pytest.raises(InvalidRequest, match=r"All topics of share group billing are paused: resume all, or set"):
        two_topics.admin.resume("billing", ["orders"])
    for act in (two_topics.admin.pause, two_topics.admin.resume):
        with pytest.raises(UnknownSharePartition, match="no state of topic nope"):
            act("billing", ["nope"])
        with pytest.raises(GroupIdNotFound):
            act("gone")


def test_a_group_is_paused_and_resumed_on_the_page(page, actor):
    assert "Resume deliveries" not in actor.get("/group", **GROUP).text
    answer = shown(actor, "pause", topic="")
    assert "share.paused.topics" in answer.text and paused(page) == ""
    confirmed(actor, answer)
    assert paused(page) == "*"
    text = actor.get("/group", **GROUP).text
    assert "Resume deliveries" in text and "Nothing is acquired from orders" in text
    confirmed(actor, shown(actor, "resume"))
    assert paused(page) == ""
    assert "no state of topic nope" in shown(actor, "pause", topic="nope").text


def test_an_action_is_confirmed_once(page, actor):
    page.running.ask(LeaveGroup)
    pending = pending_of(shown(actor, "reset", to="latest"))
    assert actor.post("/act/confirm", {"pending": pending}).status_code == 200
    assert actor.post("/act/confirm", {"pending": pending}).status_code == 400
    assert len(executed(page)) == 1


def test_another_session_can_not_confirm(page, actor):
    page.running.ask(LeaveGroup)
    pending = pending_of(shown(actor, "reset", to="latest"))
    assert page.browser(ACTOR).post("/act/confirm", {"pending": pending}).status_code == 400
    assert executed(page) == []


def test_pending_confirmations_are_bounded(monkeypatch):
    session = Session(visitor=None, until_s=1.0)
    names = [session.ask_confirmation("delete", {}) for _ in range(MOST_PENDING + 1)]
    for name, then_s in ((names[0], 0.0), (names[1], PENDING_S + 1)):
        with monkeypatch.context() as patch:
            now_s = time.monotonic() + then_s
            patch.setattr("sharegroup.web.sessions.time.monotonic", lambda now_s=now_s: now_s)
            with pytest.raises(BadRequest, match="carried out already"):
                session.confirmed(name)
    assert session.confirmed(names[2]).kind == "delete"


def test_a_member_s_records_are_released(page, actor):
    text = actor.get("/group", **GROUP).text
    assert 'name="member" value="m1"' in text
    answer = shown(actor, "release_member", member="m1")
    assert re.search(r"\b20\b", answer.text)
    assert executed(page) == []
    assert "done" in confirmed(actor, answer).text
    first, second = page.admin.all_in_flight("billing", limit=1)
    assert (first.state, second.state) == ("AVAILABLE", "AVAILABLE")
    cursor = page.admin.in_flight("billing", limit=1).cursor
    assert list(page.admin.all_in_flight("billing", limit=1, cursor=cursor)) == [second]


def test_one_record_is_released_and_archived_with_a_reason(page, actor):
    text = actor.get("/record", **RECORD, offset=3).text
    assert "Release it…" in text
    assert "Archive it…" not in text, "it would be refused: a member holds the record"
    confirmed(actor, shown(actor, "release", **RECORD, first=3, last=3))
    assert actor.get("/record", **RECORD, offset=3).text.count('name="first" value="3"') == 2
    assert "available" in actor.get("/record", **RECORD, offset=3).text
    assert shown(actor, "archive", **RECORD, first=3, last=3, reason=" ").status_code == 400
    confirmed(actor, shown(actor, "archive", **RECORD, first=3, last=3, reason=SCRIPT))
    page_of_record = actor.get("/record", **RECORD, offset=3).text
    assert "given up" in page_of_record
    assert SCRIPT not in page_of_record


def test_configs_are_set_and_unset_after_a_check(page, actor):
    answer = shown(actor, "configs", key="share.session.timeout.ms", value="60000")
    assert "60000" in answer.text
    confirmed(actor, answer)
    assert page.admin.describe_groups(["billing"])["billing"].configs["share.session.timeout.ms"] == "60000"
    confirmed(actor, shown(actor, "configs", key="share.session.timeout.ms", value=""))
    assert "share.session.timeout.ms" not in page.admin.describe_groups(["billing"])["billing"].configs
    assert shown(actor, "configs", key="share.session.timeout.ms", value="0").status_code == 400
    assert shown(actor, "configs", key="no.such", value="1").status_code == 400


def test_an_empty_group_is_deleted(page, actor):
    assert "GroupNotEmpty" in shown(actor, "delete").text
    page.running.ask(LeaveGroup)
    assert "Delete the group: done" in confirmed(actor, shown(actor, "delete")).text
    assert actor.get("/group", **GROUP).status_code == 404


def test_the_audit_log_names_the_actor_and_the_reason(page, actor, caplog):
    asked = []
    page.admin._ask = lambda request, group_id="", ask=page.admin._ask: asked.append(request) or ask(request)
    with caplog.at_level(logging.INFO):
        confirmed(actor, shown(actor, "release_member", member="m1", reason="it hangs"))
    assert asked[-1].reason == "it hangs (on the page, by ada)"
    assert "by='ada' action=release_member group='billing'" in caplog.text


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("explode", {}),
        ("release", {**RECORD, "first": "0", "last": "99999999"}),
        ("release_member", {"member": "nobody"}),
    ],
)
def test_an_impossible_form_is_refused(page, actor, kind, fields):
    answer = shown(actor, kind, **fields)
    assert answer.status_code in (400, 404)
    assert executed(page) == []


# --- who may not


def test_a_token_that_looks_can_not_act(page, filed):
    looker = page.browser(LOOKER)
    page.admin.asked.clear()
    for path in ("/act", "/act/confirm", "/redrive", "/redrive/confirm"):
        for kind in KINDS:
            fields = {"kind": kind, "to": "latest", "member": "m1", "first": 1, "chosen": "0@1"}
            answer = looker.post(path, {**RECORD, **fields})

            assert (answer.status_code, "NotAllowed" in answer.text) == (403, True)
    assert page.admin.asked == []
    assert page.kafka.sent == []
    assert [looker.get("/form", **GROUP, kind=kind).status_code for kind in KINDS] == [403] * len(KINDS)
    for path in ("/group", "/record", "/deadletters"):
        assert "/act" not in looker.get(path, **RECORD, offset=3).text
        assert "<button class=" not in looker.get(path, **RECORD, offset=3).text


@pytest.mark.parametrize("path", ["/act", "/act/confirm", "/redrive", "/redrive/confirm", "/logout"])
@pytest.mark.parametrize(
    ("origin", "csrf"),
    [
        ("http://evil.example", None),
        (f"{HERE}.evil.example", None),
        ("null", None),
        (None, None),
        ("", ""),
        (HERE, ""),
        (HERE, "x" * 43),
    ],
)
def test_a_forged_action_changes_nothing(page, actor, path, origin, csrf):
    page.running.ask(LeaveGroup)
    pending = pending_of(shown(actor, "reset", to="latest"))
    form = {**GROUP, "kind": "reset", "to": "latest", "pending": pending, "scope": "all"}
    sent = {} if origin == "" else {"origin": origin}
    answer = actor.post(path, form, csrf=csrf, **sent)
    assert (answer.status_code, "Forged" in answer.text or "/act" in path) == (403, True)
    assert actor.get("/").status_code == 200, "the session goes on"
    assert (starts(page), executed(page), page.kafka.sent) == ([0, 0], [], [])


def test_a_get_request_carries_out_no_action(page, actor):
    for path in ("/act", "/act/confirm", "/redrive/confirm"):
        assert actor.get(path, **GROUP, kind="delete").status_code in (404, 405)
    assert executed(page) == []


# --- dead letters


def test_dead_letters_are_listed_by_reason_and_time(filed, actor):
    text = actor.get("/deadletters", **GROUP).text
    assert re.findall(r'name="chosen" value="([^"]+)"', text) == [f"0@{n}" for n in range(6)]
    assert SCRIPT not in text
    assert html.escape(SCRIPT) in text
    only = actor.get("/deadletters", **GROUP, reason=digest("timeout")).text
    assert re.findall(r'name="chosen" value="([^"]+)"', only) == ["0@0", "0@2", "0@4"]


TEXTS = (None, b"", b"paid", b"a\nb " + SCRIPT.encode(), b"x" * 5_000)
VALUES = (*TEXTS, b"\xff\xfe" + bytes(range(60)), "é🚀".encode() * 40)


def test_the_content_of_dead_letters_is_shown_before_they_are_sent(filed, actor):
    filed.kafka.found = [letter(offset=n, value=value) for n, value in enumerate(VALUES)]
    listed = actor.get("/deadletters", **GROUP).text
    dry = finished(actor, actor.post("/redrive", {**GROUP, "scope": "all"})).text
    for text in (listed, dry):
        found = [html.unescape(each) for each in re.findall(r"<code>(.*?)</code>", text)]
        assert len(found) == len(VALUES) and SCRIPT not in text
        assert found[:3] == ["null", "", "paid"] and found[3] == f"a b {SCRIPT}"
        assert found[5].startswith("0xff fe 00 01") and all(len(each) < 100 for each in found)
        assert found[6].startswith("é🚀é🚀") and found[6].endswith("…")
    assert filed.kafka.sent == []
    assert len(_without_record(letter(offset=1, value=b"v" * 10_000)).value or b"") < 100, (
        "a list keeps no whole records"
    )


def test_all_that_match_are_chosen_by_one_button(filed, actor):
    for reason, sent in (("", 6), (digest("timeout"), 3)):
        text = actor.get("/deadletters", **GROUP, reason=reason).text
        (button,) = re.findall(r'<button form="all" name="reason" value="([^"]*)">Redrive all (?:of|with)', text)
        assert button == reason
        assert 'id="all"' in text and 'name="scope" value="all"' in text
        dry = finished(actor, actor.post("/redrive", {**GROUP, "scope": "all", "reason": button}))
        assert f"{sent} records would be sent" in dry.text


def test_a_record_leads_to_its_dead_letters_and_back(filed, actor):
    filed.kafka.found.append(letter(offset=9, origin_offset=3))
    (link,) = re.findall(r'href="(/deadletters\?[^"]*offset=3[^"]*)"', archived_record(filed, actor))
    text = actor.client.get(html.unescape(link)).text
    assert re.findall(r'name="chosen" value="([^"]+)" checked', text) == ["0@9"]
    (back,) = re.findall(r'of record <a href="([^"]+)"', text)
    assert actor.client.get(html.unescape(back)).status_code == 200
    assert "Look for its dead letters" not in actor.get("/record", **RECORD, offset=4).text, "it is held"


def archived_record(page, actor):
    """The page of a record that was given up."""
    confirmed(actor, shown(actor, "release", **RECORD, first=3, last=3))
    confirmed(actor, shown(actor, "archive", **RECORD, first=3, last=3, reason="bad"))
    return actor.get("/record", **RECORD, offset=3).text


def test_a_refused_redrive_keeps_the_list(filed, actor):
    answer = actor.post("/redrive", {**GROUP, "reason": digest("timeout")})
    assert (answer.status_code, "Choose at least one dead letter." in answer.text) == (400, True)
    assert re.findall(r'name="chosen" value="([^"]+)"', answer.text) == ["0@0", "0@2", "0@4"]
    answer = actor.post("/redrive", {**GROUP, "chosen": ["0@1", "0@x"]})
    assert re.findall(r'name="chosen" value="([^"]+)" checked', answer.text) == ["0@1"]


def test_a_dead_letter_shows_its_record_and_reason(filed, actor):
    text = actor.get("/deadletter", **GROUP, at="0@1").text
    assert "orders-0@11" in text
    for path in ("/record", "/history"):
        assert f'href="{path}?group=billing&amp;topic=orders&amp;partition=0&amp;offset=11"' in text
    assert SCRIPT not in text
    assert actor.get("/deadletter", **GROUP, at="0@6").status_code == 400, "it is another group's"
    assert actor.get("/deadletter", **GROUP, at="0@99").status_code == 400


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ({"chosen": ["0@1", "0@4"]}, [(0, 1), (0, 4)]),
        ({"scope": "all", "reason": digest("timeout")}, [(0, 0), (0, 2), (0, 4)]),
        ({"scope": "all"}, [(0, n) for n in range(6)]),
        ({"chosen": ["0@1", "0@6"]}, [(0, 1)]),
    ],
)
def test_a_redrive_sends_the_chosen_records_after_its_dry_run(filed, actor, form, sent):
    dry = finished(actor, actor.post("/redrive", {**GROUP, **form}))
    assert f"{len(sent)} record{'s' if len(sent) > 1 else ''} would be sent" in dry.text
    assert filed.kafka.sent == []
    done = finished(actor, actor.post("/redrive/confirm", {"pending": pending_of(dry)}))
    assert f"{len(sent)} record{'s were' if len(sent) > 1 else ' was'} sent" in done.text
    assert filed.kafka.sent == sent
    assert actor.post("/redrive/confirm", {"pending": pending_of(dry)}).status_code == 400


def test_a_redrive_is_in_the_audit_log_with_its_beginning_and_end(filed, actor, caplog):
    caplog.set_level(logging.INFO, "sharegroup.audit")
    dry = finished(actor, actor.post("/redrive", {**GROUP, "chosen": ["0@1", "0@4"]}))
    assert not caplog.records, "a dry run sends nothing"
    finished(actor, actor.post("/redrive/confirm", {"pending": pending_of(dry)}))
    begun, done = (record.getMessage() for record in caplog.records if record.name == "sharegroup.audit")
    assert begun.startswith('begun: who=admin ada from=the page request={"type":"Redrive","group_id":"billing"')
    assert '"dead_letters":["0@1","0@4"]' in done
    assert (done.startswith("done: "), done.endswith(" sent=2")) == (True, True)
    caplog.clear()
    dry = finished(actor, actor.post("/redrive", {**GROUP, "chosen": ["0@1"]}))
    filed.kafka.error = DeadLettersNotRead(topic="dlq", reason="no\nleader")
    finished(actor, actor.post("/redrive/confirm", {"pending": pending_of(dry)}))
    stopped = caplog.records[-1].getMessage()
    assert stopped.startswith("stopped: who=admin ada")
    assert "DeadLettersNotRead" in stopped
    assert "\n" not in stopped


def test_a_failed_redrive_shows_the_reason_and_can_not_be_confirmed(filed, actor):
    filed.kafka.error = DeadLettersNotRead(topic="dlq", reason="no leader")
    answer = finished(actor, actor.post("/redrive", {**GROUP, "scope": "all"}))
    assert "no leader" in answer.text
    assert 'name="pending"' not in answer.text


@pytest.mark.parametrize("chosen", [[], ["x"], ["0@"], ["0@1@2"], ["-1@0"], ["0@" + "9" * 30]])
def test_an_impossible_choice_is_refused(filed, actor, chosen):
    assert actor.post("/redrive", {**GROUP, "chosen": chosen}).status_code == 400
    assert filed.kafka.sent == []


def test_the_page_of_a_redrive_that_ends_meanwhile_looks_again(filed, actor, monkeypatch):
    """Else it shows what would be sent, without the button that sends it."""
    may_end, redrive, draw = threading.Event(), filed.kafka.redrive, Visit.page

    def redrive_late(*given, **more):
        assert may_end.wait(30)
        return redrive(*given, **more)

    def draw_at_its_end(visit, template, *more, **values):
        if template == "job.html":
            may_end.set()
            wait_until(lambda: values["job"].end, what="the dry run has ended")
        return draw(visit, template, *more, **values)

    monkeypatch.setattr(filed.kafka, "redrive", redrive_late)
    monkeypatch.setattr(Visit, "page", draw_at_its_end)
    answer = actor.post("/redrive", {**GROUP, "scope": "all"})
    assert "looks again by itself" in actor.client.get(answer.headers["location"]).text
    assert "Send 6 records" in finished(actor, answer).text


def test_a_redrive_is_seen_by_its_session_alone(filed, actor):
    answer = actor.post("/redrive", {**GROUP, "scope": "all"})
    finished(actor, answer)
    assert filed.browser(ACTOR).client.get(answer.headers["location"]).status_code == 400


def test_the_page_shows_that_a_group_has_no_dead_letter_topic(page, actor):
    assert "has no dead letter topic" in actor.get("/deadletters", **GROUP).text
    assert actor.post("/redrive", {**GROUP, "scope": "all"}).status_code == 400


def test_what_came_after_the_dry_run_is_named_and_not_sent(filed, actor):
    dry = finished(actor, actor.post("/redrive", {**GROUP, "scope": "all"}))
    first = filed.kafka.found[0]
    filed.kafka.found.append(replace(first, offset=999, origin_topic="payroll", value=b"PAY MALLORY"))

    done = finished(actor, actor.post("/redrive/confirm", {"pending": pending_of(dry)}))

    assert "1 came after what was shown: not sent." in done.text
    assert (0, 999) not in filed.kafka.sent and filed.kafka.sent
