"""Lines that a query's or ShareConsumer's log has once, until what they report changes."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

T = TypeVar("T")


class ToldOnce(Generic[T]):
    """Remembers the last reported value, ``nothing`` at first."""

    def __init__(self, nothing: T) -> None:
        self._last = nothing

    def __repr__(self) -> str:
        return f"<ToldOnce {self._last!r}>"

    def changes(self, now: T) -> bool:
        """Whether the value differs from the last one. Remembers it."""
        is_new, self._last = now != self._last, now
        return is_new


class HeldBack:
    """Logs once that a member gets no records because too many wait for their dead letters, and once that it gets some
    again. ``member``: what it is, as "the query"."""

    def __init__(self, log: logging.Logger, member: str, group_id: str) -> None:
        self._log, self._member, self._group_id = log, member, group_id
        self._told = ToldOnce(False)

    def __repr__(self) -> str:
        return f"<HeldBack {self._member} {self._told!r}>"

    def look(self, waiting: int, *, acquired: bool) -> None:
        """Apply an answer: how many records wait for their dead letters, where that holds the member back, else 0; and
        whether records were acquired. An answer without either changes nothing."""
        if not waiting and not acquired:
            return
        if not self._told.changes(bool(waiting)):
            return
        if waiting:
            self._log.warning(
                "%s gets no records: %d of them wait for their dead letters. It goes on when dead letters are "
                "written; `sharegroup doctor --group %s` says why they are not.",
                self._member,
                waiting,
                self._group_id,
            )
        else:
            self._log.info("%s gets records again: dead letters are written", self._member)
