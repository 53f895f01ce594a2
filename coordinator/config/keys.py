"""One row of a configuration table: the type, default and bounds of a key, and how its value is parsed.

Rule: a text is parsed as Kafka's ConfigDef does it: trimmed, with booleans in any case. A wrong text raises a named
error with the key, the text and the accepted values."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from coordinator.protocol.errors import ConfigOutOfBounds, ConfigTypeMismatch, UnknownConfig

Value = int | float | bool | str

NEAR = 0.75
"""If two names are at least this much alike, by difflib's ratio, one is probably a mistyped form of the other."""

_TYPES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigKey:
    """A key of a group or of the coordinator.

    ``between``: the smallest and the largest number. ``takes`` says what a text must look like, and ``is_valid`` checks
    that. ``ours``: Kafka has no such key. ``why``: why the default or the bounds are not Kafka's. ``default`` None: the
    key is a whole number without a single default; ``unset`` says in words what holds if it is not set."""

    name: str
    default: Value | None
    doc: str
    unset: str = ""
    kip: str = ""
    between: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    takes: str = ""
    is_valid: Callable[[str], bool] | None = None
    ours: bool = False
    why: str = ""

    @property
    def type(self) -> type:
        return int if self.default is None else type(self.default)

    @property
    def shown_default(self) -> str:
        """The default as it is written in a properties file, or in words."""
        return self.unset if self.default is None else show(self.default)

    @property
    def attribute(self) -> str:
        """The key as an attribute's name: ``share_session_timeout_ms`` for ``share.session.timeout.ms``."""
        return self.name.replace(".", "_")

    @property
    def bounds(self) -> str:
        """The accepted values in words, for errors and docs; empty if all are accepted."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.takes:
            return self.takes
        return f"between {self.between[0]} and {self.between[1]}" if self.between else ""

    def parse(self, text: str) -> Value:
        """The value of ``text``.

        Raises:
            ConfigTypeMismatch: the text is of another type.
            ConfigOutOfBounds: the value is beyond the bounds."""
        try:
            value = _CONVERT[self.type](text.strip())
        except ValueError:
            unit = " of milliseconds" if self.type is int and self.name.endswith(".ms") else ""
            expected = _TYPES[self.type] + unit
            raise ConfigTypeMismatch(key=self.name, value=text.strip(), expected=expected) from None
        if isinstance(value, str):
            inside = value in self.choices if self.choices else self.is_valid is None or self.is_valid(value)
        else:
            # NaN must be outside, so both comparisons have to be true.
            inside = self.between is None or self.between[0] <= value <= self.between[1]
        if not inside:
            raise ConfigOutOfBounds(key=self.name, value=value, bounds=self.bounds)
        return value


def row(**fields_of_key: Any) -> Any:
    """Returns the dataclass field that declares one key. ``fields_of_key``: those of ConfigKey, without the name, which
    is the attribute's."""
    return field(metadata=fields_of_key)


def table_of(cls: type) -> dict[str, ConfigKey]:
    """The keys of a configuration class by name: an attribute's name has _ for each dot of the key."""
    keys = [ConfigKey(name=each.name.replace("_", "."), **each.metadata) for each in fields(cls)]
    return {key.name: key for key in keys}


def show(value: Value) -> str:
    """The value as it is written in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _to_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _to_int(text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdecimal()) or len(text) > 20:
        raise ValueError(text)
    return int(text)


def _to_float(text: str) -> float:
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


_CONVERT: dict[type, Callable[[str], Value]] = {int: _to_int, float: _to_float, bool: _to_bool, str: str}


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like ``name``; empty if none is alike."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=NEAR)), "")


GONE = ("share.coordinator.fleet.group.id", "share.coordinator.session.timeout.ms")
"""Keys of earlier versions, in which a consumer group divided the groups among standalone coordinators."""


def hint(name: str, known: Iterable[str], instead: str = "docs/do/options.md has all") -> str:
    """The end of an error's sentence about an unknown name: the nearest known name, or else ``instead``."""
    if name in GONE:
        return "remove it: standalone coordinators find a group's owner in the group's state"
    near = nearest(name, known)
    return f"the nearest known one is {near}" if near else instead


def parse_all(
    table: Mapping[str, ConfigKey], texts: Mapping[str, str], scope: str, hint_of: Callable[[str], str] | None = None
) -> dict[str, Value | None]:
    """The values of all keys of the table, by attribute name. ``hint_of``: the hint for an unknown name; None:
    :func:`hint`.

    Raises:
        UnknownConfig: a key of ``texts`` is not in the table.
        ConfigTypeMismatch, ConfigOutOfBounds: a value is of another type than its key's, or out of bounds."""
    for name in texts:
        if name not in table:
            raise UnknownConfig(key=name, scope=scope, hint=hint_of(name) if hint_of else hint(name, table))
    return {key.attribute: key.parse(texts[key.name]) if key.name in texts else key.default for key in table.values()}
