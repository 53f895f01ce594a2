"""Carries out the actions of the page. Each is requested with a form, run dry, shown in numbers, and done when a person
confirms these numbers.

Rule: what is confirmed is what was shown, of the group that was shown, and after no other action. A reset is confirmed
with the offsets that were shown, since the ends of logs move; an action whose numbers have changed meanwhile in
another way is shown anew instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from starlette.responses import Response

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import Altered, OffsetChanges
from coordinator.protocol.errors import GroupChanged
from sharegroup.web.errors import BadRequest
from sharegroup.web.site import Handler, Visit

_log = logging.getLogger(__name__)

MOST_SHOWN = 200
"""A page lists up to this many changes; the numbers above the list count all."""
MOST_AT_ONCE = 10_000
"""One action on the page releases or archives up to this many neighbouring records."""
Answer = Altered | OffsetChanges
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An action: its title, a function that reads its form, and the call that does it. ``is_steady``: its numbers do
    not change by themselves while the group works, so a change is shown before anything is done. ``fixed``: the
    confirmed values, from the form and the answer that was shown."""

    title: str
    read: Callable[[Visit], Values]
    call: Callable[..., Answer]
    is_steady: bool = True
    fixed: Callable[[Values, Answer], Values] = lambda values, _: values


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that an action changes."""

    what: str
    before: str
    after: str


def ask(visit: Visit) -> Response:
    """Dry-run the action of the form, and show its effect."""
    kind = visit.text("kind")
    if kind not in KINDS:
        raise BadRequest(what=f"There is no action {kind!r}.")
    values = {"group": visit.text("group"), "reason": visit.text("reason").strip(), **KINDS[kind].read(visit)}
    return _shown(visit, kind, values, _call(visit, kind, values, execute=False), notice="")


def confirm(visit: Visit) -> Response:
    """Carry out an action that was shown."""
    assert visit.session is not None
    pending = visit.session.confirmed(visit.text("pending"))
    if pending.kind not in KINDS:
        raise BadRequest(what="This is no action on a group.")
    kind, asked, shown = pending.kind, pending.values["values"], pending.values["answer"]
    values = KINDS[kind].fixed(asked, shown)
    if KINDS[kind].is_steady and not _alike(_call(visit, kind, values, execute=False), shown):
        return _shown_anew(visit, kind, asked)
    try:
        answer = _call(visit, kind, values, execute=True, seen=shown.state)
    except GroupChanged:
        return _shown_anew(visit, kind, asked)
    name = visit.session.visitor.name or "somebody without a name"
    _log.info("done on the page: by=%r action=%s group=%r", name, kind, values["group"])
    return visit.page(
        "done.html",
        title=KINDS[kind].title,
        group_id=values["group"],
        numbers=numbers(answer),
        changes=changes(answer)[:MOST_SHOWN],
        total=len(changes(answer)),
        is_gone=kind == "delete",
    )


def _shown_anew(visit: Visit, kind: str, asked: Values) -> Response:
    now = _call(visit, kind, asked, execute=False)
    return _shown(visit, kind, asked, now, notice="The group has changed meanwhile: these are the new numbers.")


def _shown(visit: Visit, kind: str, values: Values, answer: Answer, *, notice: str) -> Response:
    assert visit.session is not None
    return visit.page(
        "confirm.html",
        title=KINDS[kind].title,
        group_id=values["group"],
        reason=values["reason"],
        notice=notice,
        numbers=numbers(answer),
        changes=changes(answer)[:MOST_SHOWN],
        total=len(changes(answer)),
        pending=visit.session.ask_confirmation(kind, {"values": values, "answer": answer}),
    )


def _call(visit: Visit, kind: str, values: Values, *, execute: bool, seen: str = "") -> Answer:
    """Returns the answer to the action. The coordinator's audit log has the reason, and the person who asked on the
    page where the token does not name one."""
    assert visit.session is not None
    visitor, reason = visit.session.visitor, str(values["reason"])
    if not visitor.owns_admin:
        reason = f"{reason} (on the page, by {visitor.name or 'somebody without a name'})".strip()
    given = {name: value for name, value in values.items() if name not in ("group", "reason")}
    return KINDS[kind].call(visit.admin, values["group"], execute=execute, reason=reason, seen=seen, **given)


def _alike(now: Answer, shown: Answer) -> bool:
    """Whether both change the same, and ``now`` has no note that was not shown. The order of partitions does not
    matter. Notes about deleted topics are ignored for the offsets of the others."""
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


def changes(answer: Answer) -> list[Change]:
    """All changes of an action, one by one."""
    if isinstance(answer, Altered):
        return [Change(what=each.what, before=each.before, after=each.after) for each in answer.effects]
    return [
        Change(what=f"{p.topic}-{p.partition}", before=_offset(p.before), after=_offset(p.after))
        for p in answer.partitions
    ]


def _offset(offset: int | None) -> str:
    return "none" if offset is None else f"{offset:,}"


# --- the forms


def _reset(visit: Visit) -> Values:
    to, at = visit.text("to"), visit.text("at").strip()
    topics = tuple(topic for topic in (visit.text("topic").strip(),) if topic)
    if to in ("earliest", "latest"):
        return {"to": to, "topics": topics}
    if to == "time":
        try:
            found = datetime.fromisoformat(at.removesuffix("Z"))
        except ValueError:
            raise BadRequest(what=f"{at!r} is no time: YYYY-MM-DDThh:mm, in UTC.") from None
        return {"to": found if found.tzinfo else found.replace(tzinfo=timezone.utc), "topics": topics}
    if to == "offset":
        return {"to": visit.number("at"), "topics": topics}
    if to == "shift":
        return {"shift_by": visit.number("at", least=-(2**63)), "topics": topics}
    raise BadRequest(what=f"There is no reset to {to!r}.")


def _records(visit: Visit) -> Values:
    first = visit.number("first")
    last = visit.number("last", first)
    if not first <= last < first + MOST_AT_ONCE:
        raise BadRequest(what=f"{first} to {last} are not 1 to {MOST_AT_ONCE:,} offsets.")
    where = {"topic": visit.text("topic"), "partition": visit.number("partition")}
    return {**where, "offsets": range(first, last + 1)}


def _given_up(visit: Visit) -> Values:
    if not visit.text("reason").strip():
        raise BadRequest(what="Records are archived with a reason, which stands in their dead letters.")
    return _records(visit)


def _member(visit: Visit) -> Values:
    return {"member_id": visit.text("member")}


def _configs(visit: Visit) -> Values:
    key, value = visit.text("key").strip(), visit.text("value").strip()
    if not key:
        raise BadRequest(what="Name a config.")
    return {"configs": {key: value}} if value else {"unset": (key,)}


def _nothing(visit: Visit) -> Values:
    return {}


def _to_offsets(values: Values, shown: Answer) -> Values:
    """The reset to the offsets that were shown."""
    assert isinstance(shown, OffsetChanges)
    offsets: dict[str, dict[int, int]] = {}
    for each in shown.partitions:
        if each.after is not None:
            offsets.setdefault(each.topic, {})[each.partition] = each.after
    return {"group": values["group"], "reason": values["reason"], "to": offsets}


KINDS: Mapping[str, Kind] = {
    "reset": Kind(title="Reset start offsets", read=_reset, call=Admin.reset_offsets, fixed=_to_offsets),
    "release_member": Kind(
        title="Release what a member holds", read=_member, call=Admin.release_member, is_steady=False
    ),
    "release": Kind(title="Release records", read=_records, call=Admin.release_records),
    "archive": Kind(title="Archive records", read=_given_up, call=Admin.archive_records),
    "configs": Kind(title="Alter a config", read=_configs, call=Admin.alter_configs),
    "delete": Kind(title="Delete the group", read=_nothing, call=Admin.delete_group),
}
"""The actions by the names that their forms give."""
ACTIONS: dict[str, Handler] = {"/act": ask, "/act/confirm": confirm}
"""The handlers by their addresses; all need the right admin."""
