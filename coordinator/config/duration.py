"""ISO-8601 durations, as ``share.auto.offset.reset=by_duration:PnDTnHnMn.nS`` takes them (java.time.Duration's form).

Days are 24 hours; years, months and weeks are not durations. Negative durations are refused, as Kafka does.
"""

from __future__ import annotations

import re

_FORM = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_duration_ms(text: str) -> int | None:
    """Milliseconds of ``text`` (parts below a millisecond are dropped), or None if it is not a duration."""
    match = _FORM.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + _seconds_to_ms(match["seconds"] or "0")


def _seconds_to_ms(text: str) -> int:
    whole, _, fraction = text.replace(",", ".").partition(".")
    return int(whole) * 1000 + int(f"{fraction:0<3}"[:3])
