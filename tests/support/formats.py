"""The formats that another process reads, as text: of each message and record the fields, with types and defaults.

``python -m tests.support.formats`` writes tests/unit/protocol/formats.txt anew. docs/adr/0023 says after which
changes a number of coordinator/protocol/format_versions.py rises as well.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from coordinator.core.log_records import Record
from coordinator.protocol import wire
from coordinator.protocol.format_versions import PROTOCOL, SQLITE_SCHEMA, STATE_RECORDS
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.placement import _Placement

GOLDEN = Path(__file__).parent.parent / "unit" / "protocol" / "formats.txt"
MESSAGES = (*wire._requests.values(), *typing.get_args(wire._Answer), wire.Endpoint)
RECORDS = (*Record.__subclasses__(), Owner, _Placement)


def text() -> str:
    """All formats, each below the numbers that it has."""
    return "".join(
        [
            f"requests and replies: PROTOCOL {PROTOCOL}\n",
            *described(MESSAGES),
            f"\nrecords of groups: STATE_RECORDS {STATE_RECORDS}, SQLITE_SCHEMA {SQLITE_SCHEMA}\n",
            *described(RECORDS),
        ]
    )


def described(roots: tuple[type, ...]) -> Iterator[str]:
    """The types, and all types that their fields have, by name."""
    found: dict[str, type] = {}
    for root in roots:
        collect(root, found)
    for _, cls in sorted(found.items()):
        yield f"\n{cls.__name__}{form_of(cls)}\n"
        yield from (f"  {line}\n" for line in lines_of(cls))


def collect(annotation: Any, found: dict[str, type]) -> None:
    """Add each class of the project that the annotation names, and those of its fields."""
    for argument in typing.get_args(annotation):
        collect(argument, found)
    if not isinstance(annotation, type) or annotation.__module__.split(".")[0] != "coordinator":
        return
    if found.setdefault(annotation.__name__, annotation) is not annotation:
        raise ValueError(f"two types are called {annotation.__name__}")
    if not issubclass(annotation, enum.Enum):
        for _, of_field, _ in fields_of(annotation):
            if all(of_field is not each for each in found.values()):
                collect(of_field, found)


def form_of(cls: type) -> str:
    """How a value of the type is written, where it is not an object with the type's name as its tag."""
    if not issubclass(cls, msgspec.Struct):
        return " (list)" if issubclass(cls, tuple) else " (value)"
    config = cls.__struct_config__
    tag = "" if config.tag is None else "" if config.tag == cls.__name__ else f", tag {config.tag}"
    return f" ({'list' if config.array_like else 'object'}{', no tag' if config.tag is None else tag})"


def lines_of(cls: type) -> Iterator[str]:
    """A line for each field, or for each value of an enumeration."""
    if issubclass(cls, enum.Enum):
        yield from (f"{each.name} = {each.value!r}" for each in cls)
        return
    for name, of_field, default in fields_of(cls):
        yield f"{name}: {spelled(of_field)}{default}"


def fields_of(cls: type) -> Iterator[tuple[str, Any, str]]:
    """Each field's name as it is written, its type, and its default."""
    if issubclass(cls, msgspec.Struct):
        for each in msgspec.structs.fields(cls):
            has_factory = each.default_factory is not msgspec.NODEFAULT
            default = each.default_factory() if has_factory else each.default
            yield each.encode_name, each.type, "" if default is msgspec.NODEFAULT else f" = {default!r}"
        return
    defaults = getattr(cls, "_field_defaults", {})
    for name, of_field in typing.get_type_hints(cls).items():
        yield name, of_field, f" = {defaults[name]!r}" if name in defaults else ""


def spelled(annotation: Any) -> str:
    """The type as Python spells it, without modules."""
    if annotation is type(None):
        return "None"
    if annotation is Ellipsis:
        return "..."
    arguments = [spelled(each) for each in typing.get_args(annotation)]
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(sorted(arguments))
    if origin is typing.Literal:
        return f"Literal{list(typing.get_args(annotation))!r}"
    name = str(getattr(origin or annotation, "__name__", annotation))
    return f"{name}[{', '.join(arguments)}]" if arguments else name


if __name__ == "__main__":
    GOLDEN.write_text(text(), "utf-8")
