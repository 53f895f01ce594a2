"""The base of all named errors: a class whose docstring is the message, its fields, and its transport over RPC.

Rule: import it through coordinator.protocol.errors, which has the classes: an error can be rebuilt by its name only
after its module was imported.
"""

from __future__ import annotations

from typing import Any, ClassVar

from coordinator.protocol.log_lines import printable


class ShareGroupError(Exception):
    """Something went wrong in sharegroup."""

    kafka_error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        template = " ".join((type(self).__doc__ or "").split())
        super().__init__(template.format_map({name: _shown(value) for name, value in fields.items()}))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.fields))


MAX_SHOWN = 500
"""Characters of one field in the sentence, at most: a value may be as long as a person, or a program, makes it."""

_END = 150
"""Characters of the end that is shown of a longer field: a reason ends with the way out."""


def _shown(value: Any) -> Any:
    """The field as it is in the sentence: cut, and in one line without control characters. ``fields`` keeps it
    whole."""
    text = str(value)
    if len(text) <= MAX_SHOWN and text.isprintable():
        return value
    if len(text) > MAX_SHOWN:
        text = f"{text[: MAX_SHOWN - _END]}... ({len(text):,} characters) ...{text[-_END:]}"
    return printable(text)


def _rebuild(cls: type[ShareGroupError], fields: dict[str, Any]) -> ShareGroupError:
    return cls(**fields)


def error_from_wire(name: str, fields: dict[str, Any], text: str = "") -> ShareGroupError:
    """The error that the other side raised; a RemoteError if this side has no class for it."""
    cls = by_name().get(name)
    return RemoteError(name=name, text=text or fields) if cls is None else cls(**fields)


def by_name() -> dict[str, type[ShareGroupError]]:
    """All classes of named errors, by class name."""
    classes: dict[str, type[ShareGroupError]] = {}
    todo = [ShareGroupError]
    while todo:
        cls = todo.pop()
        classes[cls.__name__] = cls
        todo.extend(cls.__subclasses__())
    return classes


class RemoteError(ShareGroupError):
    """The coordinator answered {name}: {text}"""
