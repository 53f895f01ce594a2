"""The work of the ShareConsumer on its record (KAFKA-20458), told by the steps of the world alone: how long ago the
record was acquired, when the last signal of its holder came, and whether the holder is there.

Rules: only the holder's signals and outcomes count; the record stays with its holder while signals are fresh, and
leaves when they are stale, or when the longest extension is over; what a member that is gone worked on leaves after the
grace time. The coordinator's own deadlines are not asked.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.protocol.requests import Request
from tests.protocol.setting import EXTENSION_MS, SESSION_MS, STALE_MS

SIGNAL, LEAVE = "signal", "leave"
OUTCOMES = ("accept", "release")


class Receipt(NamedTuple):
    """The holder of a record, its delivery count, and whether work on it is in progress."""

    member: str = ""
    count: int = 0
    in_progress: bool = False


class Work(NamedTuple):
    """``acquired_ms``, ``signal_ms``: so long ago the record was acquired, and the last signal was taken.
    ``loaded_ms``: so long ago, and since the last signal, a coordinator loaded the group, which leaves each lock a
    session timeout. None: it did not happen. ``orphaned``: the holder left, or was lost, since its last signal."""

    acquired_ms: int | None = None
    signal_ms: int | None = None
    loaded_ms: int | None = None
    orphaned: bool = False

    def later(self, ms: int) -> Work:
        """The same so much later."""
        longest = EXTENSION_MS + STALE_MS
        ages = [at if at is None else min(at + ms, longest) for at in self[:3]]
        return Work(*ages, orphaned=self.orphaned)

    def loaded(self) -> Work:
        """Another coordinator has loaded the group."""
        return self if self.acquired_ms is None else self._replace(loaded_ms=0)

    def after(self, request: Request, after: Receipt, taken: bool) -> Work:
        """The work after a request was served. ``taken``: as :func:`wrong_answer` has it."""
        if request.kind == "fetch" and taken:
            return Work(acquired_ms=0)
        if request.kind == SIGNAL and taken:
            return self._replace(signal_ms=0, loaded_ms=None, orphaned=False)
        if request.kind == LEAVE and taken and after.member == request.member:
            return self._replace(orphaned=True)
        return self if after.member else Work()

    @property
    def is_over(self) -> bool:
        """Whether the record has to be available to others."""
        if self.acquired_ms is None or self.signal_ms is None:
            return False
        if self.loaded_ms is not None and self.loaded_ms <= SESSION_MS:
            return False
        return self.signal_ms > STALE_MS or self.acquired_ms > EXTENSION_MS

    @property
    def is_fresh(self) -> bool:
        """Whether the record has to stay with a holder that is there."""
        if self.acquired_ms is None or self.signal_ms is None:
            return False
        return self.signal_ms <= STALE_MS and self.acquired_ms <= EXTENSION_MS


def is_holders(request: Request, held: Receipt) -> bool:
    """Whether the request comes from the record's holder, for this delivery."""
    return (request.member, request.count) == (held.member, held.count)


def wrong_answer(request: Request, held: Receipt, work: Work, taken: bool) -> str:
    """The mistake in the answer to a signal or an outcome; empty if there is none. ``taken``: the signal was not
    refused, or the outcome has changed the record."""
    if request.kind not in (SIGNAL, *OUTCOMES):
        return ""
    if taken and not is_holders(request, held):
        return f"{request} was taken, and the record is held by {held.member or 'nobody'}, at count {held.count}"
    over = work.acquired_ms is not None and work.acquired_ms > EXTENSION_MS
    if not taken and is_holders(request, held) and not (request.kind == SIGNAL and over):
        return f"{request} was refused, and is the holder's"
    return ""


def wrong_after(before: Receipt, after: Receipt, work: Work) -> str:
    """The mistake in what time, longer than the grace, has done to a record in progress; empty if there is none."""
    if not before.in_progress:
        return ""
    stays = after == before
    if stays and work.is_over:
        return f"{before.member} still works on the record, its signals are over: {work}"
    if stays and work.orphaned and work.loaded_ms is None:
        return f"the record is still in progress, and {before.member} has been gone for longer than the grace time"
    if not stays and work.is_fresh and not work.orphaned:
        return f"fresh work was taken from {before.member}: {work}"
    return ""
