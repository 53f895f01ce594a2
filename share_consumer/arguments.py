"""Checks of the arguments of a ShareConsumer's methods, with the errors of confluent_kafka.ShareConsumer."""

from __future__ import annotations

import operator

from coordinator.protocol.values import LONGEST_DELAY_MS, LONGEST_REASON, MOST_HINT_BYTES, AcknowledgeType

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
        OverflowError: the argument has more bits.
    """
    number = operator.index(argument)  # type: ignore[arg-type]  # it raises TypeError
    if number.bit_length() < bits:
        return number
    if bits == 32:
        raise OverflowError(f"signed integer is {'greater than maximum' if number > 0 else 'less than minimum'}")
    raise OverflowError("int too big to convert")


def check_hint(hint: object) -> None:
    """Raises TypeError or ValueError if the hint, the second argument, is neither None nor a text of up to
    MOST_HINT_BYTES."""
    if hint is None:
        return
    check_type(2, hint, str, "str")
    if len(str(hint).encode()) > MOST_HINT_BYTES:
        raise ValueError(f"Failed to mark message: the hint has more than {MOST_HINT_BYTES} bytes")


def check_note(what: str, kind: int, reason: object, delay_ms: object) -> tuple[str, int | None]:
    """Check the reason and the delay that a program may give with an outcome. Returns the reason, cut to the length
    that a dead letter keeps, and the delay.

    Raises:
        TypeError, ValueError: the reason or the delay has another type, is out of bounds, or does not go with this
            outcome.
    """
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"reason must be str, not {type(reason).__name__}")
    if reason and kind != AcknowledgeType.REJECT:
        raise ValueError(f"Failed to acknowledge {what}: reason is for AcknowledgeType.REJECT alone")
    if delay_ms is not None and kind != AcknowledgeType.RELEASE:
        raise ValueError(f"Failed to acknowledge {what}: delay_ms is for AcknowledgeType.RELEASE alone")
    wait_ms = None if delay_ms is None else operator.index(delay_ms)  # type: ignore[arg-type]  # it raises TypeError
    if wait_ms is not None and not 0 <= wait_ms <= LONGEST_DELAY_MS:
        raise ValueError(f"Failed to acknowledge {what}: delay_ms is 0 to {LONGEST_DELAY_MS}, not {wait_ms}")
    return (reason or "")[:LONGEST_REASON].encode(errors="replace").decode(), wait_ms  # a file's name may be no UTF-8


def timeout_seconds(timeout: object) -> float:
    """Returns the timeout in seconds. Raises TypeError if the timeout is no number."""
    if isinstance(timeout, str | bytes):
        raise TypeError(f"must be real number, not {type(timeout).__name__}")
    return float(timeout)  # type: ignore[arg-type]  # it raises TypeError
