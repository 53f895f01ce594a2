"""Conditions on dead letters: the ``where`` of a redrive, the same for the command line and for ``sharegroup.redrive``.

A name is one of ORIGIN (a dead letter's own header ``__dlq.errors.NAME``), ``key``, ``value``, or any header;
``header.NAME`` always means a header."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from share_sink.errors import InvalidCondition

if TYPE_CHECKING:
    from share_sink.redrive.dlq_reader import DeadLetter

RecordFilter = Union["Callable[[DeadLetter], bool]", Mapping[str, object], str, Iterable[str]]
"""A function of a dead letter; texts as on the command line; or names with their values, which all must match."""

ORIGIN = ("topic", "partition", "offset", "group", "delivery.count", "message", "disposition")
"""Names of a dead letter's own headers, without their prefix."""

_CONDITION = re.compile(r"(?P<name>.+?)(?P<sign>~?=)(?P<text>.*)", re.DOTALL)


@dataclass
class Condition:
    """One condition. ``is_known``: whether any checked dead letter had the header."""

    name: str
    holds: Callable[[str], bool]
    is_known: bool = field(default=False, compare=False)

    def __call__(self, dead_letter: DeadLetter) -> bool:
        texts = _texts(dead_letter, self.name)
        self.is_known = self.is_known or bool(texts)
        return any(self.holds(text) for text in texts)


def condition(text: str) -> Condition:
    """Parse ``NAME=VALUE`` or ``NAME~=REGEX``. Raises InvalidCondition if it is neither, or REGEX is wrong."""
    parts = _CONDITION.fullmatch(text)
    if not parts:
        raise InvalidCondition(condition=text, reason="it is neither NAME=VALUE nor NAME~=REGEX")
    wanted = parts["text"]
    if parts["sign"] == "=":
        if wanted.startswith("="):
            raise InvalidCondition(condition=text, reason="it has two signs =")
        return Condition(parts["name"], wanted.__eq__)
    try:
        pattern = re.compile(wanted)
    except re.error as error:
        raise InvalidCondition(condition=text, reason=f"{wanted!r} is no regular expression: {error}") from None
    return Condition(parts["name"], lambda text: pattern.search(text) is not None)


def all_hold(conditions: Iterable[Condition], dead_letter: DeadLetter) -> bool:
    """Whether all conditions hold. All are checked, so that ``is_known`` is right for each."""
    held = [condition(dead_letter) for condition in conditions]
    return all(held)


def conditions(where: Mapping[str, object] | str | Iterable[str] | None) -> list[Condition]:
    """Returns the conditions, which all must hold. Raises InvalidCondition if one, or ``where``'s type, is wrong."""
    if where is None:
        return []
    if isinstance(where, str):
        return [condition(where)]
    if isinstance(where, Mapping):
        for name, value in where.items():
            if not isinstance(value, str | int) or isinstance(value, bool):
                reason = f"the value is of type {type(value).__name__}: write a text, or '{name}~=REGEX'"
                raise InvalidCondition(condition=f"{name}={value!r}", reason=reason)
        return [Condition(str(name), str(value).__eq__) for name, value in where.items()]
    texts = list(where) if isinstance(where, Iterable) else [where]
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise InvalidCondition(condition=repr(wrong[0]), reason="it is no text")
    return [condition(str(text)) for text in texts]


def _texts(dead_letter: DeadLetter, name: str) -> list[str]:
    if name in ("key", "value"):
        content = dead_letter.key if name == "key" else dead_letter.value
        return [] if content is None else [content.decode("utf-8", "replace")]
    return dead_letter.header(f"__dlq.errors.{name}" if name in ORIGIN else name.removeprefix("header."))
