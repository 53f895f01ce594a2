"""The forms of the page: their fields, and the texts beside the fields.

Rule: an error names a field by the text beside it, and the form stands below the error as it was filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from coordinator.protocol.errors import NotAllowed, ShareGroupError
from sharegroup.web.errors import NotSignedIn
from sharegroup.web.site import LABELS, Instead, Visit, status_of
from sharegroup.web.words import told

REASON_MOST = 500
"""A reason has up to this many characters, since the audit log quotes it."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field. ``label``: empty for a hidden field; ``options``: the values of a choice with their texts; ``listed``:
    the name of a list of proposals; ``hint``: an example."""

    name: str
    label: str = ""
    options: tuple[tuple[str, str], ...] = ()
    listed: str = ""
    hint: str = ""
    is_required: bool = False
    is_number: bool = False
    most: int = 1_000


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form. ``path``: where it is sent; ``button``: the text on its button; ``says``: what to know first."""

    title: str
    path: str
    fields: tuple[Field, ...]
    button: str
    method: str = "post"
    says: str = ""

    def given(self, visit: Visit) -> dict[str, str]:
        """Returns the fields as they were filled in."""
        return {field.name: visit.text(field.name) for field in self.fields}


def _field(name: str, **more: Any) -> Field:
    return Field(name=name, label=LABELS[name], **more)


def _number(name: str) -> Field:
    return _field(name, is_required=True, is_number=True)


def _act(title: str, button: str, *fields: Field, says: str = "", is_reason_required: bool = False) -> Form:
    reason = _field("reason", most=REASON_MOST, is_required=is_reason_required)
    return Form(title=title, path="/act", fields=(*fields, reason), button=button, says=says)


_RESETS = (
    ("earliest", "earliest"),
    ("latest", "latest"),
    ("time", "a time (UTC)"),
    ("offset", "an offset"),
    ("shift", "shift by"),
)
_WHERE = (_field("topic", is_required=True, most=249), _number("partition"), _number("first"), _number("last"))
_TOPICS = _field("topic", listed="topics", hint="all topics", most=249)
ACTS: Mapping[str, Form] = {
    "pause": _act("Pause deliveries", "Pause…", _TOPICS, says="Members keep what they hold, and get nothing more."),
    "resume": _act("Resume deliveries", "Resume…", _TOPICS),
    "reset": _act(
        "Reset start offsets",
        "Reset…",
        _field("to", options=_RESETS),
        _field("at", hint="2026-11-01T08:00"),
        _TOPICS,
        says="The group must be empty: stop its members first.",
    ),
    "release_member": _act("End a member's session", "End session…", _field("member", is_required=True)),
    "release": _act("Release records", "Release it…", *_WHERE),
    "archive": _act("Archive records", "Archive it…", *_WHERE, is_reason_required=True),
    "dead_letters": _act(
        "Name a dead letter topic",
        "Name it…",
        _field("name", is_required=True, most=249),
        _field("create", options=(("", "refuse"), ("yes", "create it"))),
    ),
    "configs": _act("Alter a config", "Alter…", _field("key", listed="config-keys", is_required=True), _field("value")),
    "delete": _act(
        "Delete the group",
        "Delete…",
        says="The group must be empty. Its records stay in their topics; a later group of this name begins anew.",
    ),
}
"""The forms of the actions, by the action's name."""


def _look(title: str, path: str, button: str, *fields: Field) -> Form:
    return Form(title=title, path=path, fields=fields, button=button, method="get")


_OF_GROUP = (Field(name="group"), _field("topic", is_required=True), _number("partition"))
_ENDS = (_field("first", is_number=True), _field("last", is_number=True))
LOOKS: Mapping[str, Form] = {
    "/": _look("Search", "/", "Search", _field("search")),
    "/record": _look("A record", "/record", "Open", *_OF_GROUP, _number("offset")),
    "/partition": _look("A partition", "/partition", "Show", *_OF_GROUP, *_ENDS),
}
"""The forms that open a page, by the page's address."""


def form_page(
    visit: Visit, form: Form, given: Mapping[str, str], *, kind: str = "", group_id: str = "", status: int = 200,
    error: str = "", wrong: str = "",
) -> Response:  # fmt: skip
    """A form on its own page, as it was filled in. ``error``: why it was refused; ``wrong``: the field to correct."""
    shown = {"form": form, "given": given, "kind": kind, "group_id": group_id, "error": error}
    first = next((field.name for field in form.fields if field.label), "")
    return visit.page("form.html", status, **shown, wrong=wrong or first)


def again(visit: Visit, error: ShareGroupError) -> Response | None:
    """A form that opens a page, with the error above it; None if no field of this form is wrong."""
    form = LOOKS[visit.request.url.path]
    wrong = str(error.fields.get("field", ""))
    if isinstance(error, (NotSignedIn, NotAllowed)) or wrong not in {field.name for field in form.fields}:
        return None
    given = {field.name: visit.request.query_params.get(field.name, "")[: field.most] for field in form.fields}
    group_id = given.get("group", "")
    return form_page(visit, form, given, group_id=group_id, status=status_of(error), error=told(error), wrong=wrong)


INSTEAD: Mapping[str, Instead] = dict.fromkeys(LOOKS, again)
