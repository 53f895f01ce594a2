"""Times as people read them."""

from __future__ import annotations

from datetime import datetime, timezone


def duration(time_ms: int) -> str:
    """Returns the time in one or two units: 350 ms, 12 s, 3 min 5 s, 2 h 10 min, 4 d 3 h."""
    seconds = max(time_ms, 0) // 1000
    if seconds < 1:
        return f"{max(time_ms, 0)} ms"
    for size, name, smaller, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {name}" + (f" {rest} {below}" if rest else "")
    return f"{seconds} s"


def time_of(at_ms: int | None) -> str:
    """Returns the time in UTC, to the millisecond; empty if unknown."""
    if at_ms is None:
        return ""
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(" ", "milliseconds").removesuffix("+00:00")


def second_of(at_ms: int, utc: str) -> str:
    """Returns the time to the second, with ``utc`` behind it; a producer may write a number that is no time."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S") + utc
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
