"""Times in a pattern of Java's SimpleDateFormat, which options of Kafka's tools take."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone

KAFKAS = "yyyy-MM-dd HH:mm:ss:SSS"
"""The default pattern of Kafka's tools."""
_PART = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)")
_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "d": lambda time: time.day,
    "D": lambda time: time.timetuple().tm_yday,
    "H": lambda time: time.hour,
    "k": lambda time: time.hour or 24,
    "K": lambda time: time.hour % 12,
    "h": lambda time: time.hour % 12 or 12,
    "m": lambda time: time.minute,
    "s": lambda time: time.second,
    "S": lambda time: time.microsecond // 1000,
    "u": lambda time: time.isoweekday(),
}
_TEXTS = {"a": ("%p", "%p"), "E": ("%a", "%A"), "Z": ("%z", "%z"), "z": ("%Z", "%Z")}
"""The format for up to three repeats of the letter, and for more."""


def time_format(pattern: str) -> Callable[[float], str]:
    """Returns the function that writes a time (seconds since 1970) as text, in local time. Raises ValueError if a quote
    in the pattern is not closed, or if a letter is not supported."""
    parts: list[Callable[[datetime], str] | str] = []
    at = 0
    while at < len(pattern):
        found = _PART.match(pattern, at)
        if found is None:
            raise ValueError("a quote is not closed")
        at = found.end()
        quoted, sign_run, sign, plain = found.groups()
        text = plain or (quoted or "").replace("''", "'") or "'"
        parts.append(_field(sign, len(sign_run)) if sign_run else text)

    def shown(time_s: float) -> str:
        local = datetime.fromtimestamp(time_s, timezone.utc).astimezone()
        return "".join(part if isinstance(part, str) else part(local) for part in parts)

    return shown


def _field(sign: str, count: int) -> Callable[[datetime], str]:
    if sign == "y":
        return lambda time: f"{time.year % 100:02d}" if count == 2 else f"{time.year:0{count}d}"
    if sign == "M" and count > 2:
        return lambda time: f"{time:%b}" if count == 3 else f"{time:%B}"
    if sign == "M":
        return lambda time: f"{time.month:0{count}d}"
    if sign in _NUMBERS:
        return lambda time: f"{_NUMBERS[sign](time):0{count}d}"
    if sign in _TEXTS:
        return lambda time: time.strftime(_TEXTS[sign][count > 3])
    known = "".join(sorted({"y", "M", *_NUMBERS, *_TEXTS}))
    raise ValueError(f"{sign!r} is not one of {known}; other text stands in single quotes")
