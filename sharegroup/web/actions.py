"""Carries out the actions of the page. A form requests an action, a dry run shows its numbers, and a person confirms
these.

Rule: only what was shown is carried out, on the group that was shown, and after no other action. A reset uses the
offsets that were shown, since the ends of logs move. If an action's numbers have changed in another way, they are shown
again instead. The numbers and their sentences are of :mod:`coordinator.core.commands.administer`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from starlette.responses import Response

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import Altered, Effect, OffsetChanges
from coordinator.protocol.errors import GroupChanged, NotAllowed, ShareGroupError
from sharegroup.web.errors import BadRequest
from sharegroup.web.forms import ACTS, form_page
from sharegroup.web.sessions import OVER
from sharegroup.web.site import MOST_TEXT, Handler, Instead, Visit, label, status_of
from sharegroup.web.words import told

_log = logging.getLogger(__name__)

MOST_SHOWN = 200
"""A page lists up to this many changes. The numbers above the list count all of them."""
MOST_AT_ONCE = 10_000
"""One action on the page releases or archives up to this many neighbouring records."""
Answer = Altered | OffsetChanges
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An action on a group.

    read: reads the form. call: carries the action out, or dry-runs it.
    is_steady: the dry run says the same again, unless somebody has changed the group. If it says something else when
        the person confirms, the page shows that, and does nothing. False where a working group changes the numbers.
    fixed: returns the arguments of the real call, from the form's values and the dry run that was shown."""

    read: Callable[[Visit], Values]
    call: Callable[..., Answer]
    is_steady: bool = True
    fixed: Callable[[Values, Answer], Values] = lambda values, _: values


def ask(visit: Visit) -> Response:
    """Dry-run the action of the form, and redirect to the page with its effect."""
    kind = _kind(visit)
    fields = ACTS[kind].given(visit)
    values = {"group": visit.text("group"), "reason": fields["reason"].strip(), **KINDS[kind].read(visit)}
    return _led_to_dry_run(visit, kind, fields, values, _call(visit, kind, values, execute=False), notice="")


def show_dry_run(visit: Visit) -> Response:
    """The page that says what an action would do."""
    pending = visit.signed_in.waiting(visit.text("pending"))
    if pending is None or pending.kind not in KINDS:
        raise BadRequest(what=OVER)
    values, answer = pending.values["values"], pending.values["answer"]
    return visit.page(
        "confirm.html",
        title=ACTS[pending.kind].title,
        group_id=values["group"],
        reason=values["reason"],
        notice=pending.values["notice"],
        **_effect(answer),
        pending=visit.text("pending"),
        form_query={"kind": pending.kind, "group": values["group"], **pending.values["fields"]},
    )


def confirm(visit: Visit) -> Response:
    """Carry out an action that was shown, and redirect to the page that says so."""
    pending = visit.signed_in.confirmed(visit.text("pending"))
    if pending.kind not in KINDS:
        raise BadRequest(what="This is no action on a group.")
    kind, asked, fields, shown = (pending.kind, *(pending.values[name] for name in ("values", "fields", "answer")))
    try:
        values = KINDS[kind].fixed(asked, shown)
        if KINDS[kind].is_steady and not _alike(_call(visit, kind, values, execute=False), shown):
            return _shown_anew(visit, kind, fields, asked)
        answer = _call(visit, kind, values, execute=True, seen=shown.state)
    except GroupChanged:
        return _shown_anew(visit, kind, fields, asked)
    except ShareGroupError as error:
        return _led_to_form(visit, kind, asked["group"], fields, error)
    name = visit.signed_in.visitor.name or "somebody without a name"
    _log.info("an action was carried out on the page: by=%r action=%s group=%r", name, kind, values["group"])
    visit.site.examinations.forget(values["group"])
    kept = visit.signed_in.keep({"kind": kind, "group": values["group"], "answer": answer})
    return visit.redirect(f"/done?done={kept}")


def show_done(visit: Visit) -> Response:
    """The page that says what an action has done."""
    done = visit.signed_in.kept.get(visit.text("done"))
    if done is None or "answer" not in done:
        raise BadRequest(what="What was done then is not kept any more; the coordinator's audit log has it.")
    title, is_gone = ACTS[done["kind"]].title, done["kind"] == "delete"
    return visit.page("done.html", title=title, group_id=done["group"], is_gone=is_gone, **_effect(done["answer"]))


