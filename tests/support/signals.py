"""Signals to programs that a test starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hearing(number: int) -> Iterator[None]:
    """A program that is started in here hears the signal. It may be ignored in the tests' own process, as `nohup` and a
    shell's `&` have it, and so in all that they start; a program leaves that as it is."""
    before = signal.signal(number, signal.default_int_handler)  # a new program has the default for a handler
    try:
        yield
    finally:
        signal.signal(number, before)
