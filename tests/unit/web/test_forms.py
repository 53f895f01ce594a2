"""The page's forms: whatever is refused, the form stands below the error as it was filled in, in the page's words."""

from __future__ import annotations

import html
import itertools
import re
import string

import pytest

from coordinator.protocol.errors import NotAllowed, ShareGroupError, by_name
from coordinator.protocol.messages import LeaveGroup
from sharegroup.doctor.rules import GROUP_RULES, examine
from sharegroup.web import words
from sharegroup.web.actions import KINDS
from sharegroup.web.errors import BadRequest, NotSignedIn
from sharegroup.web.forms import ACTS, LOOKS
from sharegroup.web.site import LABELS
from sharegroup.web.ways import ways_of
from tests.support.doctor_cases import CASES
from tests.support.waiting import wait_until
from tests.support.web_site import ACTOR, HERE, LOOKER

GROUP = {"group": "billing"}
ODD = '"><script>ö 🚀</script>'
FILLED = {
    "pause": {"topic": ODD, "reason": "the service is away"},
    "resume": {"topic": ODD, "reason": "it is back"},
    "reset": {"to": "offset", "at": "7", "topic": ODD, "reason": "first " + ODD},
    "release_member": {"member": ODD, "reason": "it hangs"},
    "release": {"topic": ODD, "partition": "3", "first": "4", "last": "5", "reason": "again"},
    "archive": {"topic": ODD, "partition": "3", "first": "4", "last": "5", "reason": "it fails"},
    "dead_letters": {"name": ODD, "create": "yes", "reason": "none yet"},
    "configs": {"key": "share.session.timeout.ms", "value": ODD, "reason": "longer"},
    "delete": {"reason": "it is old"},
}
"""What is typed, by the action."""


def errors():
    """One error of each class, with fields that are filled with their names."""
    for _, cls in sorted(by_name().items()):
        names = {name for _, name, _, _ in string.Formatter().parse(cls.__doc__ or "") if name}
        yield cls(**{name.partition("[")[0].partition(".")[0]: f"the {name}" for name in names})


ERRORS = [error for error in errors() if not isinstance(error, (NotAllowed, NotSignedIn))]
"""An error of each class, but those of a person who may not act, or whose session is over."""


def filled_in(text):
    """The fields of the page's form, as a person sees them."""
    form = text[text.index("<main") :]
    found = dict(re.findall(r'<input id="[^"]+" name="([^"]+)" value="([^"]*)"', form))
    for name, options in re.findall(r'<select id="[^"]+" name="([^"]+)"[^>]*>(.*?)</select>', form):
        found[name] = "".join(re.findall(r'<option value="([^"]*)" selected>', options))
    return {name: html.unescape(value) for name, value in found.items()}


def test_each_action_has_a_form_that_is_filled_in_here():
    assert set(KINDS) == set(ACTS) == set(FILLED)
    for kind, form in ACTS.items():
        assert {field.name for field in form.fields} == set(FILLED[kind])


def test_each_error_keeps_what_was_typed_and_names_no_flag(page, actor):
    """Each class of errors once, and the actions in turn."""
    secret = actor.secret()
    assert len(ERRORS) > 100 and all(isinstance(error, ShareGroupError) for error in ERRORS)
    for kind, error in zip(itertools.cycle(FILLED), ERRORS, strict=False):
        page.admin.broken = error
        answer = actor.post("/act", {**GROUP, "kind": kind, **FILLED[kind]}, csrf=secret)
        assert answer.status_code >= 400, type(error)
        assert filled_in(answer.text) == FILLED[kind], type(error)
        (alert,) = re.findall(r'<p class="banner error" role="alert" id="why">(.*?)</p>', answer.text, re.DOTALL)
        name = "" if isinstance(error, BadRequest) else f"{type(error).__name__}: "  # what was typed is no named error
        assert html.unescape(alert).startswith(name) and BadRequest.__name__ not in alert
        assert not words.OF_COMMANDS.search(html.unescape(alert).removeprefix(name)), type(error)
        assert "<script>ö" not in answer.text
        assert f'name="csrf" value="{secret}"' in answer.text


