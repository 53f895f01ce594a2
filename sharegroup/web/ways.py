"""Finds what the page offers in place of a command that the doctor prints: a button with the same action, a link to
what the command shows, or a sentence why there is neither.

Rule: a button is a form of the page. Its action is dry-run first, with the rights of the person who asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sharegroup.doctor.findings import Finding

BROKERS = "The page does nothing on brokers and topics: that is for the command."


@dataclass(frozen=True, kw_only=True)
class Way:
    """What the page offers for a finding. ``kind``: the form that the button sends; ``path``: where the link leads;
    ``fields``: the values for either; ``why_none``: why there is neither."""

    label: str = ""
    kind: str = ""
    path: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    why_none: str = ""


def ways_of(group_id: str, finding: Finding) -> tuple[Way, ...]:
    """Returns what the page offers for a finding; nothing if the finding has no command."""
    about = {name: str(value) for name, value in finding.about.items()}
    return _WAYS.get(finding.rule, _members)(group_id, about) if finding.command else ()


def _link(path: str, label: str, **values: str) -> Way:
    return Way(label=label, path=path, fields=values)


def _poison(group_id: str, about: Mapping[str, str]) -> tuple[Way, ...]:
    where = {"group": group_id, "topic": about["topic"], "partition": about["partition"], "offset": about["first"]}
    if "reason" not in about:
        return (_link("/content", "Look at its content", **where),)
    return (Way(label="Give it up…", kind="archive", fields=about), _link("/record", "Look at the record", **where))


def _name_queue(group_id: str, about: Mapping[str, str]) -> tuple[Way, ...]:
    name = about["name"]
    return (
        Way(label=f"Let {name} take them…", kind="dead_letters", fields={"name": name, "create": "yes"}),
        _link("/form", "Name another topic", kind="dead_letters", group=group_id),
    )


def _waiting(group_id: str, about: Mapping[str, str]) -> tuple[Way, ...]:
    create = {"name": about["name"], "create": "yes"}
    first = Way(label=f"Create {about['name']}…", kind="dead_letters", fields=create)
    another = _link("/form", "Name another topic", kind="dead_letters", group=group_id)
    return (first if about["is_missing"] == "yes" else Way(why_none=BROKERS), another)


def _members(group_id: str, about: Mapping[str, str]) -> tuple[Way, ...]:
    return (Way(label="Look at the members", path="#members"),)


def _alter(group_id: str, about: Mapping[str, str]) -> tuple[Way, ...]:
    return (_link("/form", "Alter it", kind="configs", group=group_id, **about),)


_WAYS: Mapping[str, Callable[[str, Mapping[str, str]], tuple[Way, ...]]] = {
    "start-offset-held-back": lambda group_id, about: (
        _link("/partition", "Look at the window", group=group_id, **about),
    ),
    "record-is-poison": _poison,
    "partition-waits": lambda group_id, about: (
        _poison(group_id, about) if "first" in about else (_link("/partition", "Look at it", group=group_id, **about),)
    ),
    "topics-paused": lambda group_id, about: (Way(label="Resume…", kind="resume", fields=about),),
    "limit-used-up": _alter,
    "timestamp-ahead": lambda group_id, about: (
        (Way(label="Set it to 0…", kind="configs", fields=about),) if about["value"] == "0" else _alter(group_id, about)
    ),
    "records-too-old": _alter,
    "member-holds-too-long": lambda group_id, about: (
        Way(label="End its session…", kind="release_member", fields=about),
    ),
    "dead-letters-wait": _waiting,
    "given-up-without-dead-letter": _name_queue,
    "dead-letter-topic-reserved": _name_queue,
    "query-keeps-ending": lambda group_id, about: (_waiting if about else _members)(group_id, about),
    "query-slowed": lambda group_id, about: (_poison if about else _members)(group_id, about),
    "start-offset-below-log-start": lambda group_id, about: (Way(why_none=BROKERS),),
}
"""What the page offers, by the names of the doctor's rules; for all others, the members."""