def show_form(visit: Visit) -> Response:
    """The form of an action: as it was filled in if it was refused, else with the fields of the address."""
    kept = visit.signed_in.kept.get(visit.text("kept"))
    if kept is not None and "error" in kept:
        refusal = {name: kept[name] for name in ("kind", "group_id", "status", "error", "wrong")}
        return form_page(visit, ACTS[kept["kind"]], kept["fields"], **refusal)
    kind = _kind(visit)
    return form_page(visit, ACTS[kind], ACTS[kind].given(visit), kind=kind, group_id=visit.text("group"))


def refused(visit: Visit, error: ShareGroupError) -> Response | None:
    """Redirect to the form of a refused action, as it was filled in; None if the visitor may not request the action."""
    is_admin = visit.session is not None and visit.session.visitor.is_admin
    kind = (visit.form.get("kind") or [""])[0]
    if not is_admin or kind not in KINDS or isinstance(error, NotAllowed):
        return None
    fields = {field.name: (visit.form.get(field.name) or [""])[0][: 2 * MOST_TEXT] for field in ACTS[kind].fields}
    return _led_to_form(visit, kind, (visit.form.get("group") or [""])[0][:MOST_TEXT], fields, error)


def _kind(visit: Visit) -> str:
    kind = visit.text("kind")
    if kind not in KINDS:
        raise BadRequest(what=f"There is no action {kind!r}.")
    return kind


def _led_to_form(visit: Visit, kind: str, group_id: str, fields: Mapping[str, str], error: ShareGroupError) -> Response:
    wrong = str(error.fields.get("field") or _WRONG.get(type(error).__name__, {}).get(kind, ""))
    refusal = {"error": told(error), "wrong": wrong, "status": status_of(error)}
    kept = visit.signed_in.keep({"kind": kind, "group_id": group_id, "fields": dict(fields), **refusal})
    return visit.redirect(f"/form?kept={kept}")


def _shown_anew(visit: Visit, kind: str, fields: Mapping[str, str], asked: Values) -> Response:
    now = _call(visit, kind, asked, execute=False)
    notice = "The group has changed meanwhile: these are the new numbers."
    return _led_to_dry_run(visit, kind, fields, asked, now, notice=notice)


def _led_to_dry_run(
    visit: Visit, kind: str, fields: Mapping[str, str], values: Values, answer: Answer, *, notice: str
) -> Response:
    shown = {"values": values, "fields": dict(fields), "answer": answer, "notice": notice}
    return visit.redirect(f"/dry-run?pending={visit.signed_in.ask_confirmation(kind, shown)}")


def _call(visit: Visit, kind: str, values: Values, *, execute: bool, seen: str = "") -> Answer:
    """Returns the answer to the action. The coordinator's audit log gets the reason, and the person on the page if the
    token does not name one."""
    visitor, reason = visit.signed_in.visitor, str(values["reason"])
    if not visitor.owns_admin:
        reason = f"{reason} (on the page, by {visitor.name or 'somebody without a name'})".strip()
    given = {name: value for name, value in values.items() if name not in ("group", "reason")}
    return KINDS[kind].call(visit.admin, values["group"], execute=execute, reason=reason, seen=seen, **given)


def _alike(now: Answer, shown: Answer) -> bool:
    """Whether both change the same, and ``now`` has no note that was not shown. The order of partitions does not
    matter. For offsets, missing notes about deleted topics do not matter either."""
    if isinstance(now, OffsetChanges) and isinstance(shown, OffsetChanges):
        is_told = frozenset(now.notes) <= frozenset(shown.notes)
        return is_told and (frozenset(now.partitions), now.state) == (frozenset(shown.partitions), shown.state)
    return now == shown


def numbers(answer: Answer) -> list[str]:
    """Returns sentences with numbers of what an action changes, or would change."""
    if isinstance(answer, Altered):
        return list(answer.notes) or [f"{len(answer.effects):,} change{'' if len(answer.effects) == 1 else 's'}."]
    moved = [p for p in answer.partitions if p.before != p.after]
    return [f"{len(moved):,} of {len(answer.partitions):,} start offsets are moved.", *answer.notes]


def changes(answer: Answer) -> list[Effect]:
    """Returns all changes of an action, one by one."""
    if isinstance(answer, Altered):
        return list(answer.effects)

    def shown(offset: int | None) -> str:
        return "none" if offset is None else f"{offset:,}"

    moved = answer.partitions
    return [Effect(what=f"{p.topic}-{p.partition}", before=shown(p.before), after=shown(p.after)) for p in moved]


def _effect(answer: Answer) -> Values:
    all_changes = changes(answer)
    return {"numbers": numbers(answer), "changes": all_changes[:MOST_SHOWN], "total": len(all_changes)}


# --- the forms


