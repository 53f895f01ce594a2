"""The cause of a query's end, from the text of Spark's exception.

Spark puts an error of Python into errors of py4j and of Java, some of them more than once, so the cause stands deep in
the text. Rule: what a program raises may hold the text of a record. So a named error of ours is one only where Spark
or Python says which error was raised, and never after the line of another error."""

from __future__ import annotations

import re
from typing import NamedTuple

from coordinator.config.kafka_options import HIDDEN
from coordinator.protocol.log_lines import printable

LONGEST = 500
"""A sentence is cut after this many characters: an error of a program may hold a whole record."""
_NAMED = re.compile(
    r"(?:^|PythonException: |\[PYTHON_\w+\][^:\n]*: )"
    r"(?:coordinator|share_sink|share_source)\.(?:\w+\.)*?\w*errors\.([A-Z]\w*): (.*)",
    re.MULTILINE,
)
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
_BY_SPARK = ("pyspark.", "py4j.")
"""Errors of these modules pass on another error."""
_CAUSED_BY, _ENDED_BY = re.compile(r"^Caused by: (.*)", re.MULTILINE), re.compile(r"terminated with exception: (.*)")
_SECRET = re.compile(
    r"(://)[^/\s@]+(?=@)|((?:passw(?:or)?d|secret|token|api_?key)[\"']?\s*[=:]\s*|bearer\s+)[^\s&,;]+", re.IGNORECASE
)


class Cause(NamedTuple):
    """``name``: the class of a named error, without its module; empty for any other error. ``text``: the error's class
    and the first line of its sentence, without passwords."""

    name: str
    text: str


def cause_of(text: str) -> Cause:
    """Returns the cause of the error with this text."""
    text = text.partition("\n=== Streaming Query ===")[0]  # the plan and the offsets follow
    python = list(_RAISED.finditer(text))
    raised = next((found for found in python if not found[1].startswith(_BY_SPARK)), None)
    named = _NAMED.search(text, 0, raised.start(1)) or _NAMED.match(raised[1]) if raised else _NAMED.search(text)
    if named:
        return Cause(named[1], _shown(f"{named[1]}: {named[2]}"))
    if raised:
        return Cause("", _shown(raised[1]))
    of_java = _CAUSED_BY.findall(text) or [found[1] for found in python] or _ENDED_BY.findall(text)
    return Cause("", _shown(of_java[-1] if of_java else text.partition("\n")[0]))


def _shown(line: str) -> str:
    shown = printable(_SECRET.sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", line.strip()))
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
