"""Reads the ranges of several partitions with a consumer whose records the compiled code takes.

Rule: it differs from Python's reader only in how records get into a batch."""

from __future__ import annotations

from share_source.executor.native.native_consumer import NativeConsumer
from share_source.executor.native.native_rows import NativeRows
from share_source.executor.range_cursor import RangeCursor
from share_source.executor.range_reader import Reader, widest_hole


class NativeReader(Reader):
    """A reader that takes the records of one partition after the other, from the queue of each partition."""

    consumer: NativeConsumer

    def _read_on(self, rows: NativeRows) -> None:
        wait_s = self._wait_s()
        events = self.consumer.main_events()
        came = bool(events)
        for event in events:
            self._handle(event)
        for cursor in list(self._open.values()):
            came |= self._take_from(cursor, rows)
        if self.consumer.misses_topic:
            self._check_topics()
        elif not came:
            self.consumer.wait(wait_s)

    def _take_from(self, cursor: RangeCursor, rows: NativeRows) -> bool:
        """Take what a partition's queue has. Returns whether anything came."""
        position = self.consumer.positions.get(cursor.key)
        if not rows.room or position is None or cursor.done:
            return not rows.room
        end, events = self.consumer.take(cursor, rows, widest_hole())
        came = end > position.seen
        if came:
            self._ended.discard(cursor.key)
            self._seen(cursor, end)
        for event in events:
            self._handle(event)
        return came or bool(events)