def _reset(visit: Visit) -> Values:
    to, at = visit.text("to"), visit.text("at").strip()
    topics = _topics(visit)
    if to in ("earliest", "latest"):
        if at:
            raise BadRequest(what=f"{label('at')}: leave it out of a reset to {to}.", field="at")
        return {"to": to, **topics}
    if to == "time":
        try:
            found = datetime.fromisoformat(at.removesuffix("Z"))
        except ValueError:
            why = f"{at!r} is no time such as 2026-11-01T08:00, in UTC." if at else "a time is missing."
            raise BadRequest(what=f"{label('at')}: {why}", field="at") from None
        return {"to": found if found.tzinfo else found.replace(tzinfo=timezone.utc), **topics}
    if to == "offset":
        return {"to": visit.number("at"), **topics}
    if to == "shift":
        return {"shift_by": visit.number("at", least=-(2**63)), **topics}
    raise BadRequest(what=f"{label('to')}: there is no reset to {to!r}.", field="to")


def _records(visit: Visit) -> Values:
    first = visit.number("first")
    last = visit.number("last", first)
    if not first <= last < first + MOST_AT_ONCE:
        what = f"{label('last')}: {first} to {last} are not 1 to {MOST_AT_ONCE:,} offsets."
        raise BadRequest(what=what, field="last")
    where = {"topic": visit.text("topic"), "partition": visit.number("partition")}
    return {**where, "offsets": range(first, last + 1)}


def _given_up(visit: Visit) -> Values:
    if not visit.text("reason").strip():
        what = f"{label('reason')}: records are archived with a reason, which stands in their dead letters."
        raise BadRequest(what=what, field="reason")
    return _records(visit)


def _configs(visit: Visit) -> Values:
    key, value = visit.text("key").strip(), visit.text("value").strip()
    if not key:
        raise BadRequest(what=f"{label('key')}: name a config.", field="key")
    return {"configs": {key: value}} if value else {"unset": (key,)}


def _dead_letters(visit: Visit) -> Values:
    name = visit.text("name").strip()
    if not name:
        raise BadRequest(what=f"{label('name')}: name a topic.", field="name")
    created = {"errors.deadletterqueue.auto.create.topics.enable": "true"} if visit.text("create") else {}
    return {"configs": {"errors.deadletterqueue.topic.name": name, **created}}


def _to_offsets(values: Values, shown: Answer) -> Values:
    assert isinstance(shown, OffsetChanges)
    offsets: dict[str, dict[int, int]] = {}
    for each in shown.partitions:
        if each.after is not None:
            offsets.setdefault(each.topic, {})[each.partition] = each.after
    return {"group": values["group"], "reason": values["reason"], "to": offsets}


def _topics(visit: Visit) -> Values:
    return {"topics": tuple(topic for topic in (visit.text("topic").strip(),) if topic)}


KINDS: Mapping[str, Kind] = {
    "pause": Kind(read=_topics, call=Admin.pause),
    "resume": Kind(read=_topics, call=Admin.resume),
    "reset": Kind(read=_reset, call=Admin.reset_offsets, fixed=_to_offsets),
    "release_member": Kind(
        read=lambda visit: {"member_id": visit.text("member")}, call=Admin.release_member, is_steady=False
    ),
    "release": Kind(read=_records, call=Admin.release_records),
    "archive": Kind(read=_given_up, call=Admin.archive_records),
    "dead_letters": Kind(read=_dead_letters, call=Admin.alter_configs),
    "configs": Kind(read=_configs, call=Admin.alter_configs),
    "delete": Kind(read=lambda visit: {}, call=Admin.delete_group),
}
"""The actions, by the names that their forms send."""
_WRONG: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("UnknownTopic", "UnknownSharePartition"), dict.fromkeys(KINDS, "topic")),
    **dict.fromkeys(("UnknownPartition", "NotInFlight", "RecordsHeld"), dict.fromkeys(KINDS, "first")),
    **{name: {"configs": "value"} for name in ("ConfigOutOfBounds", "ConfigTypeMismatch", "ConfigConflict")},
    "UnknownConfig": {"configs": "key"},
    "MemberNotFound": {"release_member": "member"},
    "DeadLetterTopicMissing": {"configs": "value", "dead_letters": "name"},
    "InvalidReset": {"reset": "at"},
}
"""The field to correct, by the names of the error and of the action."""
LOOKS: dict[str, Handler] = {"/form": show_form, "/dry-run": show_dry_run, "/done": show_done}
ACTIONS: dict[str, Handler] = {"/act": ask, "/act/confirm": confirm}
"""The handlers by their addresses. All need the right admin."""
INSTEAD: dict[str, Instead] = {"/act": refused}
