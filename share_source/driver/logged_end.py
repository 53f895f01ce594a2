"""A reader's knowledge of Spark's log on Spark 4.0 and 4.1, where ``latestOffset()`` has no arguments.

There Spark tells a reader where its log ends all the same: a process of a query that has a log is asked for
``partitions(end, end)`` first, with the end of the last batch that is logged, whether that is committed or not; then
either for ``partitions(start, end)``, a replay, or for ``latestOffset()``, which means that the batch is committed
(docs/trust/facts.md, S25). In the same process ``latestOffset()`` after ``partitions(start, end)`` means the same.

Rule: a reader never guesses which batch was committed. In another order of the calls the reader can't know, and
refuses: Spark's wrapper for AvailableNow asks ``latestOffset()`` before Spark has looked into its log, so that a batch
which was committed and one that is about to be replayed look alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from share_source.errors import LogNotTold

Offset = Mapping[str, Any]
"""An offset as Spark's log holds it (:mod:`share_source.driver.plan_offset`)."""


class LoggedEnd(NamedTuple):
    """``end``: the end of the last batch in Spark's log, as Spark named it. ``initial``: the initial offset that the
    process returned before Spark named an end. ``offered``: its last answer was new, and Spark has asked for no tasks
    since."""

    end: Offset | None = None
    initial: Offset | None = None
    offered: bool = False

    def partitions_asked(self, start: Offset, end: Offset) -> LoggedEnd:
        """Returns the knowledge after ``partitions(start, end)``.

        Raises:
            LogNotTold: the process was asked for an offset first, as if there were no log; but there is one.
        """
        if self.end is None and self.initial is not None and start != self.initial:
            raise LogNotTold()
        return LoggedEnd(end)

    def latest_asked(self, initial: Offset) -> Offset:
        """Returns the end of the last batch, which is committed; ``initial`` if there is no log.

        Raises:
            LogNotTold: Spark asks again, and did not log the new offset that it was given.
        """
        if self.offered:
            raise LogNotTold()
        return initial if self.end is None else self.end

    def answered(self, committed: Offset, answer: Offset) -> LoggedEnd:
        """Returns the knowledge after ``latestOffset()``: the reader's answer to what :meth:`latest_asked` returned."""
        initial = committed if self.end is None else None
        return LoggedEnd(self.end, initial, offered=answer != committed)
