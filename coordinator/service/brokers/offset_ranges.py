"""Offsets one by one, as ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

Key = TypeVar("Key")


class LogRange(NamedTuple):
    """Offsets ``first..last`` of a partition's log."""

    topic: str
    topic_id: str
    partition: int
    first: int
    last: int


def ranges_of(offsets: Iterable[tuple[Key, int]]) -> Iterator[tuple[Key, int, int]]:
    """Offsets with what they are of, in the order that they come in: those of the same that follow each other are a
    range, ``(of, first, last)``."""
    reached: tuple[Key, int, int] | None = None
    for key, offset in offsets:
        if reached is not None and offset == reached[2] + 1 and key == reached[0]:
            reached = (key, reached[1], offset)
            continue
        if reached is not None:
            yield reached
        reached = (key, offset, offset)
    if reached is not None:
        yield reached
