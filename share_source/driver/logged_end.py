"""What a reader knows of Spark's log on Spark 4.0 and 4.1, where ``latestOffset()`` has no arguments.

If the query has a log, Spark first calls ``partitions(end, end)`` with the end of the last logged batch, committed or
not. Then it calls ``partitions(start, end)`` for a replay, or ``latestOffset()``, which means that the batch is
committed (docs/trust/facts.md, S25). ``latestOffset()`` after ``partitions(start, end)`` means the same.

Rule: a reader never guesses which batch was committed. If the calls come in another order, it refuses. Spark's wrapper
for AvailableNow calls ``latestOffset()`` before Spark has read its log, so a committed batch and a batch to replay
would look alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from share_source.errors import LogNotTold

Offset = Mapping[str, Any]
"""An offset as Spark's log holds it (:mod:`share_source.driver.plan_offset`)."""


class LoggedEnd(NamedTuple):
    """``end``: the end of the last batch in the log, as Spark named it. ``initial``: the initial offset that the reader
    returned before Spark named an end. ``offered``: the last reply was a new offset, and Spark has asked for no tasks
    since."""

    end: Offset | None = None
    initial: Offset | None = None
    offered: bool = False

    def partitions_asked(self, start: Offset, end: Offset) -> LoggedEnd:
        """Returns what is known after ``partitions(start, end)``. Raises LogNotTold if there is a log, though Spark
        asked for an offset first, as if there were none."""
        if self.end is None and self.initial is not None and start != self.initial:
            raise LogNotTold()
        return LoggedEnd(end)

    def latest_asked(self, initial: Offset) -> Offset:
        """Returns the end of the last committed batch; ``initial`` if there is no log. Raises LogNotTold if Spark asks
        again without having logged the new offset of the last reply."""
        if self.offered:
            raise LogNotTold()
        return initial if self.end is None else self.end

    def answered(self, committed: Offset, answer: Offset) -> LoggedEnd:
        """Returns the knowledge after ``latestOffset()``, with the reply to :meth:`latest_asked`."""
        initial = committed if self.end is None else None
        return LoggedEnd(self.end, initial, offered=answer != committed)