@pytest.mark.parametrize(
    ("kind", "fields", "label"),
    [
        ("reset", {"to": "offset", "at": "-5"}, "Time, offset or shift: -5 is below 0."),
        ("reset", {"to": "offset", "at": ""}, "Time, offset or shift: a number is missing."),
        ("reset", {"to": "offset", "at": "1.5"}, "Time, offset or shift: '1.5' is no whole number."),
        ("reset", {"to": "shift", "at": "9" * 25}, "is too large."),
        ("reset", {"to": "time", "at": "soon"}, "Time, offset or shift: 'soon' is no time"),
        ("reset", {"to": "moon"}, "To: there is no reset to 'moon'."),
        ("release", {"first": "x"}, "First offset: 'x' is no whole number."),
        ("release", {"first": "5", "last": "4"}, "Last offset: 5 to 4 are not 1 to 10,000 offsets."),
        ("archive", {"reason": " "}, "Reason, for the audit log: records are archived with a reason"),
        ("configs", {"key": ""}, "Key: name a config."),
        ("dead_letters", {"name": " "}, "Dead letter topic: name a topic."),
        ("configs", {"value": "x" * 1_001}, "Value; empty: its default: it has more than 1000 characters."),
    ],
)
def test_an_error_about_a_field_names_it_as_its_form_does(actor, kind, fields, label):
    answer = actor.post("/act", {**GROUP, "kind": kind, **FILLED[kind], **fields})
    assert answer.status_code == 400
    assert label in html.unescape(answer.text)
    (wrong,) = re.findall(r'name="([^"]+)"[^>]*aria-invalid="true"', answer.text)
    assert label.startswith(LABELS[wrong]) or wrong == "at"
    assert {**FILLED[kind], **fields} == {**filled_in(answer.text), **({} if "to" not in fields else fields)}


def test_the_reset_of_a_live_group_leads_to_its_members(page, actor):
    answer = actor.post("/act", {**GROUP, "kind": "reset", "to": "latest"})
    assert "End session…" in answer.text and "force" not in answer.text
    assert 'href="/group?group=billing#members"' in answer.text
    assert '<h2 id="members">' in actor.get("/group", **GROUP).text
    assert "End session…" in actor.get("/group", **GROUP).text


@pytest.mark.parametrize("kind", FILLED)
def test_back_leads_to_pages_and_never_to_a_form_s_answer(page, actor, kind):
    """A browser shows no page that a form was answered with once more, without asking."""
    for fields in (FILLED[kind], {}):
        sent = {**GROUP, "kind": kind, **fields, "csrf": actor.secret()}
        answer = actor.client.post("/act", data=sent, headers={"origin": HERE})
        assert answer.status_code == 303
        again = [actor.client.get(answer.headers["location"]) for _ in range(2)]
        assert again[0].text == again[1].text


def test_a_dry_run_and_what_was_done_can_be_looked_at_again(page, actor):
    page.running.ask(LeaveGroup)
    sent = {**GROUP, "kind": "reset", "to": "latest", "reason": "why", "csrf": actor.secret()}
    dry = actor.client.post("/act", data=sent, headers={"origin": HERE}).headers["location"]
    shown = actor.client.get(dry).text
    (pending,) = re.findall(r'name="pending" value="([^"]+)"', shown)
    (form,) = (html.unescape(each) for each in re.findall(r'href="(/form\?[^"]+)"', shown))
    assert filled_in(actor.client.get(form).text)["reason"] == "why"
    sent = {"pending": pending, "csrf": actor.secret()}
    done = actor.client.post("/act/confirm", data=sent, headers={"origin": HERE}).headers["location"]
    assert "Reset start offsets: done" in actor.client.get(done).text
    assert actor.client.get(done).status_code == 200
    over = actor.client.get(dry)
    assert (over.status_code, "carried out already" in over.text) == (400, True)
    assert page.browser(ACTOR).client.get(done).status_code == 400, "it is another session's"


def test_an_action_that_fails_when_it_is_confirmed_keeps_its_form(page, actor):
    page.running.ask(LeaveGroup)
    dry = actor.post("/act", {**GROUP, "kind": "reset", "to": "latest", "reason": "why"})
    (pending,) = re.findall(r'name="pending" value="([^"]+)"', dry.text)
    page.running.join()
    answer = actor.post("/act/confirm", {"pending": pending})
    assert (answer.status_code, "GroupNotEmpty" in answer.text) == (400, True)
    assert filled_in(answer.text)["reason"] == "why"


@pytest.mark.parametrize("kind", FILLED)
def test_a_form_outlives_the_session_it_was_filled_in(page, actor, kind):
    secret = actor.secret()
    page.site.sessions.close()
    answer = actor.post("/act", {**GROUP, "kind": kind, **FILLED[kind]}, csrf=secret)
    assert answer.status_code == 401
    (kept,) = (html.unescape(each) for each in re.findall(r'name="kept" value="([^"]+)"', answer.text))
    wrong = actor.post("/login", {"token": "w" * 20, "kept": kept})
    assert kept in html.unescape(wrong.text)
    signed = actor.post("/login", {"token": ACTOR, "kept": kept})
    found = actor.client.get(signed.headers["location"])
    assert filled_in(found.text) == FILLED[kind]
    assert page.admin.asked == [], "nothing was tried"


