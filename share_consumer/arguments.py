"""Checks of the arguments of a ShareConsumer's methods, with the errors of confluent_kafka.ShareConsumer."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from coordinator.protocol.topic_names import is_topic_name
from coordinator.protocol.values import LONGEST_DELAY_MS, LONGEST_REASON, MOST_HINT_BYTES, AcknowledgeType

_TYPES = "AcknowledgeType.ACCEPT, RELEASE, REJECT or RENEW"
ERRONEOUS, INVALID = "Local: Erroneous state", "Local: Invalid argument or configuration"


def check_type(number: int, argument: object, kind: type, name: str) -> None:
    """Raises TypeError if the n-th positional argument is of another type."""
    if not isinstance(argument, kind):
        given = None if argument is None else type(argument).__name__
        raise TypeError(f"argument {number} must be {name}, not {given}")


def c_int(argument: object, bits: int = 32) -> int:
    """Returns the argument as an integer of ``bits`` bits, as C code takes it.

    Raises:
        TypeError: the argument is no integer.
        OverflowError: the argument has more bits."""
    number = operator.index(argument)  # type: ignore[arg-type]  # it raises TypeError
    if number.bit_length() < bits:
        return number
    if bits == 32:
        raise OverflowError(f"signed integer is {'greater than maximum' if number > 0 else 'less than minimum'}")
    raise OverflowError("int too big to convert")


def type_number(ack_type: object) -> int:
    """Returns the number of an AcknowledgeType.

    Raises:
        TypeError: the argument is no integer.
        OverflowError: the argument has more than 32 bits."""
    if isinstance(ack_type, bool) or not hasattr(ack_type, "__index__"):
        raise TypeError(f"ack_type must be {_TYPES}, not {type(ack_type).__name__}")
    return c_int(ack_type)


def refused_type(number: int) -> str:
    """Returns what to use in place of this number, which is no outcome of a ShareConsumer's record."""
    if number == AcknowledgeType.DEFER:
        return "AcknowledgeType.DEFER is for sinks alone; use RELEASE, with delay_ms for a pause"
    if number == AcknowledgeType.GAP:
        return f"{INVALID}: AcknowledgeType.GAP is for offsets without a record; use {_TYPES}"
    return f"{INVALID}: ack_type must be {_TYPES}, not {number}"


def wrong_topics(names: Sequence[str]) -> str:
    """Returns what is wrong with the names of a subscription; empty: nothing."""
    for name in names:
        if not is_topic_name(name) and not (name.startswith("^") and len(names) == 1):
            return f"{name!r} is no name of a topic: use letters, digits, dots, underscores and hyphens, 249 at most"
        if names.count(name) > 1:
            return f"topic {name} is there twice"
    return ""


def check_hint(hint: object) -> None:
    """Raises TypeError or ValueError if the hint (the second argument) is no text of up to MOST_HINT_BYTES, or None."""
    if hint is None:
        return
    check_type(2, hint, str, "str")
    if len(str(hint).encode()) > MOST_HINT_BYTES:
        raise ValueError(f"Failed to mark message: the hint has more than {MOST_HINT_BYTES} bytes")


def check_note(what: str, kind: int, reason: object, delay_ms: object, release_at: object) -> tuple[str, int | None]:
    """Check the reason and the delay, or the point in time, that a program may give with an outcome. Returns the
    reason, cut to the length that a dead letter keeps, and the delay in milliseconds. Raises TypeError or ValueError if
    one of them has another type, is out of bounds, or does not go with this outcome."""
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"reason must be str, not {type(reason).__name__}")
    if reason and kind != AcknowledgeType.REJECT:
        raise ValueError(f"Failed to acknowledge {what}: reason is for AcknowledgeType.REJECT alone")
    name, given = ("delay_ms", delay_ms) if release_at is None else ("release_at", release_at)
    if given is not None and kind != AcknowledgeType.RELEASE:
        raise ValueError(f"Failed to acknowledge {what}: {name} is for AcknowledgeType.RELEASE alone")
    if delay_ms is not None and release_at is not None:
        raise ValueError(f"Failed to acknowledge {what}: give delay_ms or release_at, not both")
    if release_at is not None:
        delay_ms = _delay_until(what, release_at)
    if delay_ms is not None and (isinstance(delay_ms, bool) or not hasattr(delay_ms, "__index__")):
        raise TypeError(f"delay_ms must be a whole number of milliseconds, not {type(delay_ms).__name__}")
    wait_ms = None if delay_ms is None else operator.index(delay_ms)
    if wait_ms is not None and not 0 <= wait_ms <= LONGEST_DELAY_MS:
        raise ValueError(f"Failed to acknowledge {what}: delay_ms is 0 to {LONGEST_DELAY_MS}, not {wait_ms}")
    return (reason or "")[:LONGEST_REASON].encode(errors="replace").decode(), wait_ms  # a file's name may be no UTF-8


def _delay_until(what: str, release_at: object) -> int:
    """Returns the milliseconds until this point in time; 0 if it is over."""
    if not isinstance(release_at, datetime):
        raise TypeError(f"release_at must be a datetime with a time zone, not {type(release_at).__name__}")
    if release_at.utcoffset() is None:
        zone = "has no time zone: datetime.now(timezone.utc) has one, and release_at.astimezone() takes this host's"
        raise ValueError(f"Failed to acknowledge {what}: release_at={release_at} {zone}")
    delay_ms = max(0, -((datetime.now(timezone.utc) - release_at) // timedelta(milliseconds=1)))
    if delay_ms > LONGEST_DELAY_MS:
        too_far = f"is more than {LONGEST_DELAY_MS} ms ahead"
        raise ValueError(f"Failed to acknowledge {what}: release_at={release_at} {too_far}")
    return delay_ms


def timeout_seconds(timeout: object) -> float:
    """Returns the timeout in seconds.

    Raises:
        TypeError: the timeout is no number.
        ValueError: the timeout is nan."""
    wanted = "timeout must be real number, of seconds (-1: no limit)"
    if isinstance(timeout, str | bytes) or not (hasattr(timeout, "__float__") or hasattr(timeout, "__index__")):
        raise TypeError(f"{wanted}, not {type(timeout).__name__}")
    seconds = float(timeout)  # type: ignore[arg-type]  # it has one of the two methods
    if math.isnan(seconds):
        raise ValueError(f"{wanted}, not nan")
    return seconds
