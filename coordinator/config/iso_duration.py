"""Parses ISO-8601 durations for ``share.auto.offset.reset=by_duration:PnDTnHnMn.nS``, in java.time.Duration's form.

Days are 24 hours. Years, months and weeks are not accepted, nor are negative durations, as in Kafka."""

from __future__ import annotations

import re

_FORM = re.compile(
    r"P(?:(?P<days>\d{1,9})D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_duration_ms(text: str) -> int | None:
    """Returns the duration in whole milliseconds, rounded down; None if the text is no duration."""
    match = _FORM.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    seconds, _, fraction = (match["seconds"] or "0").replace(",", ".").partition(".")
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(seconds) * 1_000 + int(f"{fraction:0<3}"[:3])