@pytest.mark.parametrize("kept", ["//evil.example/", "https://evil.example", "kind=x\r\nlocation: /", "x" * 9_000])
def test_a_sign_in_leads_to_this_page_alone(page, kept):
    answer = page.browser().post("/login", {"token": ACTOR, "kept": kept})
    assert re.fullmatch(r"/|/form\?[\w=+%.&-]*", answer.headers["location"])


def test_a_form_of_an_earlier_session_is_shown_again(actor):
    answer = actor.post("/act", {**GROUP, "kind": "configs", **FILLED["configs"]}, csrf="old")
    assert (answer.status_code, filled_in(answer.text)) == (403, FILLED["configs"])


@pytest.mark.parametrize("path", LOOKS)
def test_a_form_that_leads_to_a_page_keeps_what_was_typed(page, path):
    typed = {"topic": "orders", "partition": "0", "offset": "12a", "first": "1a", "last": "2", "search": "g" * 1_001}
    given = {field.name: typed[field.name] for field in LOOKS[path].fields if field.name in typed}
    answer = page.browser(LOOKER).get(path, **GROUP, **given)
    assert answer.status_code == 400
    assert filled_in(answer.text) == {name: value[:1_000] for name, value in given.items()}
    assert re.search(r'name="(offset|first|search)"[^>]*aria-invalid="true"', answer.text)


# --- what the page has where the doctor prints a command


def examined(page, monkeypatch, finding):
    """The group's page when the doctor has found this."""
    monkeypatch.setattr(page.site.examinations, "_examine", lambda group_id: [finding])
    if holder := finding.about.get("member"):  # what nobody holds now is not shown
        page.running.ask(LeaveGroup)
        page.running.join(holder)
        assert page.running.next(member=holder, max_records=20).plan_id
    actor = page.browser(ACTOR)
    return wait_until(
        lambda: "is being examined" not in (text := actor.get("/group", **GROUP).text) and text, what="examined"
    )


def test_each_rule_that_prints_a_command_is_tried_here():
    assert {rule.__name__ for rule, *_ in CASES.values()} == {rule.__name__ for rule in GROUP_RULES}


@pytest.mark.parametrize("case", CASES)
def test_each_command_of_the_doctor_has_a_button_link_or_reason(page, monkeypatch, case):
    rule, found_in, _ = CASES[case]
    (finding,) = rule(found_in)
    ways = ways_of("billing", finding)
    assert bool(ways) == bool(finding.command)
    assert all(ways_of("billing", each) for each in examine(found_in)), "also where findings with one way out are one"
    text = examined(page, monkeypatch, finding)
    (shown,) = re.findall(r'<div class="finding .*?(?=<p class="quiet">Examined)', text, re.DOTALL)
    for way in ways:
        assert bool(way.kind) + bool(way.path) + bool(way.why_none) == 1
        assert html.escape(way.why_none or way.label, quote=False) in shown
        assert not way.kind or set(way.fields) <= {field.name for field in ACTS[way.kind].fields}
        assert not way.path or f'href="{way.path}' in shown
    changes = any(word in finding.command for word in ("--execute", " configs set ", "--create", "--resume"))
    assert any(way.kind for way in ways) == changes
    buttons = [
        dict(re.findall(r'name="([^"]+)" value="([^"]*)"', form)) for form in re.findall(r"<form.*?</form>", shown)
    ]
    assert [{**button, "csrf": "", "group": ""} for button in buttons] == [
        {"csrf": "", "kind": way.kind, "group": "", **way.fields} for way in ways if way.kind
    ]
    looker = page.browser(LOOKER).get("/group", **GROUP).text
    assert 'action="/act"' not in looker and '="/form' not in looker


def test_a_button_of_a_finding_begins_with_a_dry_run(page, actor, monkeypatch):
    finding = CASES["given-up-without-dead-letter"]
    (found,) = finding[0](finding[1])
    way = ways_of("billing", found)[0]
    dry = actor.post("/act", {**GROUP, "kind": way.kind, **way.fields})
    assert "Topic billing-dead-letters, which did not exist, is created." in dry.text
    assert page.cluster.topics(["billing-dead-letters"]) == {}, "a dry run creates nothing"
    (pending,) = re.findall(r'name="pending" value="([^"]+)"', dry.text)
    done = actor.post("/act/confirm", {"pending": pending}).text
    assert "done" in done and "Topic billing-dead-letters, which did not exist, is created." in done
    assert page.cluster.topics(["billing-dead-letters"])
